# Each target does all of its own set-up: a virtual environment with the pinned versions of constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
export TWOFOLD_DATA ?= $(abspath ../shared/data)

.PHONY: demo check test bench settings format clean

demo: $(READY)
	$(BIN)/twofold demo

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Tests that load other engines than torch run in processes of their own.
ENGINES := tests/runtime tests/exporting tests/docs tests/cli/test_export.py

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup $(addprefix --ignore=,$(ENGINES))
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 $(ENGINES)

# The long and real-data forms of the tests, then every benchmark, with what they are held against.
bench: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench,tensorflow]'
	OMP_NUM_THREADS=1 $(BIN)/pytest -m bench
	for program in benchmarks/[a-z]*.py; do $(BIN)/python $$program || exit 1; done

# docs/settings.md, from the docstrings of the settings.
settings: $(READY)
	$(BIN)/python -m twofold.recipe.reference > docs/settings.md

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

# torch first: whatever depends on it must find the pinned build and not fetch another.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[audio,datasets,default,dev,fast,plot,serve,tensorboard]'
	touch $(READY)
