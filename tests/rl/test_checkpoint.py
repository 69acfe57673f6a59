"""Checkpoints: damaged, half-written, without space, rotated."""

import collections
import concurrent.futures
import contextlib
import json
import os
import random
import resource
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint._src.metadata.checkpoint import (
    _NonBlockingMetadataStore as NonBlocking,
)

from models.decoder import Decoder, init_params
from rl import checkpoint, checksums
from rl.checkpoint import Checkpoints, load_run_params
from rl.checksums import CorruptCheckpointError, verify, write_sums
from rl.update.examine import NotFinite
from rl.update.optimizer import make_optimizer
from rl.update.step import TrainState, make_step
from tests.meshes import mesh_of
from tests.models.reference import config_of
from tests.rl.update.test_step import OBJECTIVE, OPTIMIZER

pytestmark = pytest.mark.usefixtures("quick_compilation")

CONFIG = config_of()
LOOP = {"seeds": 12, "left": [{"dtype": "float32", "data": "AACAPwAAgD8="}]}


def _make(keeps_reference=False, **shape):
    mesh = mesh_of(**shape)
    model = Decoder(CONFIG, mesh=mesh)
    objective = OBJECTIVE._replace(keeps_reference=keeps_reference)
    optimizer = make_optimizer(OPTIMIZER)
    step = make_step(model, optimizer, objective, head_chunk=16)
    return step.init(init_params(model, mesh, 0))


@pytest.fixture(scope="module")
def trained():
    return _make(data=2, fsdp=2, tensor=2)


@pytest.fixture(scope="module")
def made():
    """A state of few arrays, for what does not depend on them."""
    params = {"layers": {"up": jax.random.normal(jax.random.key(0), (2, 64, 32))}}
    zero = jnp.int32(0)
    moments = {"mu": params["layers"]["up"] + 1}
    return TrainState(params, moments, updates=zero, skipped=zero, skipped_in_all=zero)


def _abstract(state):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )


@pytest.fixture
def opened(tmp_path):
    """Makes `Checkpoints`, and closes them."""
    made = []

    def make(folder=tmp_path / "c", keep=9, **options):
        made.append(Checkpoints(folder, keep=keep, **options))
        return made[-1]

    yield make
    for checkpoints in made:
        checkpoints.close()


def _saved(folder, state, steps):
    checkpoints = Checkpoints(folder, keep=9)
    for step in steps:
        checkpoints.save(step, state, LOOP | {"at": step})
    checkpoints.close()
    return folder


def _save(checkpoints, step, state, **options):
    checkpoints.save(step, state, LOOP, **options)
    checkpoints.wait()


def _names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def trained_pair(trained, tmp_path_factory):
    """Checkpoints of two steps."""
    return _saved(tmp_path_factory.mktemp("trained") / "c", trained, (1, 2))


@pytest.fixture(scope="module")
def pair(made, tmp_path_factory):
    return _saved(tmp_path_factory.mktemp("pair") / "c", made, (1, 2))


@pytest.fixture
def folder(pair, tmp_path):
    """A copy of them, to be changed."""
    return shutil.copytree(pair, tmp_path / "c")


def test_state_and_loop_come_back_bit_for_bit(trained, tmp_path, opened):
    checkpoints = opened(keep=2)
    for number in (1, 2, 3):
        checkpoints.save(number, trained, {"cursor": number})
    checkpoints.wait()
    assert checkpoints.latest() == 3
    number, restored, loop = checkpoints.restore(_abstract(trained))
    assert (number, loop) == (3, {"cursor": 3})
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(trained), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.sharding == b.sharding
    assert _names(tmp_path / "c") == {"2", "3"}
    abstract = _abstract(trained).params
    number, params = load_run_params(tmp_path / "c", None, abstract)
    assert number == 3
    np.testing.assert_array_equal(params["embedding"], trained.params["embedding"])
    message = r"no checkpoint of step 1; use one of \[2, 3\]"
    with pytest.raises(ValueError, match=message):
        load_run_params(tmp_path / "c", 1, abstract)


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 1, 1)])
def test_any_mesh_reads_it_and_checks_every_tensor(
    trained, trained_pair, opened, shape
):
    other = _make(**dict(zip(("data", "fsdp", "tensor"), shape, strict=True)))
    number, restored, _ = opened(trained_pair).restore(_abstract(other))
    assert number == 2
    jax.tree.map(np.testing.assert_array_equal, restored, trained)


def test_the_state_may_be_donated_while_it_is_written(trained, opened):
    state = jax.tree.map(jnp.copy, trained)
    double = jax.jit(lambda s: jax.tree.map(lambda x: x * 2 + 1, s), donate_argnums=0)
    checkpoints = opened()
    checkpoints.save(1, state, LOOP)
    for _ in range(3):
        state = double(state)
    _, restored, _ = checkpoints.restore(_abstract(trained))
    found, expected = (s.params["embedding"] for s in (restored, trained))
    np.testing.assert_array_equal(found, expected)


# -- damage --------------------------------------------------------------------------


def _flip(path, rng):
    raw = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(raw))
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)


def _files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _largest(folder):
    return max(_files(folder), key=lambda p: p.stat().st_size)


def _is_a_folder(path):
    path.unlink()
    path.mkdir()


def _swap(a, b):
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)


def _from_step_1(name):
    return lambda folder: shutil.copy(folder.with_name("1") / name, folder / name)


def _edit(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# Changes of a file, each done to five of them; and of the folder.
OF_FILES = {
    "missing": lambda p: p.unlink(),
    "emptied": lambda p: p.write_bytes(b""),
    "cut": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "longer": lambda p: p.write_bytes(p.read_bytes() + b"\0"),
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)),
    "a folder": _is_a_folder,
}
FILES = {
    "the record": lambda f: f / checksums.RECORD_FILE,
    "the loop": lambda f: f / checksums.LOOP_FILE,
    "the largest": _largest,
    "Orbax's list": lambda f: f / "state" / "_METADATA",
    "Orbax's manifest": lambda f: f / "state" / "manifest.ocdbt",
}
OF_FOLDERS = {
    "an empty folder": lambda f: (shutil.rmtree(f), f.mkdir()),
    "a file": lambda f: (shutil.rmtree(f), f.write_text("")),
    "no tensors": lambda f: shutil.rmtree(f / "state"),
    "a file more": lambda f: (f / "state" / "more").write_text("1"),
    "two files swapped": lambda f: _swap(*_files(f / "state")[:2]),
    "another step's name": lambda f: (
        shutil.rmtree(f),
        shutil.copytree(f.with_name("1"), f),
    ),
    "another step's loop": _from_step_1(checksums.LOOP_FILE),
    "another step's sums": _from_step_1(checksums.SUMS),
    "another step in the record": lambda f: _edit(f, checksums.RECORD_FILE, step=1),
    "a score without its checksum": lambda f: (f / checksums.SCORE).write_text(
        '{"score": 1.0}'
    ),
    "no sums": lambda f: (f / checksums.SUMS).unlink(),
    "empty sums": lambda f: (f / checksums.SUMS).write_text(""),
    "sums that are no text": lambda f: (f / checksums.SUMS).write_bytes(b"\xff\xfe"),
    "sums that are no sums": lambda f: (f / checksums.SUMS).write_text("\n{}\n"),
    # With sums of the changed files.
    "another loop": lambda f: (_edit(f, checksums.LOOP_FILE, seeds=13), write_sums(f)),
    "a record that is deep": lambda f: (
        (f / checksums.RECORD_FILE).write_text("[" * 100_000),
        write_sums(f),
    ),
    "tensors that cannot be read": lambda f: (
        _flip(_largest(f), random.Random(3)),
        write_sums(f),
    ),
}
CORRUPTIONS = {
    f"{what}: {of}": lambda f, change=change, find=find: change(find(f))
    for what, change in OF_FILES.items()
    for of, find in FILES.items()
} | OF_FOLDERS


@pytest.mark.failure(36)
def test_every_flipped_bit_of_every_file_is_named(folder):
    folder /= "2"
    files, rng = _files(folder), random.Random(0)
    assert len(files) > 10
    for i in range(300):
        path = files[i % len(files)]
        kept = path.read_bytes()
        _flip(path, rng)
        with pytest.raises(CorruptCheckpointError) as caught:
            verify(folder)
        message = str(caught.value)
        assert "\n" not in message and len(message) < 600
        if path.name == checksums.SUMS:  # the line of another file, or its name
            assert message.startswith(f"{folder}/")
        else:
            assert message.startswith(f"{path}: ")
        path.write_bytes(kept)
    verify(folder)


@pytest.mark.failure(36)
def test_a_corrupt_checkpoint_is_set_aside(made, pair, tmp_path, opened, capsys):
    assert len(CORRUPTIONS) >= 40
    for number, (name, change) in enumerate(CORRUPTIONS.items()):
        folder = shutil.copytree(pair, tmp_path / str(number))
        change(folder / "2")
        step, state, loop = opened(folder).restore(_abstract(made))
        assert (step, loop) == (1, LOOP | {"at": 1}), name
        jax.tree.map(np.testing.assert_array_equal, state, made)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 and lines[0].startswith(f"WARNING: {folder}/2"), lines
        assert lines[0].endswith("renamed to 2.damaged, resuming from step 1")
        assert _names(folder) == {"1", "2.damaged"}
        shutil.rmtree(folder)


def test_what_another_process_cannot_read_is_set_aside(
    made, folder, opened, capsys, monkeypatch
):
    answers = iter([True, False])
    monkeypatch.setattr(checkpoint, "_in_any_process", lambda own: next(answers))
    arrays = []
    step, _, _ = opened(folder).restore(
        _abstract(made), make_room=lambda: arrays.append(len(jax.live_arrays()))
    )
    assert step == 1 and arrays[0] == arrays[1]
    line = f"{folder}/2: corrupt in another process; checkpoint renamed"
    assert line in capsys.readouterr().out


@pytest.mark.failure(104)
def test_hidden_files_of_other_programs_are_no_damage(made, folder, opened, capsys):
    (folder / "2" / "loop" / ".ipynb_checkpoints").mkdir()
    for name in (
        *(".DS_Store", "state/._manifest.ocdbt", "loop/.nfs000000000160c011"),
        "loop/.ipynb_checkpoints/metadata-checkpoint",
    ):
        (folder / "2" / name).write_bytes(b"\x00\x05\x16\x07")
    step, _, _ = opened(folder).restore(_abstract(made))
    assert step == 2 and capsys.readouterr().out == ""
    write_sums(folder / "2")
    (folder / "2" / ".DS_Store").unlink()
    verify(folder / "2")


@pytest.mark.failure(36)
def test_with_none_that_is_intact_nothing_is_touched(made, folder, opened):
    for step in ("1", "2"):
        _flip(_largest(folder / step), random.Random(0))
    message = r"none of the checkpoints is intact \(.*; "
    with pytest.raises(CorruptCheckpointError, match=message) as caught:
        opened(folder).restore(_abstract(made))
    assert "\n" not in str(caught.value)
    assert _names(folder) == {"1", "2"}
    with pytest.raises(CorruptCheckpointError, match="wrong SHA-256"):
        load_run_params(folder, 1, _abstract(made).params)


def _another_tensor(folder, trained):
    """One bit of one entry."""
    wrong = trained.params["layers"]["q"].at[0, 3, 0, 0].multiply(-1)
    layers = {**trained.params["layers"], "q": wrong}
    other = trained.replace(params={**trained.params, "layers": layers})
    saved = _saved(folder.with_name("other"), other, (2,))
    shutil.rmtree(folder / "state")
    shutil.copytree(saved / "2" / "state", folder / "state")
    shutil.rmtree(saved)


def _no_tensor(folder, trained):
    path = folder / "state" / "_METADATA"
    content = json.loads(path.read_text())
    del content["tree_metadata"]["('params', 'embedding')"]
    path.write_text(json.dumps(content))


@pytest.mark.failure(36)
@pytest.mark.parametrize(
    "change,message",
    [
        (_another_tensor, "2: tensor params/layers/q: wrong checksum"),
        (_no_tensor, "params/embedding is missing"),
    ],
)
def test_tensors_are_compared_with_what_was_on_the_devices(
    trained, trained_pair, tmp_path, opened, change, message
):
    """Intact files that hold something else than the devices did."""
    folder = shutil.copytree(trained_pair, tmp_path / "c")
    change(folder / "2", trained)
    write_sums(folder / "2")
    verify(folder / "2")
    with pytest.raises(CorruptCheckpointError, match=message):
        load_run_params(folder, 2, _abstract(trained).params)
    assert opened(folder).restore(_abstract(trained))[0] == 1


@pytest.mark.failure(36)
def test_no_memory_is_not_a_corrupt_checkpoint(made, folder, opened, monkeypatch):
    def full(*args, **kwargs):
        cause = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        raise ValueError("cannot read") from cause

    monkeypatch.setattr(checkpoint.ocp.PyTreeCheckpointer, "restore", full)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        opened(folder).restore(_abstract(made))
    assert _names(folder) == {"1", "2"}


def test_another_models_checkpoint_is_not_taken_for_a_corrupt_one(
    trained, trained_pair, opened
):
    abstract = _abstract(trained)
    wider = jax.tree.map(lambda x: x, abstract)
    wider.params["final_norm"] = jax.ShapeDtypeStruct((128,), np.float32)
    with pytest.raises(ValueError, match=r"params/final_norm is float32\[64\], but"):
        opened(trained_pair).restore(wider)
    more = abstract.replace(params={**abstract.params, "head": abstract.updates})
    with pytest.raises(ValueError, match="2: the tensor params/head is missing, but"):
        opened(trained_pair).restore(more)
    assert _names(trained_pair) == {"1", "2"}


# -- saving --------------------------------------------------------------------------


@pytest.mark.failure(31)
def test_a_half_written_checkpoint_is_passed_over(made, folder, pair, opened):
    # What a kill in the middle of a save leaves behind, and of a removal.
    (folder / "2").rename(folder / "2.orbax-checkpoint-tmp")
    (folder / "2.orbax-checkpoint-tmp" / checksums.SUMS).unlink()
    shutil.copytree(pair / "1", folder / ".deleted" / "0")
    again = opened(folder)
    assert again.latest() == 1
    assert again.restore(_abstract(made))[0] == 1
    _save(again, 2, made)
    assert _names(folder) == {"1", "2"}
    verify(folder / "2")


@pytest.mark.failure(31)
def test_the_sums_are_written_after_all_other_files(
    made, tmp_path, opened, monkeypatch, capsys
):
    update = NonBlocking._update_and_log

    def slow(self, *args, **kwargs):
        time.sleep(0.5)
        update(self, *args, **kwargs)

    monkeypatch.setattr(NonBlocking, "_update_and_log", slow)
    checkpoints = opened()
    _save(checkpoints, 1, made)
    verify(tmp_path / "c" / "1")
    assert "WARNING" not in capsys.readouterr().out
    assert [*tmp_path.rglob(checksums.SUMS)] == [tmp_path / "c" / "1" / checksums.SUMS]


@pytest.mark.failure(31)
def test_a_full_disk_is_noticed_at_once(made, folder, opened, monkeypatch):
    checkpoints = opened(folder)
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    with pytest.raises(OSError, match="a checkpoint needs .* 0.00 GB are free"):
        checkpoints.save(3, made, {})
    assert _names(folder) == {"1", "2"}


@pytest.mark.failure(31)
@pytest.mark.parametrize("noticed", ["check", "save", "close"])
def test_a_disk_that_fills_up_while_saving(
    trained, trained_pair, tmp_path, opened, noticed
):
    folder = shutil.copytree(trained_pair, tmp_path / "c")
    checkpoints = Checkpoints(folder, keep=9)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond this: the system refuses the write, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        checkpoints.save(3, trained, LOOP)
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            other.submit(checkpoints.finish).result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    act = {
        "check": checkpoints.check,
        "save": lambda: checkpoints.save(4, trained, LOOP),
        "close": checkpoints.close,
    }[noticed]
    message = r"c: saving the checkpoint of step 3 failed \(.+\); .* of step 2"
    with pytest.raises(OSError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert checkpoint.steps_in(folder) == {1, 2}
    verify(folder / "2")
    # Once there is room again, it is written, and what was left of the first try goes.
    again = opened(folder)
    for _ in range(20):  # in this process, writes of the first try may not have ended
        with contextlib.suppress(OSError):
            _save(again, 3, trained)
            break
        time.sleep(0.5)
    verify(folder / "3")
    assert _names(folder) == {"1", "2", "3"}
    checkpoints.close()


@pytest.mark.failure(31)
def test_a_failed_save_leaves_no_files(made, folder, opened, monkeypatch):

    def full(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(checksums, "write_sums", full)
    checkpoints = opened(folder)
    checkpoints.save(3, made, LOOP)
    with pytest.raises(OSError, match=r"step 3 failed \(.*No space left on device"):
        checkpoints.wait()
    assert _names(folder) == {"1", "2"}


@pytest.mark.failure(31)
def test_a_folder_that_cannot_be_written_to_is_one_line(made, tmp_path, opened):
    folder = tmp_path / "c"
    folder.write_text("")  # which root may not write into either
    with pytest.raises(OSError) as caught:
        opened(folder).save(1, made, LOOP)
    assert str(folder) in str(caught.value)


@pytest.mark.failure(38)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_is_not_saved(made, tmp_path, opened, value):
    poisoned = made.params["layers"]["up"].at[1, 2, 3].set(value)
    state = made.replace(params={"layers": {"up": poisoned}})
    message = "step 1 is not saved: params.layers.up is not finite in 1 of"
    with pytest.raises(NotFinite, match=message):
        opened().save(1, state, LOOP)
    assert not (tmp_path / "c").exists()


def test_the_last_healthy_and_the_best_stay(made, tmp_path, opened):
    checkpoints = opened(keep=2)
    saves = [(1, True, 0.1), (2, True, 0.6), (3, True, 0.4), (4, True, None),
             (5, False, None), (6, False, 0.5), (7, False, None)]  # fmt: skip
    for step, healthy, score in saves:
        checkpoints.save(step, made, LOOP, healthy=healthy, score=score)
    checkpoints.wait()
    records = checkpoint.records_in(tmp_path / "c")
    reasons = {2: ["best"], 4: ["healthy"], 6: ["newest"], 7: ["newest"]}
    assert checkpoint.retained_steps(records, 2) == reasons
    assert _names(tmp_path / "c") == {"2", "4", "6", "7"}
    # After a restart too.
    checkpoints = opened(keep=2)
    _save(checkpoints, 8, made, healthy=True, score=0.7)
    records = checkpoint.records_in(tmp_path / "c")
    # The newest is all three, and those that were retained for a reason go.
    assert records.keys() == {7, 8}
    assert checkpoint.retained_steps(records, 2)[8] == ["newest", "healthy", "best"]


def test_an_old_one_that_cannot_be_removed(made, folder, opened, monkeypatch, capsys):
    """Such as one whose files another machine still reads."""

    def busy(path):
        raise OSError(16, "Device or resource busy", str(path))

    checkpoints = opened(folder, keep=1)
    monkeypatch.setattr(checkpoint, "remove", busy)
    for step in (3, 4):
        _save(checkpoints, step, made)
    assert _names(folder) == {"4", ".deleted"}
    text = capsys.readouterr().out
    assert text.count(f"WARNING: {folder}: an old checkpoint was not deleted (") == 2
    monkeypatch.undo()
    _save(checkpoints, 5, made)
    assert _names(folder) == {"5"}


def test_a_step_that_is_there_is_not_written_again(made, folder, opened):
    before = (folder / "2" / checksums.RECORD_FILE).read_bytes()
    checkpoints = opened(folder)
    _save(checkpoints, 2, made)
    assert (folder / "2" / checksums.RECORD_FILE).read_bytes() == before


def test_a_score_that_comes_later_makes_it_the_best_one(made, tmp_path, opened):
    folder = tmp_path / "c"
    checkpoints = opened(keep=1)
    for step, score in ((1, 0.5), (2, None)):
        checkpoints.save(step, made, LOOP, score=score)
    checkpoints.record_score(2, 0.6)
    verify(folder / "2")
    assert checkpoint.records_in(folder)[2].score == 0.6
    _save(checkpoints, 3, made)
    assert _names(folder) == {"2", "3"}
    # What a kill in the middle of it leaves.
    (folder / "3" / ".score.json.part").write_text("{")
    assert opened(folder).restore(_abstract(made))[0] == 3


def test_a_checkpoints_size_on_disk_is_as_stated(trained, trained_pair):
    stated = checkpoint.state_bytes(trained.params, make_optimizer(OPTIMIZER))
    arrays = sum(x.nbytes for x in jax.tree.leaves(trained))
    assert stated + 3 * 4 == arrays  # the three counters of the step
    state = _make(keeps_reference=True, data=1)
    dtype = state.reference["embedding"].dtype.name
    more = checkpoint.state_bytes(state.params, make_optimizer(OPTIMIZER), dtype)
    assert more + 3 * 4 == sum(x.nbytes for x in jax.tree.leaves(state)) > arrays
    written = sum(os.path.getsize(p) for p in _files(trained_pair / "2" / "state"))
    assert written < 1.5 * stated + 100_000
    text = checkpoint.describe_cost(91_386_198_148, keep=3, folder=trained_pair)
    sizes = "91.39 GB each, the newest 3 are kept, at most 639.70 GB in total ("
    assert text.startswith(sizes)
    assert text.endswith("; saving takes 91 s at 1 GB/s")
