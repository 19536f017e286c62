# Each does everything from a fresh clone: `make demo`, `make test`, `make quick`, `make docs`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo tour test quick docs setup installs lint types clean
.DEFAULT_GOAL := demo

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $@

demo: setup
	$(BIN)/attnlab study run demo --slots 2

tour: setup
	$(BIN)/python examples/demo.py

test: setup lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Lint, types and the tests of the rooms that a change reaches; `make quick BASE=main` for a branch.
quick: setup lint types
	$(BIN)/python -m tests.tools.quick $(BASE)

# What users install, each in an environment with nothing else: the package, `study`, `study` with `ray`.
installs: setup
	$(BIN)/python -m tests.tools.installs

docs: setup
	$(BIN)/zensical build --clean --strict
	@echo "The documentation: site/index.html"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist site .cache
