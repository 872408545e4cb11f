# SPDX-License-Identifier: Apache-2.0
# Aliases over CMake. `make train` and `make test` are all that a newcomer needs.
BUILD ?= build/release
DATA ?=
JOBS ?= $(shell nproc)

configure = mkdir -p $(dir $(BUILD)) && \
	{ cmake --preset release $(if $(WERROR),-DTRIREME_WERROR=$(WERROR)) $(if $(PREFIX),-DCMAKE_INSTALL_PREFIX=$(PREFIX)) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }; }
compile = cmake --build --preset release -j$(JOBS)

.PHONY: all deps build train test asan tsan install python deb dist docs clean format

all: build

deps:
	@tools/deps.sh build

# All but the tests: the program, the library, plug-ins, examples.
build: deps
	@$(configure)
	@$(compile) --target product -- --no-print-directory -s

# ResNet-50 at 32x32, an epoch and an evaluation, in under five minutes on 2 cores.
train: build
	@DATA="$(DATA)" tools/train.sh $(BUILD)/trireme

# All tests, in under ten minutes on 2 cores.
test:
	@tools/deps.sh test
	@$(configure)
	@$(compile) -- --no-print-directory -s
	@ctest --test-dir $(BUILD) --output-on-failure -j$(JOBS); ended=$$?; tools/skipped.sh $(BUILD); exit $$ended

# All tests under the address and undefined-behaviour sanitizers, or under the thread sanitizer (ROOMS="comm ps" for some).
asan tsan:
	@tools/deps.sh $(if $(filter tsan,$@),tsan,test)
	@cmake --preset $@ > /dev/null && cmake --build --preset $@ -j$(JOBS) $(if $(ROOMS),--target $(ROOMS:%=tests_of_%)) -- --no-print-directory -s
	@tools/sanitize.sh $@ $(ROOMS)

install: build
	@cmake --install $(BUILD)
	@if [ "$$(id -u)" = 0 ] && [ -z "$(DESTDIR)" ]; then ldconfig; fi # so that programs find libtrireme.so

# The wheel of the Python package in dist/, with all libraries inside. (`pip install ./python` installs it for this machine.)
python: deps
	@tools/python_wheel.sh .

# Debian packages, and the source archive of the commit, in dist/.
deb: deps
	@tools/deb.sh

dist:
	@tools/dist.sh

# The reference: commands as Markdown (from the program's help), public headers as HTML.
docs: build
	@tools/docs.sh . $(BUILD)/docs

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
