# The trainer on NVIDIA GPUs, and vLLM's server in an environment of its own, where
# config.rollout.vllm.python looks for it. CUDA's libraries come with the packages; the
# host has a driver of 580 or newer and NVIDIA's container toolkit.
#
#   docker build -t compass-thinker .           (--build-arg VLLM=no: the trainer alone)
#   docker run --gpus all --shm-size=32g -v $PWD/runs:/compass/runs compass-thinker \
#       rl.train --config=configs/quickstart.py --workdir=runs/quickstart
FROM python:3.11-slim-bookworm

# Triton compiles vLLM's kernels where they run, with the system's C compiler.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /compass
COPY requirements* pyproject.toml README.md LICENSE ./

ARG VLLM=yes
RUN if [ "$VLLM" = yes ]; then \
      python -m venv .venv-vllm \
      && .venv-vllm/bin/pip install --no-cache-dir -r requirements-vllm.txt; \
    fi

RUN pip install --no-cache-dir --require-hashes -r requirements.lock \
    && pip install --no-cache-dir -r requirements.txt -r requirements-gpu.txt

COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .

ENTRYPOINT ["python", "-m"]
