#!/usr/bin/env bash
# Installs the Debian packages that the build needs and this machine lacks. Safe to run twice; says nothing and is
# instant when all are there. Extra packages to require may be given as arguments: install_deps.sh clang-tidy
#
# Exit code 0: the build can go on. 1: something that it needs is missing; the message says what, and what to do.
set -euo pipefail

# package, and a command or header that shows it is there when it came from somewhere other than apt
needed=(
  "g++ g++"
  "cmake cmake"
  "ninja-build ninja"
  "python3 python3"
  "libcli11-dev CLI/CLI.hpp"
  "nlohmann-json3-dev nlohmann/json.hpp"
  "libfmt-dev fmt/format.h"
  "libxxhash-dev xxhash.h"
  "libeigen3-dev eigen3/Eigen/src/Core/util/Macros.h"
  "libgtest-dev gtest/gtest.h"
  "libbenchmark-dev benchmark/benchmark.h"
)
# Their absence is a warning: without the first the training engine is not built, without OpenBLAS it is slow, without
# Ceres nothing is calibrated, without
# SentencePiece `copus data` knows bytes alone, without python3-torch the engine is not checked against PyTorch, without
# clang the fuzz targets are not built.
optional=(
  "libtorch-dev ATen/Version.h"
  "libgloo-dev gloo/config.h"
  "libopenblas0-openmp -"
  "libtomlplusplus-dev toml++/toml.h"
  "libceres-dev ceres/version.h"
  "libsentencepiece-dev sentencepiece_processor.h"
  "python3-torch -"
  "clang clang++"
  "libclang-rt-dev libFuzzer"
)
for package in "$@"; do
  needed+=("$package $package")
done

installed_by_dpkg() {
  command -v dpkg-query >/dev/null 2>&1 &&
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# A command on PATH, a header that the compiler finds, or clang's fuzzing library. "-": only dpkg can tell.
usable() {
  case "$1" in
    -) false ;;
    libFuzzer) compgen -G "$(clang++ -print-resource-dir 2>/dev/null)/lib/*/libclang_rt.fuzzer*" >/dev/null ;;
    *.h | *.hpp) command -v g++ >/dev/null 2>&1 && g++ -x c++ -E -include "$1" /dev/null >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

# The packages, of the entries given, that dpkg does not know and whose probe fails.
missing_of() {
  local entry package probe
  for entry in "$@"; do
    read -r package probe <<<"$entry"
    installed_by_dpkg "$package" || usable "$probe" || printf '%s\n' "$package"
  done
}

say() { printf 'install_deps: %s\n' "$*" >&2; }

apt_install() {
  local as_root=()
  if [[ "$(id -u)" -ne 0 ]]; then
    if ! command -v sudo >/dev/null 2>&1; then
      say "not root, and there is no sudo"
      return 1
    fi
    as_root=(sudo)
  fi
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install --yes --quiet --no-install-recommends "$@")
  # Package lists may be absent (a fresh container) or stale: refresh them only when the first try fails.
  "${install[@]}" || { "${as_root[@]}" apt-get update --quiet && "${install[@]}"; }
}

mapfile -t missing_needed < <(missing_of "${needed[@]}")
mapfile -t missing_optional < <(missing_of "${optional[@]}")
missing=("${missing_needed[@]}" "${missing_optional[@]}")
[[ ${#missing[@]} -eq 0 ]] && exit 0

say "missing: ${missing[*]}"
if command -v apt-get >/dev/null 2>&1; then
  # Apart, so that an optional package that this release does not have keeps none of the needed ones out.
  [[ ${#missing_needed[@]} -eq 0 ]] || apt_install "${missing_needed[@]}" >&2 || say "apt-get failed (offline?)"
  [[ ${#missing_optional[@]} -eq 0 ]] || apt_install "${missing_optional[@]}" >&2 || say "apt-get failed (offline?)"
else
  say "no apt-get here: Copus is built and tested on Debian 12"
fi

mapfile -t missing_needed < <(missing_of "${needed[@]}")
mapfile -t missing_optional < <(missing_of "${optional[@]}")
if [[ ${#missing_optional[@]} -gt 0 ]]; then
  say "going on without ${missing_optional[*]}: what needs them is left out"
fi
if [[ ${#missing_needed[@]} -gt 0 ]]; then
  say "still missing: ${missing_needed[*]}"
  say "on Debian or Ubuntu, with a network: apt-get install ${missing_needed[*]}"
  say "elsewhere: install the same tools and libraries by your own package manager, then run make again"
  exit 1
fi
