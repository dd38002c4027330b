# The commands that developers and users type. CMake does the build: see CMakePresets.json.

# The build uses ccache if it is installed. CMake reads this variable the first time that it configures a folder.
ifneq ($(shell command -v ccache 2>/dev/null),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
endif

DEPS := scripts/install_deps.sh
PREFIX ?= /usr/local

# Warnings are errors only if CI is set, and not to 0 or false: a user's compiler may warn of more than those that CI has.
PRESET := $(if $(filter-out 0 false,$(CI)),ci,release)

# TORCH: a folder with libtorch (site-packages/torch), a Python that can import torch, or OFF. A build folder remembers it.
TORCH_PATH = $(if $(wildcard $(TORCH)/.),$(abspath $(TORCH)),$(TORCH))
# DEPS_PREFIX: a folder for libraries. Missing ones are installed there and not into the system, so root is not needed.
DEPS_FLAGS := $(if $(TORCH),--no-torch) $(if $(DEPS_PREFIX),--prefix $(abspath $(DEPS_PREFIX)))
CONFIGURE = cmake --preset $(PRESET) $(if $(TORCH),-DCOPUS_TORCH=$(TORCH_PATH)) \
  $(if $(DEPS_PREFIX),-DCMAKE_PREFIX_PATH=$(abspath $(DEPS_PREFIX))/usr)
FUZZ_SECONDS ?= 30
# Tracked files, and new ones that git does not ignore.
SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cc')

.PHONY: build test install package test-gpu demo bench dev tsan tidy fuzz format format-check clean help

build:  ## build build/bin/copus (the default)
	@$(DEPS) $(DEPS_FLAGS)
	$(CONFIGURE)
	cmake --build --preset $(PRESET)

test: build  ## run every test
	ctest --preset release

install: build  ## install copus, its manual pages and completions to PREFIX (/usr/local)
	@rm -f build/install_manifest*.txt  # cmake could not overwrite a file of another user
	umask 022; cmake --install build --prefix $(abspath $(PREFIX))

package:  ## make build/packages: a .tar.gz, and on Debian and Ubuntu .deb files
	@! command -v dpkg >/dev/null || $(DEPS) $(DEPS_FLAGS) dpkg-dev || \
	  echo "package: going on without dpkg-dev: no .deb is made" >&2
	@$(MAKE) --no-print-directory build
	umask 022; cpack --config build/CPackConfig.cmake

test-gpu:  ## run the tests that need a GPU, on a machine that has one
	@ls /dev/nvidia[0-9]* >/dev/null 2>&1 || { echo "test-gpu: no NVIDIA GPU on this machine" >&2; exit 1; }
	@$(MAKE) build
	ctest --preset release -L gpu

demo: build  ## make a plan, and train a small model that changes its batch and layout while it trains
	scripts/demo.sh build/bin/copus

bench: build  ## measure the speed of prediction, search and training
	@for bench in build/bin/*_bench; do echo "== $$bench"; $$bench || exit 1; done
	@if [ -x build/bin/copus-train ]; then echo "== bench/eager_ratio.py"; bench/eager_ratio.py; fi

dev:  ## build and test under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(DEPS)
	cmake --preset dev
	cmake --build --preset dev
	ctest --preset dev

tsan:  ## build and test under ThreadSanitizer
	@$(DEPS)
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan

tidy:  ## run clang-tidy over every file; a finding is an error
	@$(DEPS) clang clang-tidy
	cmake --preset tidy
	cmake --build --preset tidy

fuzz:  ## fuzz the parsers for FUZZ_SECONDS (30)
	@$(DEPS) clang
	tests/fuzz/run.sh $(FUZZ_SECONDS)

format:  ## clang-format every C++ file in place
	@$(DEPS) clang-format
	clang-format -i $(SOURCES)

format-check:  ## fail when clang-format would change a file
	@$(DEPS) clang-format
	clang-format --dry-run --Werror $(SOURCES)

clean:  ## remove every build folder
	rm -rf build

help:  ## print this list
	@awk -F ':.*##' '/^[a-z-]+:.*##/ {printf "  make %-14s %s\n", $$1, $$2}' Makefile
