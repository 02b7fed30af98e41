.DEFAULT_GOAL := help
.PHONY: help quickstart test test-fast test-long test-oldest test-newest test-compatibility coverage lint types pyright docs dist
.PHONY: conformance clients fuzz generated format clean

PYTHON ?= python3
BIN := .venv/bin
# Compiled files are kept: the tests start many processes.
OFFLINE := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONWARNDEFAULTENCODING=1 PYTHONDONTWRITEBYTECODE=
VERSION = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTEST = python -m pytest --workers auto
SUITE = $(OFFLINE) $(ENVIRONMENT)/bin/$(PYTEST) $(ARGS)

# Wheels only: the oldest version that has one for this Python. UV_TORCH_BACKEND=cpu takes torch without CUDA.
define install
$(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv
build/uv/bin/uv venv --quiet --clear --python $$($(PYTHON) -c 'import sys; print(sys.executable)') $(ENVIRONMENT)
build/uv/bin/uv pip install --quiet --python $(ENVIRONMENT)/bin/python --resolution $(1) \
	--only-binary :all: --no-binary seqeval --editable '.[dev]'
endef

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

quickstart: .venv/installed ## train, evaluate and load a tiny BERT in a few minutes on two CPU cores
	$(BIN)/mybert quickstart --output quickstart --overwrite

test: .venv/installed ## install the dependencies and run the whole test suite
	$(OFFLINE) $(BIN)/$(PYTEST)

test-fast: .venv/installed ## run the quick tests only
	$(OFFLINE) $(BIN)/$(PYTEST) -m "not slow"

test-long: .venv/installed ## run the tests of more than four seconds, which the other targets leave out
	$(OFFLINE) $(BIN)/$(PYTEST) -m long

coverage: .venv/installed ## run the test suite and report line coverage in build/coverage
	$(OFFLINE) $(BIN)/$(PYTEST) --cov --cov-report=term --cov-report=html

test-oldest: ENVIRONMENT = build/environments/oldest-$(VERSION)
test-oldest: ## the test suite with the lowest versions that pyproject.toml allows (PYTHON=python3.12 chooses another)
	$(call install,lowest-direct)
	$(SUITE)

test-newest: ENVIRONMENT = build/environments/newest-$(VERSION)
test-newest: ## the test suite with the newest version of every package
	$(call install,highest)
	$(SUITE)

test-compatibility: ## checkpoints of each environment of test-oldest and test-newest, loaded in all of them
	rm -rf build/checkpoints
	for one in build/environments/*; do \
		$(OFFLINE) $$one/bin/python tests/compatibility/checkpoints.py save build/checkpoints/$${one##*/} || exit 1; done
	status=0; for one in build/environments/*; do \
		$(OFFLINE) $$one/bin/python tests/compatibility/checkpoints.py compare build/checkpoints/* || status=1; \
	done; exit $$status

lint: .venv/installed ## check style and common mistakes with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed ## check type annotations with mypy
	$(BIN)/mypy
	$(BIN)/mypy tests/types/user_script.py

pyright: .venv/installed ## check a user's script with pyright, from an environment of its own
	$(PYTHON) -m venv build/pyright && build/pyright/bin/python -m pip install --quiet basedpyright
	build/pyright/bin/basedpyright --pythonpath $(BIN)/python --project tests/types

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

clients: .venv/installed ## other libraries on a checkpoint; rewrites their table in docs (an hour); CLIENTS="flair setfit" for some
	$(BIN)/python -m pip install --quiet uv
	OMP_NUM_THREADS=1 $(BIN)/python tests/clients/run.py $(CLIENTS)

fuzz: .venv/installed ## malformed inputs for every reader; INPUTS=1000000 takes half an hour
	FUZZ_INPUTS=$(or $(INPUTS),100000) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz --workers auto -o faulthandler_timeout=0

generated: .venv/installed ## write the files that are generated from the settings and from TrainingArguments
	$(BIN)/python tests/common/keyword_types.py
	$(BIN)/ruff format mybert/settings

format: .venv/installed ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that the other targets create
	rm -rf .venv build dist quickstart *.egg-info .coverage* .pytest_cache .ruff_cache .mypy_cache

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@# without a GPU the smaller torch for CPUs, from PyTorch's own index if it can be reached
	command -v nvidia-smi >/dev/null || $(BIN)/python -m pip install --quiet --retries 0 --timeout 10 \
		--constraint constraints.txt torch --index-url https://download.pytorch.org/whl/cpu 2>/dev/null || true
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
