# Every target sets up what it needs in .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
LAYOUT := examples/layouts/paddlenlp_llama_pretrain.json

.DEFAULT_GOAL := help
.PHONY: help demo test test-frameworks check lint types contract docs bench facts clean

help:  ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The library alone, as a user has it.  Bytecode is compiled here, so that start-up times are those of an installation.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m compileall -q src
	@touch $@

# torch first and by its exact version: a range would fetch a build for accelerators.
$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/python -m compileall -q src
	@touch $@ $(VENV)/.demo

$(VENV)/.check: pyproject.toml $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[lint,docs]'
	@touch $@

demo: $(VENV)/.demo  ## a real configuration, and one rank of it
	$(BIN)/rankatlas show $(LAYOUT) --world-size 64
	$(BIN)/rankatlas where 37 $(LAYOUT) --world-size 64

test: $(VENV)/.test  ## all tests, with real torch and paddle processes
	$(BIN)/python -m pytest -n 2 --cov=rankatlas.core --cov-fail-under=95 --cov-report=term:skip-covered

# An environment of its own: frameworks bring many packages, and some of them hold others back.  torchtitan and deepspeed
# come without what they need for training, and deepspeed without its operators, which are for accelerators.
$(FRAMEWORKS)/.test: pyproject.toml
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check -e '.[test-frameworks]'
	$(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check --no-deps torchtitan==0.3.0
	DS_BUILD_OPS=0 $(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation deepspeed==0.19.8
	@touch $@

test-frameworks: $(FRAMEWORKS)/.test  ## the adapters, each with its framework as it is installed
	$(FRAMEWORKS)/bin/python -m pytest -n 2 tests/test_live_frameworks.py tests/test_loaders.py

check: lint types contract docs  ## everything but the tests

lint: $(VENV)/.check  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.check  ## mypy, strict
	$(BIN)/mypy

contract: $(VENV)/.check  ## which ring may import which
	$(BIN)/lint-imports

docs: $(VENV)/.check  ## the site, in site/
	$(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.test  ## measure against the peers, which are installed in throw-away environments
	$(BIN)/python benchmarks/run.py --install --json benchmarks/result.json --readme README.md

facts: $(VENV)/.test  ## ask the installed peers again and freeze their answers in tests/golden
	$(BIN)/python tools/freeze_facts.py

clean:  ## remove all environments and outputs
	rm -rf $(VENV) $(FRAMEWORKS) .peers site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
