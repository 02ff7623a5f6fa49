# Everything a person or a CI needs. `make quickstart` is the first thing to run on a new machine.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEED ?= 0
MOMENTS ?= 50
JOBS ?= measure distill compile version
FUZZ_EXAMPLES ?= 1000
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

export PYTHONUNBUFFERED = 1
export DVC_NO_ANALYTICS = true
export MLFLOW_DISABLE_TELEMETRY = true
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export ORT_DISABLE_TELEMETRY = 1

.PHONY: help install quickstart browser test gpu-check check docker-check emulation chaos crowd large fuzz lock clean

help:
	@echo "make quickstart   install, pull the shipped dataset, compile a first network on this machine"
	@echo "make install      make $(VENV) from the pinned versions"
	@echo "make browser      install Chromium, in which the tests use MLflow's pages (Debian's package)"
	@echo "make test         install and run the tests"
	@echo "make gpu-check    what needs an NVIDIA GPU, in minutes"
	@echo "make check        lint, formatting and types"
	@echo "make chaos        kill commands at random moments and look at what is left (hours; JOBS, MOMENTS, SEED)"
	@echo "make crowd        eight compiles and two distillations at once against one registry"
	@echo "make large        compile a network of more than 2 GB with external data (16 GB of memory, 12 GB of disk)"
	@echo "make fuzz         thousands of damaged files (five minutes; FUZZ_EXAMPLES of each kind, SEED)"
	@echo "make docker-check run the Dockerfile's steps in a bare Debian, without docker"
	@echo "make emulation    run a package for aarch64 under QEMU (PACKAGE; else SqueezeNet is compiled first)"
	@echo "make lock         write constraints.txt from $(VENV)"
	@echo "make clean        remove what the targets above made, except the data and the registry"

install: $(STAMP)

# mamba-ssm without its CUDA kernels: the parity tests compare with its reference functions.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e '.[dev]'
	MAMBA_SKIP_CUDA_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE $(PIP) --no-build-isolation --no-deps mamba-ssm==2.3.1
	touch $@

build/squeezenet.onnx: $(STAMP)
	$(BIN)/tcl bench export squeezenet -o build

quickstart: install build/squeezenet.onnx
	$(BIN)/tcl data pull
	$(BIN)/tcl up build/squeezenet.onnx -o packages/squeezenet

# Playwright brings no browser from a package registry; Debian does.
browser:
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install --yes --no-install-recommends -qq chromium; \
	  else \
	    echo "the tests need Chromium; install it as an administrator: apt-get install chromium" >&2; exit 1; \
	  fi; }

test: install browser
	$(BIN)/python -m pytest $(TESTS)

gpu-check: install
	$(BIN)/python tests/gpu/check.py

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile

chaos: install
	$(BIN)/python tests/chaos/chaos.py --seed $(SEED) --moments $(MOMENTS) --jobs $(JOBS)

crowd: install
	$(BIN)/python tests/chaos/crowd.py

large: install
	$(BIN)/python tests/chaos/large.py

fuzz: install
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/fuzz --hypothesis-seed=$(SEED) --timeout=3600

# Needs root and Debian's debootstrap. TORCH_INDEX=<index of builds for CPUs> keeps CUDA out of the image.
docker-check: install
	$(BIN)/python .ci/docker_check.py

# Needs Debian's apt-get, but no root: what it downloads stays in build/emulation.
emulation: install
	PYTHON=$(BIN)/python sh tests/emulation/check.sh $(PACKAGE)

lock:
	{ echo "# Exact versions of one resolved environment (Python 3.11). Written by: make lock"; \
	  $(BIN)/pip freeze --all --exclude-editable | grep -v -E '^(pip|mamba.ssm)==' | sed 's/+cpu$$//'; } > constraints.txt

clean:
	rm -rf $(VENV) build packages .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
