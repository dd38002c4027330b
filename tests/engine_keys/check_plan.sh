#!/bin/sh
# check_plan.sh ENGINE MODEL PINS [OPTION...]: writes the best plan for the engine and compares its keys with the engine's.
here=$(dirname "$0") engine=$1 model=$2 pins=$3
shift 3
if copus plan --model "$model" --cluster 4x8xH100-80GB-SXM --global-batch 128 --fix "$pins" --emit "$engine" --json "$@" > emitted.json &&
  python3 "$here/check.py" "$engine" < emitted.json > keys; then
  echo fine
else
  cat emitted.json keys
fi
