#!/usr/bin/env bash
# What Copus does today, in a few commands and well under a minute. Usage: scripts/demo.sh [path of copus]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copus=$(realpath "${1:-build/bin/copus}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

say() { printf '\n== %s\n' "$*"; }
show() {
  printf '\n$ copus'
  printf ' %s' "$@"
  printf '\n'
  "$copus" "$@"
}

say "How to lay Llama 3 70B out over 512 H100s"
show plan --model llama-3-70b --cluster 64x8xH100-80GB-SXM --seq-len 8192 --global-batch 512 --top 5

say "The best layout changes with the batch: Llama 3.2 3B on one node"
show plan --model llama-3.2-3b --cluster 1x8xH100-80GB-SXM --seq-len 2048 --sweep-batch 16:512 \
  --fix zero=0,recompute=none

plan=tp=8,pp=4,micro_batch=1,zero=1,sp=1
say "One layout, taken apart"
show predict --model llama-3-70b --cluster 8x8xH100-80GB-SXM --seq-len 8192 --global-batch 128 --plan "$plan"

say "Who talks to whom under that layout"
show traffic --model llama-3-70b --cluster 8x8xH100-80GB-SXM --seq-len 8192 --global-batch 128 --plan "$plan"

say "copus traffic --svg FILE draws it, copus predict --trace FILE writes the timeline for Perfetto."
say "These are predictions. Measured runs to hold them against are not part of this demo."
say "Training joins the demo when copus train exists."
