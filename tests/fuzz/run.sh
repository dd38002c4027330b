#!/usr/bin/env bash
# Builds the fuzz targets in build/fuzz and runs each for SECONDS (20), starting from its corpus beside this script. The
# inputs that they find stay under build/fuzz. Exit code 77: clang++ with libFuzzer is not installed, so nothing ran.
#   tests/fuzz/run.sh [SECONDS [TARGET]...]      TARGET: configs, checkpoints
set -euo pipefail

seconds="${1:-20}"
if ! [[ "$seconds" =~ ^[1-9][0-9]*$ ]]; then
  echo "seconds: got '$seconds'; want a whole number of 1 or more" >&2
  exit 2
fi
shift || true
targets=("$@")
if [ $# = 0 ]; then targets=(configs checkpoints); fi
for target in "${targets[@]}"; do
  if [ "$target" != configs ] && [ "$target" != checkpoints ]; then
    echo "target: got '$target'; want configs or checkpoints" >&2
    exit 2
  fi
done
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$root/build/fuzz"

if ! command -v clang++ >/dev/null; then
  echo "skipped: clang++ is not installed"
  exit 77
fi
probe="$(mktemp -d)"
trap 'rm -rf "$probe"' EXIT
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$probe/probe.cc"
if ! clang++ -fsanitize=fuzzer "$probe/probe.cc" -o "$probe/probe" 2>/dev/null; then
  echo "skipped: clang++ has no libFuzzer (Debian: libclang-rt-dev)"
  exit 77
fi

cd "$root"
cmake --preset fuzz >"$probe/configure.log" || { cat "$probe/configure.log"; exit 1; }
for target in "${targets[@]}"; do
  cmake --build "$build" --target "fuzz_$target"
  mkdir -p "$build/corpus/$target"
  # 65536 bytes reach every branch of the parsers; 10 s on one input is a hang; 2 GiB is a leak.
  "$build/bin/fuzz_$target" "$build/corpus/$target" "$here/corpus/$target" -dict="$here/$target.dict" \
    -max_total_time="$seconds" -max_len=65536 -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="$build/" -print_final_stats=1
done
