.DEFAULT_GOAL := help
.PHONY: help quickstart test test-fast coverage lint types docs dist conformance fuzz format clean

PYTHON ?= python3
BIN := .venv/bin
OFFLINE := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: .venv/installed ## train, evaluate and load a small BERT in a few minutes on two CPU cores
	$(BIN)/mybert quickstart --output quickstart --overwrite

test: .venv/installed ## install the dependencies and run the whole test suite
	$(OFFLINE) $(BIN)/python -m pytest -n auto --dist loadfile

test-fast: .venv/installed ## run the quick tests only
	$(OFFLINE) $(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

coverage: .venv/installed ## run the test suite and report line coverage in build/coverage
	$(OFFLINE) $(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report=term --cov-report=html

lint: .venv/installed ## check style and common mistakes with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed ## check type annotations with mypy
	$(BIN)/mypy

docs: .venv/installed ## build the documentation into build/docs; warnings are errors
	$(OFFLINE) $(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going -q docs build/docs
	@echo "open build/docs/index.html"

dist: .venv/installed ## build wheel and sdist into dist/, install the wheel in a new environment and run it
	rm -rf dist build/lib  # setuptools would pack stale files
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tests/docs/check_dist.py dist

conformance: .venv/installed ## transformers' own model tests, for BERT and MyBERT side by side (downloads its sources)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[conformance]'
	$(BIN)/python tests/conformance/run.py build/conformance

fuzz: .venv/installed ## malformed inputs for every reader; INPUTS=1000000 takes half an hour
	FUZZ_INPUTS=$(or $(INPUTS),100000) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz -n auto

format: .venv/installed ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that the other targets create
	rm -rf .venv build dist quickstart *.egg-info .coverage* .pytest_cache .ruff_cache .mypy_cache

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
