.DEFAULT_GOAL := help
.PHONY: help quickstart test lint conformance fuzz format clean

PYTHON ?= python3
BIN := .venv/bin

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: .venv/installed ## the whole life of a small BERT, in a few minutes on two CPU cores
	$(BIN)/mybert quickstart --output quickstart --overwrite

test: .venv/installed ## install what is needed and run the whole suite
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

lint: .venv/installed ## style and obvious mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

conformance: .venv/installed ## transformers' own model tests, for BERT and MyBERT side by side (downloads its sources)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[conformance]'
	$(BIN)/python tests/conformance/run.py build/conformance

fuzz: .venv/installed ## hostile inputs for everything that reads others' files; INPUTS=1000000 takes half an hour
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --inputs $(or $(INPUTS),100000)

format: .venv/installed ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the other targets made
	rm -rf .venv build quickstart *.egg-info .pytest_cache .ruff_cache

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
