# Everything a contributor runs; `make help` lists it. Works with GNU make 3.81 (macOS) and later.

# Python 3.11 or later: the first that fits, unless PYTHON= names one.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	if $$p -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
endif

# What pip installs as torch, before everything else; any pip arguments, such as --index-url, may be added.
TORCH ?= torch==2.13.0
VENV ?= .venv
VENV_LOWEST ?= .venv-lowest
DEMO_ARGS ?=
BENCH ?= hat_bart hat_encoder top_down_transformer highlight_transformer coarse_to_fine_lstm ham
BENCH_ARGS ?=
PYTEST_ARGS ?=
# One worker for each core; who has nothing left to do takes from the others. PYTEST_ARGS="-n 0" for none.
PYTEST := -m pytest -n auto --dist worksteal --durations 20
# What `make test` runs: everything, with SLOW=2/5 the second fifth of the slow tests; or with FAMILY=hat_bart that
# family's own files and its cases of what all share.
SLOW ?= 1/1
ifdef FAMILY
TESTED := tests/$(FAMILY) tests/test_*.py tests/hub -k $(FAMILY)
else
TESTED := -m "slow or not slow" --slow-part $(SLOW)
endif
# The fast tests that `make lowest` runs: of what knows other libraries than torch and Transformers, which are there in
# the same versions as elsewhere. Training stands for what is built on it, and on data and metrics. Once the lowest
# Transformers is not the newest any more, it takes LOWEST=tests.
LOWEST ?= $(addprefix tests/,books cli data inspection metrics $(addprefix training/test_,train.py recipes.py))

# What an installation is made of, beside the Python files, which are used where they are.
BUILT := pyproject.toml hatch_build.py $(wildcard hier_models/models/*.[ch])

BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install install-demo demo test test-fast test-slow check lint types spelling docstrings format \
	conformance lowest bench docs build clean distclean FORCE

help: ## Show this list
	@echo "make TARGET [VARIABLE=VALUE ...]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Every target sets up what it needs by itself, in $(VENV). Variables:"
	@echo "  PYTHON         the Python to make it with, 3.11 or later (now: $(PYTHON))"
	@echo "  TORCH          what pip installs as torch (now: $(TORCH)),"
	@echo "                 such as TORCH='torch==2.13.0 --index-url ...' for another build"
	@echo "  BENCH          models to measure: $(BENCH)"
	@echo "  FAMILY         the one family to test: a folder of tests/, such as hat_bart"
	@echo "  SLOW           which of the slow tests to run: 2/5 for the second fifth of them"
	@echo "  DEMO_ARGS, BENCH_ARGS, PYTEST_ARGS   arguments handed on to the command"

demo: install-demo ## Summaries by mini, what they rest on, fine-tuning on real papers, scores (6 minutes)
	$(BIN)/python examples/demo.py $(DEMO_ARGS)

test: $(if $(FAMILY),install,check) ## Every check and every test; with FAMILY=hat_bart the fast tests of one family
	$(BIN)/python $(PYTEST) $(TESTED) $(PYTEST_ARGS)

test-fast: install ## The fast tests only
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS)

test-slow: install ## The slow tests only
	$(BIN)/python $(PYTEST) -m slow $(PYTEST_ARGS)

check: lint types spelling docstrings ## Lint, types, spelling, docstrings

lint: install ## Lint and formatting (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## Types of the package, in strict mode (mypy)
	$(BIN)/mypy

spelling: install ## Spelling (typos)
	$(BIN)/typos

docstrings: install ## Docstring sections against signatures (pydoclint)
	$(BIN)/pydoclint --quiet hier_models

format: install ## Format the code, and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: install ## Transformers' own model tests over our models, beside BART and RoBERTa (fetches them with pip)
	$(BIN)/python tests/conformance/run.py

lowest: $(VENV_LOWEST)/stamp-dev ## Fast tests on the lowest supported versions of our dependencies
	$(VENV_LOWEST)/bin/python $(PYTEST) $(LOWEST) $(PYTEST_ARGS)

bench: install ## Speed and memory against the peers of each model, as tables (GPU wanted)
	for model in $(BENCH); do $(BIN)/python benchmarks/$$model.py $(BENCH_ARGS) || exit 1; done

docs: $(VENV)/stamp-docs ## The site of docs/, in site/: every link and name of the API is checked
	$(BIN)/mkdocs build --strict

build: install ## Wheel, in dist/: of this platform, where a kernel was compiled; CC=false for one of any
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

install: $(VENV)/stamp-dev ## Set up the virtual environment, with everything for development

install-demo: $(VENV)/stamp-demo ## Set up the virtual environment, with what the demo needs

clean: ## Remove caches and what was built or written by the demo; trained models, in runs, stay
	rm -rf build dist site outputs/demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environments and the conformance cache too
	rm -rf .venv .venv-lowest .cache

# Set-up. A stamp file in the virtual environment stands for each step, so that a step runs again only when what it
# depends on has changed: TORCH, pyproject.toml, or what is compiled.
$(VENV)/stamp-created $(VENV_LOWEST)/stamp-created:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later found; name one: make ... PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making a virtual environment in $(@D)"
	@$(PYTHON) -m venv $(@D)
	@touch $@

$(VENV)/stamp-torch: $(VENV)/stamp-created FORCE
$(VENV_LOWEST)/stamp-torch: $(VENV_LOWEST)/stamp-created FORCE
$(VENV)/stamp-torch $(VENV_LOWEST)/stamp-torch:
	@echo "$(TORCH)" | cmp -s - $@ || { \
		echo "Installing $(TORCH) into $(@D)" && $(@D)/bin/python -m pip install --quiet $(TORCH) && echo "$(TORCH)" > $@; }

$(VENV)/stamp-dev: $(VENV)/stamp-torch $(BUILT)
	@echo "Installing hier_models and its development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/stamp-demo: $(VENV)/stamp-torch $(BUILT)
	@echo "Installing hier_models and what its demo needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/stamp-docs: $(VENV)/stamp-torch $(BUILT)
	@echo "Installing hier_models and what builds its site into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

$(VENV_LOWEST)/stamp-dev: $(VENV_LOWEST)/stamp-torch $(BUILT) tests/lowest_versions.py
	@echo "Installing hier_models with the lowest supported versions into $(VENV_LOWEST)"
	@$(VENV_LOWEST)/bin/python tests/lowest_versions.py > $(VENV_LOWEST)/constraints.txt
	@$(VENV_LOWEST)/bin/python -m pip install --quiet --constraint $(VENV_LOWEST)/constraints.txt --editable '.[dev]'
	@touch $@

FORCE:
