.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

help:  ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | awk -F'\t' '{printf "make %-12s %s\n", $$1, $$2}'

# One environment; each stamp says which extras are in it.
$(BIN)/%.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

quickstart: $(BIN)/offline.installed  ## Install, and fine-tune a pretrained network on 100 images, offline
	$(BIN)/deelbo quickstart

install: $(BIN)/test.installed  ## Make a virtual environment with everything for development

lint: install  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install  ## Check types
	$(BIN)/mypy

# The tests of a file share what is made once, such as a started Ray, so they stay in one process.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test: install  ## Run the tests
	$(PYTEST)

test-fast: install  ## Run the quick tests: what to run after each change
	$(PYTEST) -m "not slow"

docs: $(BIN)/docs.installed  ## Build the documentation site in site/; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint types test docs  ## All of these; what CI runs

# The wheel is built from the sdist, so both are used. The environment has nothing but the wheel and what it asks for.
BARE := build/bare

dist: $(BIN)/release.installed  ## Build wheel and sdist in dist/, check them, and try the wheel in a bare environment
	rm -rf dist $(BARE)
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python -m pip install --quiet dist/*.whl
	$(BARE)/bin/python -I examples/attach.py

format: install  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

example: install  ## The objective in a loop of one's own, on scikit-learn's digits
	$(BIN)/python examples/digits.py

benchmark: install  ## Measure the cost of a training step (about 10 minutes)
	$(BIN)/python benchmarks/step_overhead.py

clean:  ## Remove the virtual environment, caches and what was built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help quickstart install lint types test test-fast docs check dist format example benchmark clean
.SECONDARY:
