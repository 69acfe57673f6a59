PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: train test test-slow lint

train: $(VENV)/.train
	$(BIN)/python -m rl.train --config=configs/quickstart.py --workdir=runs/quickstart

test: $(VENV)/.test
	$(BIN)/python -m pytest -m "not slow and not vllm"

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m "slow and not vllm"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.test: requirements-test.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	touch $@ $(VENV)/.train
