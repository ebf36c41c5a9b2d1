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

check: lint types test  ## All of these; what CI runs

format: install  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

example: install  ## The objective in a loop of one's own, on scikit-learn's digits
	$(BIN)/python examples/digits.py

benchmark: install  ## Measure the cost of a training step (about 10 minutes)
	$(BIN)/python benchmarks/step_overhead.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help quickstart install lint types test test-fast check format example benchmark clean
.SECONDARY:
