"""What a sync costs and what the client keeps of the server's speed, in ratios.

Each figure is a median, beside its yardstick in the same run; nothing else should run.
"""

import json
import os
import pathlib
import statistics
import subprocess
import textwrap
import time

import numpy as np
import pytest

from tests.rollout import policies

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = policies.prompts(64, low=32, high=33, vocab=16384)
SAMPLES, TOKENS = 8, 64


def _copy_seconds(count):
    """Writing that many bytes to shared memory and reading them back."""
    data = np.random.default_rng(0).integers(0, 256, count, dtype=np.uint8)
    path = pathlib.Path(f"/dev/shm/copy-{os.getpid()}")
    begin = time.perf_counter()
    path.write_bytes(data)
    path.read_bytes()
    seconds = time.perf_counter() - begin
    path.unlink()
    return seconds


def _sync_seconds(sampler, policy, repeats=7):
    sampler.publish(policy.params, 0)
    found = []
    for version in range(1, repeats + 1):
        policy = policy.changed(version, 0.001)
        for leaf in policy.params["layers"].values():
            leaf.block_until_ready()
        sampler.publish(policy.params, version)
        metrics = sampler.metrics()
        found.append(
            metrics["sampler/write_seconds"] + metrics["sampler/update_seconds"]
        )
    return statistics.median(found)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("m97")
    folder = policies.make_folder(
        tmp / "model", sizes=policies.M97, dtype="bfloat16", scale=0.02
    )
    policy = policies.Policy.load(folder, "bfloat16")
    server = policies.make_server(policy, tmp, max_num_seqs=257)
    sampler = policies.make_sampler(
        policy, tmp, servers=[server], tolerance=0.05, concurrency=256
    )
    sampler.publish(policy.params, 0)
    yield policy, sampler
    sampler.close()


def test_a_sync_costs_little_more_than_a_copy(large, tmp_path_factory, record_property):
    policy, sampler = large
    size = sampler._transport.bytes
    assert 194e6 < size < 195e6
    seconds = _sync_seconds(sampler, policy)
    copy = statistics.median(_copy_seconds(size) for _ in range(7))
    by_size = {size: seconds}
    for layers in (1, 5):
        tmp = tmp_path_factory.mktemp(f"layers{layers}")
        sizes = policies.M97 | {"num_hidden_layers": layers}
        folder = policies.make_folder(
            tmp / "model", sizes=sizes, dtype="bfloat16", scale=0.02
        )
        smaller = policies.Policy.load(folder, "bfloat16")
        other = policies.make_sampler(smaller, tmp, tolerance=0.05)
        try:
            by_size[other._transport.bytes] = _sync_seconds(other, smaller)
        finally:
            other.close()
    slope, fixed = np.polyfit(list(by_size), list(by_size.values()), 1)
    figures = {
        "seconds_by_bytes": by_size,
        "copy_seconds": copy,
        "fixed_seconds": fixed,
        "seconds_per_gigabyte": slope * 1e9,
        "seconds_of_1.5B": fixed + slope * 3.09e9,
        "seconds_of_7B": fixed + slope * 15.2e9,
    }
    print(json.dumps(figures, indent=1))
    record_property("sync", figures)
    assert seconds <= 0.35
    assert seconds <= 2.5 * copy
    for count, taken in by_size.items():
        assert abs(taken - (fixed + slope * count)) <= 0.25 * taken, figures


OFFLINE = """
    import json, sys, time
    from vllm import LLM, SamplingParams
    folder, samples, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    prompts = [{"prompt_token_ids": ids} for ids in json.load(sys.stdin)]
    llm = LLM(folder, dtype="bfloat16", max_model_len=512, max_num_seqs=257,
              enforce_eager=True, skip_tokenizer_init=True, load_format="dummy",
              logprobs_mode="processed_logprobs", generation_config="vllm")
    params = SamplingParams(n=samples, max_tokens=tokens, ignore_eos=True, logprobs=0,
                            temperature=1.0, detokenize=False)
    speeds = []
    for _ in range(3):
        begin = time.perf_counter()
        out = llm.generate(prompts, params, use_tqdm=False)
        count = sum(len(c.token_ids) for o in out for c in o.outputs)
        speeds.append(count / (time.perf_counter() - begin))
    print("speeds", json.dumps(speeds))
"""


def test_the_client_keeps_nine_tenths_of_the_servers_speed(large, record_property):
    policy, sampler = large
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "auto",
    }
    ran = subprocess.run(
        [policies.PYTHON, "-c", textwrap.dedent(OFFLINE)]
        + [str(policy.folder), str(SAMPLES), str(TOKENS)],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        env=environment,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("speeds")]
    assert lines, ran.stderr[-3000:]
    offline = statistics.median(json.loads(lines[0].removeprefix("speeds")))
    ours = []
    for seed in range(3):
        begin = time.perf_counter()
        groups = sampler.sample(PROMPTS, policies.draw(TOKENS, n=SAMPLES), seed=seed)
        count = sum(len(c.token_ids) for group in groups for c in group)
        ours.append(count / (time.perf_counter() - begin))
    figures = {"offline": offline, "ours": statistics.median(ours)}
    print(json.dumps(figures))
    record_property("throughput", figures)
    assert statistics.median(ours) >= 0.9 * offline
