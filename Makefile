# Everything runs in a virtual environment of its own; the first call sets it up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile

unexport PYTHONDONTWRITEBYTECODE  # else each command under test compiles the sources anew

.PHONY: quickstart test test-all test-browser coverage check fix bench clean

quickstart: $(READY)  ## labelled sentence pairs by the starter model, and a report to look at
	$(BIN)/tilth quickstart --out runs/quickstart
	@echo "To call tilth without its path: source $(BIN)/activate"

test: $(READY)  ## the default tests: offline, no GPU, a few minutes
	$(PYTEST)

test-all: $(READY)  ## also those that take minutes
	$(PYTEST) -m ""

test-browser: $(READY)  ## the pages of `tilth view` in chromium, where it is installed
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow tests/view/test_browser.py

coverage: $(READY)  ## the default tests; lines and branches that none of them reaches
	$(PYTEST) --cov --cov-report=term

check: $(READY)  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(READY)  ## what lint and format can mend themselves
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## the engine, training and the bank's search against their peers
	$(BIN)/python benchmarks/generate.py
	$(BIN)/python benchmarks/train_encoder.py
	$(BIN)/python benchmarks/bank.py scan
	$(BIN)/python benchmarks/bank.py many

$(READY): pyproject.toml constraints.txt starter/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group dev --editable ./starter --editable ".[endpoint,index,export,fsmt,storage,view]"
	$(BIN)/python -m compileall -q -j 0 -x /tests/ $(VENV)/lib > /dev/null || true  # pip compiles on one core
	touch $(READY)

clean:  ## remove the environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
