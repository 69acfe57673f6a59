"""Records come back bit for bit, are bounded, and never end a run."""

import dataclasses
import json
import os
import shutil
import signal

import numpy as np
import pytest

from configs import base
from rl.batches.packing import pack_groups
from rl.hosts.stopping import Stopped
from rl.types import Batch
from rl.update.hyper import make_hyper
from rl.workdir import recorder
from rl.workdir.proof import write_proof
from rl.workdir.recorder import Recorder, read_journal, read_record, recorded
from tests.rl.examples import make_group

PACK = dict(
    sampler_is_trainer=True,
    advantage="std",
    aggregation="token",
    constant=8,
    prompts_per_update=2,
    row_lengths=(32,),
    micro_tokens=64,
    row_multiple=1,
)


def _step(*, share_prompts=False, seed=0):
    groups = [
        make_group([True, False, True], lengths=[5, 3, 4], seed=seed + i, version=i % 2)
        for i in range(4)
    ]
    packed = pack_groups(groups, version=1, share_prompts=share_prompts, **PACK)
    hypers = [
        make_hyper(
            learning_rate=1e-6 * i,
            eps_low=0.2,
            eps_high=0.28,
            temperature=1.0,
            first_update=i == 0,
        )
        for i in range(2)
    ]
    return groups, packed, hypers


@pytest.fixture
def workdir(tmp_path):
    for name in ("config.json", "manifest.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "config.json").write_text("{}")
    for step in (2, 4):
        folder = tmp_path / "checkpoints" / str(step)
        folder.mkdir(parents=True)
        (folder / "state").write_text(f"of step {step}")
        _prove(tmp_path, step)
    return tmp_path


def _prove(workdir, step, *, healthy=True):
    folder = workdir / "checkpoints" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    write_proof(folder, tensors={}, began=0.0, step=step, healthy=healthy)


def _recorder(workdir, **changes):
    options = base.get_config().recorder.to_dict() | changes
    return Recorder(workdir, workdir / "base", **options)


def _bits(array):
    return array.dtype, array.shape, array.tobytes()


@pytest.mark.parametrize("share_prompts", [False, True])
def test_a_record_is_what_was_given_bit_for_bit(tmp_path, share_prompts):
    groups, packed, hypers = _step(share_prompts=share_prompts)
    # A NaN with a payload, a negative zero: numbers may be equal where bits are not.
    odd = np.array([0x7FC00123, 0x80000000, 0xFF800000], np.uint32).view(np.float32)
    packed[0][0].sampler_logprobs[0, :3] = odd
    path = tmp_path / "7.safetensors"
    recorder.write_record(path, 7, groups, packed, hypers)
    record = read_record(path)
    assert record.step == 7 and len(record.mini_batches) == 2
    for micro, again in zip(packed, record.mini_batches, strict=True):
        for a, b in zip(micro, again, strict=True):
            for field in dataclasses.fields(Batch):
                assert _bits(getattr(a, field.name)) == _bits(getattr(b, field.name))
    for a, b in zip(hypers, record.hypers, strict=True):
        for field in dataclasses.fields(a):
            assert _bits(getattr(a, field.name)) == _bits(getattr(b, field.name))
    assert len(record.drawn) == 12
    assert [d.index for d in record.drawn[:4]] == [0, 1, 2, 0]
    second = record.drawn[4]
    assert (second.problem, second.correct, second.reward) == ("p1", False, -1.0)
    assert second.versions == (1, 1) and second.finish_reason == "stop"


def test_a_step_of_7b_takes_eight_bytes_for_a_token(tmp_path):
    """Its ids and log-probabilities; positions, advantages and masks cost nothing."""
    group = make_group([True, False], lengths=[3000, 2500], prompt=1000)
    packed = pack_groups(
        [group] * 2, version=0, share_prompts=False,
        **PACK | dict(row_lengths=(4096,), micro_tokens=4096),
    )  # fmt: skip
    path = tmp_path / "0.safetensors"
    recorder.write_record(path, 0, [group] * 2, packed, [])
    tokens = sum(b.token_ids.size for micro in packed for b in micro)
    assert path.stat().st_size < 8 * tokens + 20_000


def test_records_reach_back_to_the_last_healthy_checkpoint_and_no_further(workdir):
    _prove(workdir, 5, healthy=False)
    with _recorder(workdir) as kept:
        kept.begin(0)
        for step in range(6):
            kept.record(step, *_step(seed=step))
            kept.updated(step, [{"loss": np.float32(0.1), "sum": {"tokens": 3.0}}])
            kept.published(step + 1, {"params/q": step})
    assert recorded(workdir / "recorder") == [4, 5]
    updates, params = read_journal(workdir / "recorder")
    # float32's 0.1, told exactly.
    assert updates[5] == [{"loss": 0.10000000149011612, "sum": {"tokens": 3.0}}]
    assert sorted(updates) == [4, 5] and sorted(params) == [4, 5, 6]


def test_records_are_bounded_and_the_newest_stay(workdir):
    shutil.rmtree(workdir / "checkpoints")
    with _recorder(workdir) as kept:
        kept.begin(0)
        kept.record(0, *_step())
    size = (workdir / "recorder" / "0.safetensors").stat().st_size
    with _recorder(workdir, max_gb=2.5 * size / 1e9) as kept:
        kept.begin(0)
        for step in range(5):
            kept.record(step, *_step())
    assert recorded(workdir / "recorder") == [3, 4]


def test_nothing_is_kept_where_it_is_switched_off(workdir):
    with _recorder(workdir, max_gb=0) as kept:
        kept.begin(0)
        kept.record(0, *_step())
        assert kept.dump("why") is None
    assert not (workdir / "recorder").exists() and not (workdir / "dumps").exists()


def _dumped(workdir, steps=(4, 5), **changes):
    with _recorder(workdir, **changes) as kept:
        kept.begin(steps[0])
        for step in steps:
            kept.record(step, *_step())
            kept.published(step + 1, {})
        return kept.dump("it went wrong")


def test_a_dump_stands_by_itself(workdir, capsys):
    folder = _dumped(workdir)
    assert folder == workdir / "dumps" / "6"
    assert f"python -m tools.replay {folder}" in capsys.readouterr().out
    about = json.loads((folder / "dump.json").read_text())
    assert (about["step"], about["checkpoint"]) == (6, 4)
    assert about["cause"] == "it went wrong"
    checkpoint = folder / "checkpoints" / "4" / "state"
    # A link: until the rotation takes the other name it costs nothing.
    assert checkpoint.stat().st_ino == (
        (workdir / "checkpoints" / "4" / "state").stat().st_ino
    )
    for name in ("checkpoints", "recorder", "config.json", "assets"):
        os.rename(workdir / name, workdir / f"{name}.gone")
    assert checkpoint.read_text() == "of step 4"
    assert recorded(folder / "recorder") == [4, 5]
    assert (folder / "assets" / "config.json").is_file()
    assert {p.name for p in folder.iterdir()} == {
        "assets", "checkpoints", "config.json", "dump.json", "manifest.json",
        "metrics.jsonl", "recorder",
    }  # fmt: skip


@pytest.mark.parametrize(
    "begun,healthy,checkpoint",
    [
        (4, {5: True}, 5),
        # The fault began before step 5's checkpoint, whose alarms had warned of it.
        (4, {5: False}, 4),
        # Resumed from it: what led to it is not recorded.
        (5, {5: False}, 5),
        # A step later than all that was done is not of this run's past.
        (4, {5: True, 7: True}, 5),
    ],
)
def test_a_dump_begins_before_the_fault_where_the_records_do(
    workdir, begun, healthy, checkpoint
):
    for step, of_step in healthy.items():
        _prove(workdir, step, healthy=of_step)
    folder = _dumped(workdir, steps=range(begun, 6))
    about = json.loads((folder / "dump.json").read_text())
    assert about["checkpoint"] == checkpoint
    assert (folder / "checkpoints" / str(checkpoint)).is_dir()


def test_a_dump_begins_where_the_bound_left_all_records(workdir):
    _prove(workdir, 5, healthy=False)
    size = (_dumped(workdir) / "recorder" / "4.safetensors").stat().st_size
    folder = _dumped(workdir, max_gb=1.5 * size / 1e9)
    assert recorded(folder / "recorder") == [5]
    # From step 4, the last healthy one, it could not be repeated.
    assert json.loads((folder / "dump.json").read_text())["checkpoint"] == 5


def test_a_dump_waits_for_the_save_whose_rotation_takes_its_checkpoint(workdir):
    def settle():
        _prove(workdir, 6)
        for step in (2, 4):
            shutil.rmtree(workdir / "checkpoints" / str(step))

    folder = _dumped(workdir, steps=range(4, 8), settle=settle)
    about = json.loads((folder / "dump.json").read_text())
    assert about["checkpoint"] == 6
    assert (folder / "checkpoints" / "6" / "proof.json").is_file()


def test_a_dump_stays_as_it_was_while_the_run_goes_on(workdir):
    with _recorder(workdir) as kept:
        kept.begin(4)
        kept.record(4, *_step())
        folder = kept.dump("first")
        kept.published(5, {"params/q": 1})
        kept.record(5, *_step())
    assert read_journal(folder / "recorder") == ({}, {})
    assert recorded(folder / "recorder") == [4]


def test_dumps_are_bounded(workdir):
    for step in (4, 5, 6):
        _dumped(workdir, steps=(step,), dumps=2)
    assert {p.name for p in (workdir / "dumps").iterdir()} == {"6", "7"}


def test_an_error_leaves_a_dump_with_its_traceback(workdir):
    with pytest.raises(RuntimeError), _recorder(workdir) as kept:
        kept.begin(4)
        kept.record(4, *_step())
        raise RuntimeError("RESOURCE_EXHAUSTED: out\nof memory")
    about = json.loads((workdir / "dumps" / "5" / "dump.json").read_text())
    assert about["cause"] == "RESOURCE_EXHAUSTED: out of memory"
    assert "test_recorder.py" in about["error"]


def test_a_stop_is_no_error(workdir):
    with pytest.raises(Stopped), _recorder(workdir) as kept:
        kept.begin(4)
        raise Stopped(signal.SIGTERM)
    assert not (workdir / "dumps").exists()


def test_a_recorder_that_cannot_write_says_so_once_and_ends_nothing(workdir, capsys):
    with _recorder(workdir) as kept:
        kept.begin(4)
        kept.record(4, *_step())
        kept._writing.submit(lambda: None).result()
        for path in (workdir / "recorder").iterdir():
            path.unlink()
        (workdir / "recorder").rmdir()
        (workdir / "recorder").write_text("a file is in the way")
        kept.record(5, *_step())
        kept.record(6, *_step())
    warnings = [x for x in capsys.readouterr().out.splitlines() if "WARNING" in x]
    assert len(warnings) == 1 and "the recorder writes no more" in warnings[0]


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, None])
def test_what_is_no_record_is_named(tmp_path, content):
    path = tmp_path / "3.safetensors"
    if content is None:
        recorder.write_record(path, 3, *_step())
        content = path.read_bytes()[:-5]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"3\.safetensors: no record of a step"):
        read_record(path)
