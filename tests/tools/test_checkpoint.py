"""tools.checkpoint, as a user types it."""

import fcntl
import json
import re
import shutil
import types

import jax.numpy as jnp
import pytest

from rl.checkpoint import Checkpoints
from rl.checksums import CorruptCheckpointError, write_sums
from rl.update.step import TrainState
from tools import checkpoint


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    zero, params = jnp.int32(0), {"embedding": jnp.arange(12.0).reshape(3, 4)}
    counters = dict(updates=jnp.int32(8), skipped=zero, skipped_in_all=zero)
    state = TrainState(params, {"mu": jnp.zeros(3)}, **counters)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=9)
    saves = [(2, True, 0.5), (4, True, None), (6, False, 0.25), (8, False, None)]
    for step, healthy, score in saves:
        checkpoints.save(step, state, {}, healthy=healthy, score=score)
    checkpoints.close()
    # Before the command reads a damaged step again.
    without_wait = types.SimpleNamespace(sleep=lambda seconds: None)
    monkeypatch.setattr(checkpoint, "time", without_wait)
    return tmp_path


def _run(*arguments, status=0):
    assert checkpoint.main([str(a) for a in arguments]) == status


def test_list_says_why_each_is_kept(workdir, tmp_path, capsys):
    out = tmp_path / "out.json"
    _run("list", workdir, "--json", out)
    rows = json.loads(out.read_text())["checkpoints"]
    kept = {row["step"]: row["kept"] for row in rows}
    assert kept == {2: ["best"], 4: ["healthy"], 6: [], 8: ["newest"]}
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"step 2 \| 8 updates \| \d\.\d MB \| ", lines[0])
    assert lines[0].endswith("| healthy | score 0.500 | retained: best")
    assert lines[2].endswith("| unhealthy | score 0.250 | prunable")


@pytest.mark.failure(36)
def test_verify_reads_every_byte_and_names_what_is_damaged(workdir, tmp_path, capsys):
    out = tmp_path / "out.json"
    _run("verify", workdir)
    assert capsys.readouterr().out.count("| intact\n") == 4
    path = workdir / "checkpoints" / "6" / "loop" / "metadata"
    path.write_text(path.read_text() + " ")
    _run("verify", workdir, "--json", out, status=1)
    assert f"step 6: DAMAGED: {path}: wrong SHA-256" in capsys.readouterr().out
    rows = json.loads(out.read_text())["checkpoints"]
    damage = {row["step"]: row["damage"] for row in rows}
    assert damage[6].startswith(str(path)) and not any(damage[s] for s in (2, 4, 8))
    _run("list", workdir)  # reads the records alone


@pytest.mark.failure(141)
def test_parts_that_were_not_merged_are_damage(workdir, capsys):
    manifest = workdir / "checkpoints" / "4" / "state" / "manifest.ocdbt"
    manifest.unlink()
    write_sums(workdir / "checkpoints" / "4")
    _run("verify", workdir, status=1)
    part = manifest.with_name("ocdbt.process_0")
    assert f"step 4: DAMAGED: {part}: was not merged" in capsys.readouterr().out


@pytest.mark.failure(142)
def test_a_step_that_a_run_deletes_meanwhile_is_not_damaged(
    workdir, capsys, monkeypatch
):
    def deleted(path):
        shutil.rmtree(path)
        raise CorruptCheckpointError(f"{path}: missing")

    monkeypatch.setattr(checkpoint, "verify", deleted)
    _run("verify", workdir)
    assert "no checkpoints" in capsys.readouterr().out


@pytest.mark.failure(173)
def test_a_step_that_changes_while_it_is_read_is_read_again(
    workdir, capsys, monkeypatch
):
    gone, size_of = [FileNotFoundError("state/d")], checkpoint.checkpoint.size_of

    def size(path):
        if gone:
            raise gone.pop()
        return size_of(path)

    monkeypatch.setattr(checkpoint.checkpoint, "size_of", size)
    _run("list", workdir)
    assert "DAMAGED" not in capsys.readouterr().out


def test_prune_leaves_the_newest_the_healthy_and_the_best(workdir, capsys):
    folder = workdir / "checkpoints"
    (folder / "10.orbax-checkpoint-tmp").mkdir()
    (folder / "7.damaged").mkdir()
    (folder / "4" / "checksums" / "metadata").write_text("{}")  # unknown: it stays
    _run("prune", workdir, "--keep", 1)
    # With 4 unreadable, 2 is the last one known to be healthy, and the best.
    assert {p.name for p in folder.iterdir()} == {"2", "4", "8"}
    removed = capsys.readouterr().out.splitlines()[0].removeprefix("removed: ")
    expected = ["10.orbax-checkpoint-tmp", "6", "7.damaged"]
    assert sorted(removed.split(", ")) == expected


@pytest.mark.failure(34)
def test_prune_refuses_a_workdir_in_use(workdir, capsys):
    with (workdir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _run("prune", workdir, status=2)
    in_use = f"error: {workdir}: another process writes to this folder"
    assert capsys.readouterr().err.startswith(in_use)
    assert len(list((workdir / "checkpoints").iterdir())) == 4


@pytest.mark.failure(33)
def test_what_cannot_be_done_is_one_line(tmp_path, capsys):
    folder = tmp_path / "checkpoints"
    _run("list", tmp_path, status=2)
    folder.mkdir()
    _run("prune", tmp_path, "--keep", 0, status=2)
    assert capsys.readouterr().err == (
        f"error: {folder}: no such folder; give the workdir of a run with a"
        " checkpoint\nerror: --keep 0: must be at least 1\n"
    )
