"""The command itself: what it writes, how it ends, and that it resumes bit for bit."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy
import transformers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 6

SMALL = {
    "steps": STEPS,
    "model.maker_args.held_out": 40,
    "data.train_args.held_out": 40,
    "data.eval_args.held_out": 40,
    "rollout.group_size": 8,
    "rollout.slots": 32,
    "rollout.max_response_tokens": 32,
    "batch.prompts_per_step": 4,
    "batch.prompts_per_update": 2,
    "eval.samples": 2,
    "checkpoint.every_steps": 2,
    "dynamic_sampling.max_rounds": 40,
    "mesh.cpu_devices": 2,
}


def command(workdir, cache, *, config="configs/quickstart.py", **changes):
    settings = {**SMALL, "model.maker_args.cache": str(cache), **changes}
    settings["compiled"] = str(cache / "compiled")
    return [
        sys.executable,
        "-m",
        "rl.train",
        f"--config={config}",
        f"--workdir={workdir}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]


def environment():
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC")}
    return kept | {"PYTHONPATH": str(ROOT)}


def run(arguments, *, check=True):
    done = subprocess.run(
        arguments, cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    if check and done.returncode:
        raise AssertionError(done.stdout[-2000:] + done.stderr[-2000:])
    return done


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """A small run to its end."""
    workdir = tmp_path_factory.mktemp("run") / "work"
    return workdir, run(command(workdir, cache))


def _rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


TIMINGS = ("seconds/", "speed/", "timing/", "sampling/seconds")


def _metrics(workdir):
    return [
        {k: v for k, v in row.items() if not k.startswith(TIMINGS)}
        for row in _rows(workdir / "metrics.jsonl")
    ]


def _weights(workdir):
    return safetensors.numpy.load_file(workdir / "hf" / "model.safetensors")


def _assert_same_run(a, b):
    left, right = _weights(a), _weights(b)
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)
    assert _metrics(a) == _metrics(b)
    assert _rows(a / "samples.jsonl") == _rows(b / "samples.jsonl")


def test_nothing_compiles_after_the_first_steps(finished):
    rows = _rows(finished[0] / "metrics.jsonl")
    compiled = [r["timing/compiled_programs"] for r in rows if "reward/mean" in r]
    assert compiled[0] > 0
    assert compiled[2:] == [0] * (STEPS - 2)


def test_a_run_leaves_what_it_promises(finished, cache):
    workdir, done = finished
    names = {p.name for p in workdir.iterdir()}
    assert names >= {
        "config.json",
        "metrics.jsonl",
        "samples.jsonl",
        "summary.json",
        "tensorboard",
        "checkpoints",
        "hf",
    }
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["steps"] == STEPS and summary["updates"] == 2 * STEPS
    for part in ("base", "final"):
        assert 0 <= summary[part]["accuracy"] <= 1
        assert 0 <= summary[part]["greedy_accuracy"] <= 1
        assert summary[part]["problems"] == 40
    assert f"step {STEPS}/{STEPS}" in done.stdout and "left" in done.stdout
    model = transformers.AutoModelForCausalLM.from_pretrained(workdir / "hf")
    assert model.config.model_type == "qwen2"
    tokenizer = transformers.AutoTokenizer.from_pretrained(workdir / "hf")
    assert tokenizer.decode(tokenizer.encode("12+34?\n")) == "12+34?\n"
    base = next(cache.glob("arithmetic-*")) / "model.safetensors"
    before, after = safetensors.numpy.load_file(base), _weights(workdir)
    assert all((before[k] != after[k]).mean() > 0.5 for k in before)


def test_a_finished_run_says_so_and_is_not_repeated(finished, cache):
    workdir, _ = finished
    before = (workdir / "metrics.jsonl").read_bytes()
    again = run(command(workdir, cache))
    assert "finished already" in again.stdout
    assert (workdir / "metrics.jsonl").read_bytes() == before


def test_tensorboard_opens_the_run(finished):
    workdir, _ = finished
    board = EventAccumulator(str(workdir / "tensorboard"))
    board.Reload()
    tags = set(board.Tags()["scalars"])
    assert tags >= {
        "reward/mean",
        "reward/accuracy",
        "policy/entropy",
        "policy/clipped_low",
        "policy/clipped_high",
        "policy/ratio_mean",
        "policy/ratio_max",
        "policy/kl_old_policy",
        "policy/sampler_gap_mean",
        "policy/sampler_gap_max",
        "policy/old_gap_max",
        "policy/grad_norm",
        "length/all_mean",
        "length/all_p95",
        "length/all_max",
        "length/right_mean",
        "length/wrong_p95",
        "sampling/truncated",
        "sampling/solve_all",
        "sampling/solve_none",
        "sampling/rounds",
        "schedule/learning_rate",
        "schedule/updates",
        "speed/sampling_tokens",
        "speed/update_tokens",
        "seconds/sample",
        "seconds/update",
        "eval/accuracy",
    }
    updates = [(e.step, e.value) for e in board.Scalars("schedule/updates")]
    assert updates == [(s, 2.0 * s) for s in range(1, STEPS + 1)]
    rows = {
        r["step"]: r for r in _rows(workdir / "metrics.jsonl") if "reward/mean" in r
    }
    for event in board.Scalars("reward/mean"):
        assert event.value == pytest.approx(rows[event.step]["reward/mean"], rel=1e-6)
    # float32: the same program scored the tokens, but for rounding.
    assert all(e.value < 1e-5 for e in board.Scalars("policy/old_gap_max"))
    for event in board.Scalars("policy/sampler_gap_max"):
        # Groups left over from the step before were drawn by an older policy.
        assert event.value < 1e-4 or rows[event.step]["sampling/carried"]
    table = board.Tensors("samples/text_summary" if "samples/text_summary" in
                          board.Tags()["tensors"] else "samples")  # fmt: skip
    text = table[-1].tensor_proto.string_val[0].decode()
    assert text.startswith("| problem | completion |") and "boxed" in text


@pytest.mark.failure(30)
@pytest.mark.parametrize(
    "kills,steps", [(2, STEPS), pytest.param(5, 24, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_it_ends_bit_for_bit_the_same(
    finished, cache, tmp_path, kills, steps
):
    whole, _ = finished
    if steps != STEPS:
        whole = tmp_path / "whole"
        run(command(whole, cache, steps=steps))
    rng = random.Random(kills)
    again = tmp_path / "again"
    for _ in range(kills):
        process = subprocess.Popen(
            command(again, cache, steps=steps),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # Somewhere inside a step: a random while after a random line of progress.
        lines = rng.randint(1, 4)
        for line in process.stdout:
            lines -= line.startswith("step ")
            if not lines:
                break
        time.sleep(rng.random())
        process.kill()
        process.wait()
    done = run(command(again, cache, steps=steps))
    assert "resuming after step" in done.stdout
    _assert_same_run(whole, again)


@pytest.mark.failure(35)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_saves_and_says_so_and_the_next_start_resumes(
    finished, cache, tmp_path, number
):
    workdir, _ = finished
    again = tmp_path / "again"
    process = subprocess.Popen(
        command(again, cache, **{"checkpoint.every_steps": 100}),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in process.stdout:
        if line.startswith("step 3/"):
            process.send_signal(number)
            break
    rest = process.stdout.read()
    assert process.wait() == 128 + number, rest
    assert "saving, then stopping" in rest and "Traceback" not in rest
    done = run(command(again, cache))
    assert "resuming after step" in done.stdout
    _assert_same_run(workdir, again)


def test_a_run_without_informative_groups_ends_early_and_leaves_its_model(
    cache, tmp_path
):
    workdir = tmp_path / "w"
    done = run(
        command(
            workdir,
            cache,
            **{
                "reward.function": "tests.rl.examples:wrong",
                "dynamic_sampling.max_rounds": 1,
                "dynamic_sampling.max_shortfalls": 2,
            },
        )
    )
    assert "step 1: too few informative groups, no update" in done.stdout
    assert (
        "ending after step 1: 0 of 4 informative groups after 1 rounds" in done.stdout
    )
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["steps"] == 1 and "max_shortfalls" in summary["ended"]
    assert summary["final"]["accuracy"] == summary["base"]["accuracy"]
    assert _weights(workdir)


@pytest.mark.failure(34)
def test_a_second_run_in_one_workdir_is_refused(cache, tmp_path):
    first = subprocess.Popen(
        command(tmp_path / "w", cache),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in first.stdout:
            if line.startswith("evaluation after step 0"):
                break
        second = run(command(tmp_path / "w", cache), check=False)
        assert second.returncode == 1
        assert second.stderr.strip().endswith("another run is writing there")
    finally:
        first.kill()
        first.wait()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(cache, tmp_path):
    done = run([*command(tmp_path / "w", cache), "--dry_run"])
    assert '"group_size": 8' in done.stdout
    assert "updates per step      2" in done.stdout
    assert "completions per step  32" in done.stdout
    assert "parameters)" in done.stdout
    assert not (tmp_path / "w").exists()


@pytest.mark.failure(33)
@pytest.mark.failure(26)
@pytest.mark.parametrize(
    "changes,message",
    [
        ({"model.maker": "", "model.path": "no/such/model"}, "no/such/model: no such"),
        ({"data.train": "missing.jsonl"}, "missing.jsonl: no such file"),
        ({"rollout.max_response_tokens": 200, "batch.row_lengths": "(256,)"},
         "max_prompt_tokens=8 + config.rollout.max_response_tokens=200 exceed the"
         " model's max_position_embeddings=128"),
        ({"mesh.data": 3}, "mesh data=3 fsdp=1 tensor=1 needs 3 devices, there are 2"),
        ({"batch.prompts_per_update": 3}, "prompts_per_step=4 is no multiple"),
        ({"batch.row_lengths": "(16,)"}, "no row holds"),
        ({"batch.micro_tokens": 64}, "micro_tokens=64: less than one row"),
        ({"objective.aggregation": "mean"}, "objective.aggregation='mean'"),
        ({"rollout.top_p": 0.9}, "config.rollout.top_p=0.9: training needs 1"),
        ({"data.template": "qwen"}, "template='qwen'"),
        ({"reward.function": "nowhere:f"}, "reward.function='nowhere:f'"),
        ({"dynamic_sampling.on_shortfall": "wait"}, "on_shortfall='wait'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(cache, tmp_path, changes, message):
    done = run(command(tmp_path / "w", cache, **changes), check=False)
    assert done.returncode == 1, done.stdout
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("error: ") and message in lines[-1], done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "w").exists()


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "changes,message",
    [
        ({"rollout.grup_size": 4}, "grup_size"),
        ({"rollout.group_size": "many"}, "many"),
    ],
)
def test_an_unknown_or_mistyped_key_is_named(cache, tmp_path, changes, message):
    done = run(command(tmp_path / "w", cache, **changes), check=False)
    assert done.returncode == 1
    assert done.stderr.strip().startswith("error: ") and message in done.stderr
    assert "Traceback" not in done.stderr


def test_training_never_imports_torch():
    code = "import sys, rl.train; assert 'torch' not in sys.modules"
    run([sys.executable, "-c", code])
