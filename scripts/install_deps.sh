#!/usr/bin/env bash
# Installs the packages that the build needs and this machine lacks, on Debian 12 and Ubuntu 24.04; elsewhere it lists them. It
# can run again at any time. If all packages are there, it prints nothing and ends at once.
#
# Usage: install_deps.sh [--no-torch] [--prefix FOLDER] [PACKAGE…]
#   --no-torch       libtorch comes from elsewhere (make build TORCH=…), or not at all
#   --prefix FOLDER  needs no root: unpacks the missing libraries into FOLDER/usr (make build DEPS_PREFIX=FOLDER)
#   PACKAGE          another package to require, such as clang-tidy
#
# Exit code 0: the build can go on. 1: something that it needs is missing; the message says what, and what to do. 2: bad arguments.
set -euo pipefail

say() { printf 'install_deps: %s\n' "$*" >&2; }

torch=yes prefix='' extra=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --no-torch) torch=no ;;
    --prefix)
      [[ $# -ge 2 && "$2" == /* ]] || { say "--prefix: got ${2:-nothing}; want a folder's full path" && exit 2; }
      prefix=$2
      shift
      ;;
    -*) say "$1: want --no-torch, --prefix FOLDER or names of packages" && exit 2 ;;
    *) extra+=("$1 $1") ;;
  esac
  shift
done

# Each entry is a package, and a command or header that shows that it is there even if it did not come from apt. The names are
# those of Debian 12 and of Ubuntu 24.04. Ubuntu's package index (main and universe, amd64) has all of them except libtorch-dev
# and python3-torch.
tools=(
  "g++ g++"
  "cmake cmake"
  "ninja-build ninja"
  "python3 python3"
)
libraries=(
  "libcli11-dev CLI/CLI.hpp"
  "nlohmann-json3-dev nlohmann/json.hpp"
  "libfmt-dev fmt/format.h"
  "libtomlplusplus-dev toml++/toml.h"
  "libxxhash-dev xxhash.h"
  "libeigen3-dev eigen3/Eigen/src/Core/util/Macros.h"
  "libgtest-dev gtest/gtest.h"
)
# If one of these is missing, the script only warns. Without libtorch the training engine is not built, without Gloo it has one
# CPU rank, without OpenBLAS it is slow. Without Ceres `copus validate` cannot calibrate, without SentencePiece `copus data` has
# only the byte tokenizer, without Google Benchmark there are no benches. Without python3-torch the engine is not tested against
# PyTorch, without clang the fuzz targets are not built.
optional=(
  "libopenblas0-openmp -"
  "libceres-dev ceres/version.h"
  "libsentencepiece-dev sentencepiece_processor.h"
  "libbenchmark-dev benchmark/benchmark.h"
  "clang clang++"
  "libclang-rt-dev libFuzzer"
)
with_torch=(
  "libtorch-dev ATen/Version.h"
  "libgloo-dev gloo/config.h"
  "python3-torch -"
)

# The distribution and its version, for example "ubuntu 24.04". Tests set OS_RELEASE.
release=$(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && printf '%s %s' "${ID:-}" "${VERSION_ID:-}") || release=''
lacks_torch=no
if [[ $torch == yes ]]; then
  case "$release" in
    "ubuntu 23."* | "ubuntu 24."*) lacks_torch=yes ;;
    *) optional+=("${with_torch[@]}") ;;
  esac
fi
# Without root the script unpacks only needed libraries, so the tools must be there already.
[[ -z $prefix ]] || optional=()
needed=("${tools[@]}" "${libraries[@]}" "${extra[@]}")

installed_by_dpkg() {
  command -v dpkg-query >/dev/null 2>&1 &&
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# Whether a command is on PATH, the compiler finds a header, or clang has its fuzzing library. "-": only dpkg can tell.
usable() {
  case "$1" in
    -) false ;;
    libFuzzer) compgen -G "$(clang++ -print-resource-dir 2>/dev/null)/lib/*/libclang_rt.fuzzer*" >/dev/null ;;
    *.h | *.hpp)
      command -v g++ >/dev/null 2>&1 &&
        CPATH="${prefix:+$prefix/usr/include:}${CPATH:-}" g++ -x c++ -E -include "$1" /dev/null >/dev/null 2>&1
      ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

# Prints the packages of these entries that dpkg does not know and whose command or header is not there.
missing_of() {
  local entry package probe
  for entry in "$@"; do
    read -r package probe <<<"$entry"
    installed_by_dpkg "$package" || usable "$probe" || printf '%s\n' "$package"
  done
}

as_root=()
may_install() {
  [[ "$(id -u)" -ne 0 ]] || return 0
  as_root=(sudo)
  command -v sudo >/dev/null 2>&1 && return 0
  say "not root, and there is no sudo: --prefix FOLDER (make build DEPS_PREFIX=FOLDER) needs neither"
  return 1
}

apt_install() {
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install --yes --quiet --no-install-recommends "$@")
  # Package lists may be absent (a fresh container) or stale: refresh them only when the first try fails.
  "${install[@]}" || { "${as_root[@]}" apt-get update --quiet && "${install[@]}"; } || {
    say "apt-get failed (offline?)"
    return 1
  }
}

# Downloads the packages and their dependencies, and unpacks them into $prefix. It needs no root and does not change the system.
unpack() {
  local packages=() debs
  mapfile -t packages < <(apt-get install --simulate --no-install-recommends "$@" 2>/dev/null | sed -n 's/^Inst \([^ ]*\).*/\1/p')
  debs=$(mktemp -d)
  if [[ ${#packages[@]} -gt 0 ]] && (cd "$debs" && apt-get download --quiet "${packages[@]}" 2>&1); then
    mkdir -p "$prefix"
    for deb in "$debs"/*.deb; do dpkg-deb --extract "$deb" "$prefix"; done
  else
    say "apt-get download failed (offline, or its lists are missing: apt-get update needs root)"
  fi
  rm -rf "$debs"
}

list_elsewhere() {
  say "elsewhere, install g++ 12 or clang 14 or later, CMake 3.25 or later, Ninja, Python 3, and the libraries
  CLI11, nlohmann-json 3.11, fmt, toml++ 3, xxHash 0.8, Eigen 3.4, GoogleTest; then run make again.
  By these names, on which nobody has built Copus yet:
    Fedora: dnf install gcc-c++ cmake ninja-build python3 cli11-devel json-devel fmt-devel tomlplusplus-devel xxhash-devel eigen3-devel gtest-devel
    Arch: pacman -S gcc cmake ninja python cli11 nlohmann-json fmt tomlplusplus xxhash eigen gtest
    conda-forge, without root: cxx-compiler cmake ninja cli11 nlohmann_json fmt tomlplusplus xxhash eigen gtest
  docs/install.md says how to go on from there, and how to build with PyTorch's libtorch."
}

mapfile -t missing_needed < <(missing_of "${needed[@]}")
mapfile -t missing_optional < <(missing_of "${optional[@]}")
missing=("${missing_needed[@]}" "${missing_optional[@]}")
[[ ${#missing[@]} -eq 0 ]] && exit 0

say "missing: ${missing[*]}"
if ! command -v apt-get >/dev/null 2>&1; then
  say "no apt-get here: Copus is built and tested on Debian 12"
elif [[ -n $prefix ]]; then
  mapfile -t missing_libraries < <(missing_of "${libraries[@]}")
  [[ ${#missing_libraries[@]} -eq 0 ]] || unpack "${missing_libraries[@]}" >&2
elif may_install; then
  [[ ${#missing_needed[@]} -eq 0 ]] || apt_install "${missing_needed[@]}" >&2 || true
  # apt-get installs nothing if it does not know one of the packages. So the optional packages have their own command, and if
  # that fails, another one without the packages that this release does not have.
  if [[ ${#missing_optional[@]} -gt 0 ]] && ! apt_install "${missing_optional[@]}" >&2; then
    known=()
    for package in "${missing_optional[@]}"; do
      if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); fi
    done
    if [[ ${#known[@]} -gt 0 && ${#known[@]} -lt ${#missing_optional[@]} ]]; then apt_install "${known[@]}" >&2 || true; fi
  fi
fi

mapfile -t missing_needed < <(missing_of "${needed[@]}")
mapfile -t missing_optional < <(missing_of "${optional[@]}")
if [[ ${#missing_optional[@]} -gt 0 ]]; then
  say "going on without ${missing_optional[*]}: what needs them is left out"
fi
if [[ $lacks_torch == yes ]]; then
  say "Ubuntu 24.04 has no libtorch-dev: copus train needs a wheel of PyTorch, make build TORCH=python3 (docs/install.md)"
fi
if [[ ${#missing_needed[@]} -gt 0 ]]; then
  say "still missing: ${missing_needed[*]}"
  if command -v apt-get >/dev/null 2>&1; then
    say "with a network: apt-get install ${missing_needed[*]}"
  else
    list_elsewhere
  fi
  exit 1
fi
