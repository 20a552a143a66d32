# `make demo` and `make test` install what they need.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
MLFLOW := .venv-mlflow
INSTALL := -m pip install --quiet --no-compile

# Installation does not compile byte code, to be quick. Python must be allowed to cache it, or every process compiles again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo federation test test-slow sites ray lint format docs docs-serve notebooks bench wheels wheelhouse constraints clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## Train on handwritten digits across five clients without labels (a minute; the first installation takes longer)
	$(BIN)/fedul demo

federation: $(VENV)/.flower ## Train on the digits across five Flower sites on this machine (two to three minutes)
	$(BIN)/fedul federation demo

test: $(VENV)/.dev ## Run all checks: style, types, import layers, tests (a few minutes)
	$(MAKE) --no-print-directory lint
	$(BIN)/pytest

test-slow: $(VENV)/.dev $(MLFLOW)/.ready ## Run the tests that take a minute or more each, after 'make test'
	$(BIN)/pytest -m long

sites: $(VENV)/.dev ## Run only the test of real sites: killed sites, invalid updates, a killed coordinator (three minutes)
	$(BIN)/pytest -n 0 tests/end_to_end/test_federation.py

ray: $(VENV)/.ray ## Run only the tests of grids on Ray: a cluster of two nodes, a killed worker, Ctrl-C (two minutes)
	$(BIN)/pytest -n 0 tests/end_to_end/test_ray.py

lint: $(VENV)/.dev ## Check style, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Format the code and apply automatic fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.dev ## Build the documentation site into site/; a warning is an error (half a minute)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.dev ## Show the documentation site on http://127.0.0.1:8000, and again after every change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --no-strict --dev-addr 127.0.0.1:8000

notebooks: $(VENV)/.dev ## Execute the notebooks and write them with their outputs (some minutes)
	$(BIN)/python notebooks/build.py

bench: $(BENCH)/.ready ## Measure speed and memory, also of other simulators (half an hour on an idle machine)
	$(BENCH)/bin/python benchmarks/speed.py --json docs/results/speed.json --plots docs/results/figures
	$(BENCH)/bin/python benchmarks/many_clients.py
	$(BENCH)/bin/python benchmarks/memory.py
	$(BENCH)/bin/python benchmarks/startup.py

wheels: $(VENV)/.dev ## Build the wheel and the source distribution into dist/, and check them
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*

wheelhouse: | $(BIN)/python ## Collect all wheels for an installation without network: make wheelhouse EXTRAS=flower,privacy
	$(BIN)/python tools/wheelhouse.py wheelhouse --extras '$(EXTRAS)'

constraints: | $(BIN)/python ## Update constraints.txt to the newest versions that pyproject.toml accepts (a few minutes)
	@set -e; new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(BIN)/python -m venv "$$new"; \
	"$$new/bin/python" $(INSTALL) --editable '.[dev,ray]'; \
	{ grep '^#' constraints.txt; "$$new/bin/python" -m pip freeze --exclude-editable | sed 's/+.*//'; } > "$$new/new.txt"; \
	cat "$$new/new.txt" > constraints.txt

clean: ## Delete the virtual environment, the built site and caches
	rm -rf $(VENV) $(BENCH) $(MLFLOW) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedul needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) -c constraints.txt --editable .
	@touch $@

$(VENV)/.flower: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) -c constraints.txt --editable '.[flower]'
	@touch $@ $(VENV)/.run

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) -c constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.run $(VENV)/.flower

$(VENV)/.ray: $(VENV)/.dev
	$(BIN)/python $(INSTALL) -c constraints.txt --editable '.[dev,ray]'
	@touch $@

# The server of MLflow, for one test: 850 MB, and it needs an older pyarrow.
$(MLFLOW)/.ready: constraints.txt | $(BIN)/python
	$(BIN)/python -m venv $(MLFLOW)
	$(MLFLOW)/bin/python $(INSTALL) "mlflow==$$(sed -n 's/^mlflow-skinny==//p' constraints.txt)"
	@touch $@

# Other simulators pin their dependencies, so they have a separate environment; pfl needs an older NumPy, and that an older pyarrow.
$(BENCH)/.ready: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m venv $(BENCH)
	grep -vE '^(numpy|pyarrow|dp-accounting|absl-py)==' constraints.txt > $(BENCH)/constraints.txt
	$(BENCH)/bin/python $(INSTALL) -c $(BENCH)/constraints.txt --editable '.[bench]'
	@touch $@
