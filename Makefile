# Everything a newcomer needs: `make demo` and `make test` set up what they use by themselves.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench

# Installation compiles nothing, to be quick; where Python may not keep what it compiles, every process would do it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo federation test sites lint format bench clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## Train on handwritten digits across five clients without one label (a minute; the first time sets up, a few more)
	$(BIN)/fedul demo

federation: $(VENV)/.flower ## Train on the digits across five sites on this machine, over Flower (two or three minutes)
	$(BIN)/fedul federation demo

test: $(VENV)/.dev ## Run all checks: lint, types, import rule, tests (a few minutes)
	$(MAKE) --no-print-directory lint
	$(BIN)/pytest

sites: $(VENV)/.dev ## Of these, only the test of real sites: kills, lies and a lost coordinator (three minutes)
	$(BIN)/pytest -n 0 tests/end_to_end/test_federation.py

lint: $(VENV)/.dev ## Check style, types and the import rule
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Bring the code into its form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(BENCH)/.ready ## Measure speed and memory, against other simulators too (half an hour on a quiet machine)
	$(BENCH)/bin/python benchmarks/speed.py --json docs/results/speed.json --plots docs/results/figures
	$(BENCH)/bin/python benchmarks/many_clients.py
	$(BENCH)/bin/python benchmarks/memory.py
	$(BENCH)/bin/python benchmarks/startup.py

clean: ## Delete the virtual environment and caches
	rm -rf $(VENV) $(BENCH) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedul needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	@touch $@

$(VENV)/.flower: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[flower]'
	@touch $@ $(VENV)/.run

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@touch $@ $(VENV)/.run $(VENV)/.flower

# Other simulators pin what they need, so they have an environment of their own.
$(BENCH)/.ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --no-compile --editable '.[bench]'
	@touch $@
