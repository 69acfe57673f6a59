"""Real processes: two of four devices do what one of eight does, and end together."""

import contextlib
import json
import shutil
import signal
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from rl.checksums import steps_in
from rollout.vllm.server import free_port
from tests.other_processes import dotted, environment, started
from tests.rl import test_train as runs
from tests.tools.tiny import make_model

# A random model, rewarded for nothing: what is compared are processes.
SETTINGS = {
    "steps": 4,
    "model.maker": "",
    "data": dict(template="{problem}=?", eval=""),
    "reward.function": "tests.rl.examples:parity",
    "dynamic_sampling.filter": False,
    # As many slots as completions of a step: the decode batch becomes smaller once.
    "rollout": dict(group_size=4, slots=16, max_response_tokens=16),
    "checkpoint": dict(every_steps=2, keep=9),
    # Parameters are split over processes too.
    "mesh": dict(data=2, fsdp=-1),
}
# By the leader, while the other waits.
MADE = {
    "model.path": "",
    "model.maker": "rl.problems.arithmetic:make_base",
    "model.maker_args.steps": 10,
}
# Far beyond what a test waits for.
ENDLESS = {"steps": 100_000, "checkpoint.every_steps": 2}


def command(workdir, cache, *, devices, **changes):
    settings = {**dotted(SETTINGS), "model.path": cache / "tiny", **changes}
    settings["mesh.cpu_devices"] = devices
    return runs.command(workdir, cache, **settings)


def by_flags(port):
    """Flags and variables of each of two processes."""
    flags = [f"--coordinator=127.0.0.1:{port}", "--num_processes=2"]
    return [([*flags, f"--process_id={i}"], {}) for i in (0, 1)]


def by_slurm(port):
    """As `srun --ntasks=2` starts them."""
    shared = dict(JOB_ID="7", STEP_NODELIST="localhost", NTASKS="2", STEP_NUM_TASKS="2")
    of_each = [shared | dict(PROCID=str(i), LOCALID=str(i)) for i in (0, 1)]
    slurm = [{f"SLURM_{name}": x for name, x in one.items()} for one in of_each]
    return [([], {"JAX_COORDINATOR_PORT": str(port), **one}) for one in slurm]


@contextlib.contextmanager
def two(arguments, joined=by_flags, of_second=()):
    """Two processes of a run; their errors come through `communicate`."""
    with contextlib.ExitStack() as stack:
        processes = []
        for i, (flags, variables) in enumerate(joined(free_port())):
            command = [*arguments[1:], *flags, *(of_second if i else ())]
            one = started([command], env=environment(**variables))
            processes += stack.enter_context(one)
        yield processes


def _read_until(process, start):
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(process.stderr.read()[-3000:])


def _errors(process):
    return [x for x in process.stderr.read().splitlines() if x.startswith("error: ")]


def _losses(workdir):
    rows = runs._rows(workdir / "metrics.jsonl")
    return {row["step"]: row["policy/loss"] for row in rows if "policy/loss" in row}


def _checkpoint(workdir, step):
    """All arrays of the train state, on the host, by name."""
    folder = workdir.absolute() / "checkpoints" / str(step) / "state"
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.metadata(folder).item_metadata.tree
        numpy = ocp.RestoreArgs(restore_type=np.ndarray)
        args = ocp.args.PyTreeRestore(restore_args=jax.tree.map(lambda _: numpy, tree))
        state = checkpointer.restore(folder, args=args)
    return {
        jax.tree_util.keystr(path): array
        for path, array in jax.tree_util.tree_leaves_with_path(state)
    }


def _assert_same(a, b, step, atol=1e-6):
    """Same losses up to `step`, and the same state there."""
    left, right = _losses(a), _losses(b)
    steps = range(1, step + 1)
    for n in steps:
        assert left[n] == pytest.approx(right[n], abs=1e-6), n
    assert any(abs(left[n]) > 1e-4 for n in steps)
    found, expected = _checkpoint(a, step), _checkpoint(b, step)
    assert found.keys() == expected.keys() and len(found) > 30
    for name, array in found.items():
        how = dict(rtol=0, atol=atol, err_msg=f"{a}: {name}")
        np.testing.assert_allclose(array, expected[name], **how)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    # Two kv heads, for two shards of `tensor`.
    make_model(folder / "tiny", num_attention_heads=4, num_key_value_heads=2)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory, cache):
    """The run by one process of eight devices."""
    workdir = tmp_path_factory.mktemp("alone") / "work"
    runs.run(command(workdir, cache, devices=8))
    return workdir


@pytest.mark.slow
@pytest.mark.ci
def test_two_processes_train_what_one_does(alone, cache, tmp_path):
    workdir = tmp_path / "w"
    with two(command(workdir, cache, devices=4, **ENDLESS)) as (leader, follower):
        # The save of step 4 has waited for that of step 2.
        _read_until(leader, "step 5/")
        follower.kill()
        assert leader.wait(120) == 1
        line = "process 1 died or hangs; see its output, then start all processes again"
        assert _errors(leader) == [f"error: {line}"]
    _assert_same(workdir, alone, 2)


@pytest.mark.slow
@pytest.mark.ci
def test_any_number_of_devices_resumes_after_a_killed_leader(alone, cache, tmp_path):
    killed = tmp_path / "w"
    arguments = command(killed, cache, devices=4, **ENDLESS)
    with two(arguments, by_slurm) as (leader, follower):
        # Killed as soon as it is complete: a fast machine soon saves the next one.
        while 2 not in steps_in(killed / "checkpoints"):
            assert leader.poll() is None, leader.stderr.read()[-3000:]
            time.sleep(0.01)
        leader.kill()
        assert follower.wait(60) != 0
    shapes = [(8, (8, 1, 1)), (8, (2, 2, 2)), (1, (1, 1, 1)), (4, (2, 4, 1))]
    for devices, shape in shapes:
        workdir = shutil.copytree(killed, tmp_path / str(shape))
        mesh = dict(zip(("mesh.data", "mesh.fsdp", "mesh.tensor"), shape, strict=True))
        arguments = command(workdir, cache, devices=devices, **mesh)
        if devices == 4:
            with two(arguments, by_slurm) as processes:
                output = [process.communicate(timeout=300)[0] for process in processes]
                assert [process.returncode for process in processes] == [0, 0]
            assert "step" not in output[1]
        else:
            output = [runs.run(arguments).stdout]
        assert "resuming after step 2" in output[0]
        assert (workdir / "hf" / "model.safetensors").is_file()
        _assert_same(workdir, alone, 4, atol=1e-5)
    # A difference would show: two steps move the parameters by more.
    before, after = _checkpoint(alone, 2), _checkpoint(alone, 4)
    moved = [np.abs(before[k] - x).max() for k, x in after.items() if x.ndim]
    assert max(moved) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("receivers", [(0, 1), (1,)])
def test_a_stop_signal_to_any_process_saves_and_ends_all(cache, tmp_path, receivers):
    workdir = tmp_path / "w"
    with two(command(workdir, cache, devices=4, **MADE, **ENDLESS)) as processes:
        _read_until(processes[0], "step 3/")
        for i in receivers:
            processes[i].send_signal(signal.SIGTERM)
        outputs = [process.communicate(timeout=60) for process in processes]
        codes = [process.returncode for process in processes]
        assert codes == [128 + signal.SIGTERM] * 2, outputs
    assert "SIGTERM: saved after step " in outputs[0][0]
    saved = max(steps_in(workdir / "checkpoints"))
    assert saved >= 3
    last = {**MADE, "steps": saved + 1}
    resumed = runs.run(command(workdir, cache, devices=8, **last))
    assert f"resuming after step {saved}" in resumed.stdout


@pytest.mark.slow
@pytest.mark.ci
def test_a_signal_interrupts_sampling_between_completions(alone, cache, tmp_path):
    """It also keeps the checkpoint of its step, even if one process does not see it."""
    folder = shutil.copytree(cache / "tiny", tmp_path / "long")
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 8192
    (folder / "config.json").write_text(json.dumps(config))
    workdir = shutil.copytree(alone, tmp_path / "w")
    (workdir / "summary.json").unlink()
    before = (workdir / "checkpoints" / "4" / "SHA256SUMS").read_bytes()
    changes = {
        "model.path": folder,
        "data.train": "tests.rl.faults:a_second_process_that_sees_no_checkpoint",
        "rollout.max_response_tokens": 8000,
        "rollout.stop_token_ids": "(1000,)",  # not a token of this model
        "batch.row_lengths": "(8192,)",
        "batch.micro_tokens": 8 * 8192,
        "steps": 6,
    }
    arguments = command(workdir, cache, devices=4, **changes)
    with two([*arguments, "--accept_changes"]) as (leader, follower):
        _read_until(leader, "resuming after step 4")
        time.sleep(2)
        follower.terminate()
        began = time.monotonic()
        assert [leader.wait(60), follower.wait(60)] == [143, 143]
        print(f"both ended after {time.monotonic() - began:.2f} s")
        assert "SIGTERM: saved after step 4" in leader.stdout.read()
    assert (workdir / "checkpoints" / "4" / "SHA256SUMS").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes,of_second,failed,message",
    [
        ({"mesh.data": 3, "mesh.fsdp": 1}, [], 0,
         "config.mesh data=3 fsdp=1 tensor=1: the product is 3, but the number"),
        ({"data.train": "missing.jsonl"}, [], 0,
         "config.data.train='missing.jsonl': missing.jsonl: no such file"),
        ({}, ["--config.rollout.group_size=8"], 1,
         "config.rollout.group_size=8: process 0 has 4"),
        ({"reward.function": "tests.rl.faults:failing_reward"}, [], 0,
         "config.reward.function"),
        ({"data.train": "tests.rl.faults:a_second_process_without_space"}, [], 1,
         "[Errno 28] No space left on device"),
    ],
)  # fmt: skip
def test_an_error_in_one_process_ends_all_with_a_line(
    cache, tmp_path, changes, of_second, failed, message
):
    arguments = command(tmp_path / "w", cache, devices=2, **changes)
    with two(arguments, of_second=of_second) as processes:
        assert [process.wait(120) for process in processes] == [1, 1]
        for index, process in enumerate(processes):
            (line,) = _errors(process)
            named = "" if index == failed else f"process {failed}: "
            assert line.startswith(f"error: {named}{message}"), line
