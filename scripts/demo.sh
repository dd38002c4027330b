#!/usr/bin/env bash
# Shows two plans and a run that adapts. Takes about two and a half minutes.
# Usage: scripts/demo.sh [path of copus]
set -euo pipefail
copus=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/bin/copus}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=$(mktemp -d "${TMPDIR:-/tmp}/copus-demo-XXXXXX")
trap 'rmdir "$runs" 2>/dev/null || true' EXIT  # only if nothing was trained, so that it is empty
cd "$runs"

say() { printf '\n== %s\n' "$*"; }
show() {
  printf '\n$ copus'
  printf ' %s' "$@"
  printf '\n'
  "$copus" "$@"
}

say "The fastest layouts of Llama 3 70B on 512 H100s"
show plan --model llama-3-70b --cluster 64x8xH100-80GB-SXM --seq-len 8192 --global-batch 512 --top 3

say "The best layout changes with the batch: Llama 3.2 3B on one node"
show plan --model llama-3.2-3b --cluster 1x8xH100-80GB-SXM --seq-len 2048 --sweep-batch 16:512 \
  --fix zero=0,recompute=none

# Training needs libtorch, and several ranks on CPUs need Gloo. A build may be without either; then the demo leaves training
# out. Any other failure ends the demo with an error.
if ! "$copus" train --model tiny --ranks 2 --seq-len 32 --global-batch 4 --steps 1 --run-dir probe >/dev/null 2>why; then
  if ! grep -q -e 'is not installed' -e 'a build with Gloo' why; then
    cat why >&2
    rm -rf why probe
    exit 1
  fi
  say "Training is left out: $(sed -n '$s/^copus: error: //p' why)"
  rm -rf why probe
  exit 0
fi
rm -rf probe why

say "So a run whose best batch grows should change its layout. This run has four local ranks and two minutes; Copus decides when"
show train --model tiny --ranks 4 --seq-len 32 --global-batch 4 --lr 1e-3 --for 120s --adapt full \
  --plan pp=4,micro_batch=1 --batch-range 4:256 --run-dir adaptive

say "Its events (every step, decision and move) are in $runs/adaptive; docs/run-directory.md explains them."
