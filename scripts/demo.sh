#!/usr/bin/env bash
# What Copus does today, in a few commands and about a minute. Usage: scripts/demo.sh [path of copus]
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

# Training needs libtorch, and several ranks on CPUs need Gloo: a build may lack either. Any other failure is one.
small=(--model tiny --ranks 2 --seq-len 64 --global-batch 8 --lr 1e-3)
if ! "$copus" train "${small[@]}" --steps 1 --run-dir probe >/dev/null 2>why; then
  if ! grep -q -e 'this build has no libtorch' -e 'a build with Gloo' why; then
    cat why >&2
    exit 1
  fi
  say "Training is left out: $(sed -n '$s/^copus: error: //p' why)"
  exit 0
fi

runs=$(mktemp -d "${TMPDIR:-/tmp}/copus-demo-XXXXXX")
cd "$runs"
say "A small model, trained by two replicas that share the optimizer's state"
show train "${small[@]}" --steps 100 --plan dp=2,zero=1 --run-dir replicas
say "The same, with every layer cut over the two ranks"
show train "${small[@]}" --steps 100 --plan tp=2 --run-dir tensor

say "The layout is a choice of speed, not of result"
python3 - <<'EOF'
import json

runs = {}
for name in "replicas", "tensor":
    with open(f"{name}/events.jsonl", encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    runs[name] = [event["loss"] for event in events if event["event"] == "step"]
print("\nstep  dp=2,zero=1    tp=2")
for step in 1, 2, 5, 10, 20, 50, 100:
    print(f"{step:4}  {runs['replicas'][step - 1]:11.4f}  {runs['tensor'][step - 1]:.4f}")
apart = max(abs(a - b) / a for a, b in zip(*runs.values()))
print(f"largest difference in {len(runs['tensor'])} steps: {apart:.1e} of the loss: rounding")
EOF
say "Their run directories are in $runs (config.toml, events.jsonl); docs/training.md says what is in them."
