"""Checkpoints that are damaged, half-written, or find no room; and that prove it."""

import collections
import errno
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

from models.config import Qwen2Config
from models.qwen2 import Qwen2, abstract_params, init_params
from rl import checkpoint
from rl.checkpoint import Checkpoints, abstract_state, load_run_params
from rl.update.examine import NotFinite
from rl.update.optimizer import make_optimizer
from rl.update.step import make_step
from rl.workdir.proof import Damaged, read_proof, verify, write_proof
from sharding.mesh import make_mesh
from tests.models.reference import SMALL
from tests.rl.update.test_step import OBJECTIVE, OPTIMIZER

CONFIG = Qwen2Config.from_hf({"model_type": "qwen2", **SMALL})
LOOP = {"seeds": 12, "left": [{"dtype": "float32", "data": "AACAPwAAgD8="}]}


def _make(**shape):
    devices = jax.devices()[: int(np.prod(list(shape.values())))]
    mesh = make_mesh(**shape, devices=devices)
    model = Qwen2(CONFIG, mesh=mesh)
    step = make_step(
        model,
        make_optimizer(**OPTIMIZER),
        mesh,
        OBJECTIVE,
        head_chunk=16,
    )
    return step, step.init(init_params(model, mesh, 0))


@pytest.fixture(scope="module")
def made():
    return _make(data=2, fsdp=2, tensor=2)


def _abstract(made):
    step, state = made
    return abstract_state(state, step.shardings)


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


def _saved(folder, made, steps, **options):
    checkpoints = Checkpoints(folder, keep=9)
    for step in steps:
        checkpoints.save(step, made[1], LOOP, **options)
    checkpoints.close()
    return folder


@pytest.fixture(scope="module")
def pair(made, tmp_path_factory):
    """Checkpoints of two steps."""
    return _saved(tmp_path_factory.mktemp("pair") / "c", made, (1, 2))


def test_state_and_loop_come_back_bit_for_bit(made, tmp_path, opened):
    step, state = made
    checkpoints = opened(keep=2)
    for number in (1, 2, 3):
        checkpoints.save(number, state, {"cursor": number})
    checkpoints.wait()
    assert checkpoints.latest() == 3
    number, restored, loop = checkpoints.restore(_abstract(made))
    assert (number, loop) == (3, {"cursor": 3})
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.sharding == b.sharding
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"2", "3"}
    abstract = _abstract(made).params
    number, params = load_run_params(tmp_path / "c", None, abstract)
    assert number == 3
    np.testing.assert_array_equal(params["embedding"], state.params["embedding"])
    with pytest.raises(ValueError, match=r"no checkpoint of step 1; there: \[2, 3\]"):
        load_run_params(tmp_path / "c", 1, abstract)


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 1, 1)])
def test_any_mesh_reads_it_and_checks_every_tensor(made, pair, tmp_path, opened, shape):
    other = _make(**dict(zip(("data", "fsdp", "tensor"), shape, strict=True)))
    number, restored, _ = opened(pair).restore(_abstract(other))
    assert number == 2
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(made[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_state_may_be_donated_while_it_is_written(made, tmp_path, opened):
    state = jax.tree.map(jnp.copy, made[1])
    double = jax.jit(lambda s: jax.tree.map(lambda x: x * 2 + 1, s), donate_argnums=0)
    checkpoints = opened()
    checkpoints.save(1, state, LOOP)
    for _ in range(3):
        state = double(state)
    _, restored, _ = checkpoints.restore(_abstract(made))
    np.testing.assert_array_equal(
        restored.params["embedding"], made[1].params["embedding"]
    )


# -- damage --------------------------------------------------------------------------


def _flip(path, rng):
    raw = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(raw))
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)


def _content(path):
    return json.loads(path.read_text())


def _canonical(path, content):
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n")


def _change_proof(folder, **changes):
    """As somebody would who does not know of the proof's own digest."""
    path = folder / "proof.json"
    _canonical(path, _content(path) | changes)


def _files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _largest(folder):
    return max(_files(folder), key=lambda p: p.stat().st_size)


def _is_a_folder(path):
    path.unlink()
    path.mkdir()


def _is_a_link(path):
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def _swap(a, b):
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)


def _of_a_file(change):
    return {
        "the proof": lambda f: change(f / "proof.json"),
        "the loop": lambda f: change(f / "loop.json"),
        "the largest": lambda f: change(_largest(f)),
        "Orbax's list": lambda f: change(f / "state" / "_METADATA"),
        "Orbax's manifest": lambda f: change(f / "state" / "manifest.ocdbt"),
    }


# Changes of a file, each done to five of them; and of the folder.
OF_FILES = {
    "missing": lambda p: p.unlink(),
    "emptied": lambda p: p.write_bytes(b""),
    "cut": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "longer": lambda p: p.write_bytes(p.read_bytes() + b"\0"),
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)),
    "a folder": _is_a_folder,
    "a link": _is_a_link,
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
    "another step's loop": lambda f: shutil.copy(
        f.with_name("1") / "loop.json", f / "loop.json"
    ),
    "another step's proof": lambda f: shutil.copy(
        f.with_name("1") / "proof.json", f / "proof.json"
    ),
    "another step in the proof": lambda f: _change_proof(f, step=1),
    "other updates in the proof": lambda f: _change_proof(f, updates=7),
    "another format": lambda f: _change_proof(f, format=2),
    "no files in the proof": lambda f: _change_proof(f, files={}),
    "a proof that is a list": lambda f: _canonical(f / "proof.json", []),
    "a proof that is deep": lambda f: (f / "proof.json").write_text("[" * 100_000),
    "a proof that is no text": lambda f: (f / "proof.json").write_bytes(b"\xff\xfe"),
}
CORRUPTIONS = {
    f"{what}: {of}": change
    for what, of_file in OF_FILES.items()
    for of, change in _of_a_file(of_file).items()
} | OF_FOLDERS


def _assert_named(message, folder):
    assert "\n" not in message and len(message) < 600
    assert message.startswith(str(folder)), message


@pytest.mark.failure(36)
def test_every_flipped_bit_is_named_and_the_checkpoint_before_it_taken(
    pair, tmp_path, opened
):
    folder = shutil.copytree(pair, tmp_path / "c")
    files, rng = _files(folder / "2"), random.Random(0)
    assert len(files) > 10
    checkpoints = opened(folder)
    for i in range(500):
        path = files[i % len(files)]
        kept = path.read_bytes()
        _flip(path, rng)
        with pytest.raises(Damaged) as caught:
            verify(folder / "2")
        assert str(caught.value).startswith(f"{path}: ")
        _assert_named(str(caught.value), path)
        damaged = {}
        assert checkpoints._newest_whole(damaged) == 1
        assert damaged.keys() == {2}
        path.write_bytes(kept)
    assert checkpoints._newest_whole({}) == 2


@pytest.mark.failure(36)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_corruption_is_named(pair, tmp_path, name):
    assert len(CORRUPTIONS) >= 40
    folder = shutil.copytree(pair, tmp_path / "c") / "2"
    CORRUPTIONS[name](folder)
    with pytest.raises(Damaged) as caught:
        verify(folder)
    _assert_named(str(caught.value), folder)


def _damage(path, rng, number):
    """The `number`th of all corruptions, then of flips."""
    if number < len(CORRUPTIONS):
        list(CORRUPTIONS.values())[number](path)
    else:
        files = _files(path)
        _flip(files[number % len(files)], rng)


@pytest.mark.failure(36)
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(0, 540, 60), id="some"),
        pytest.param(range(540), id="all", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_loaded(
    made, pair, tmp_path, opened, capsys, numbers
):
    rng = random.Random(1)
    for number in numbers:
        folder = shutil.copytree(pair, tmp_path / str(number))
        _damage(folder / "2", rng, number)
        step, state, loop = opened(folder).restore(_abstract(made))
        assert (step, loop) == (1, LOOP)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(made[1]), strict=True):
            np.testing.assert_array_equal(a, b)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 and lines[0].startswith(f"WARNING: {folder}/2")
        assert lines[0].endswith("set aside as 2.damaged, step 1 is taken")
        assert {p.name for p in folder.iterdir()} == {"1", "2.damaged"}


@pytest.mark.failure(36)
def test_where_a_stop_is_asked_for_nothing_is_touched(made, pair, tmp_path, opened):
    folder = shutil.copytree(pair, tmp_path / "c")
    _flip(_largest(folder / "2"), random.Random(0))
    with pytest.raises(Damaged, match=r"2/state/.*\(checkpoint.on_damage='stop'\)"):
        opened(folder, on_damage="stop").restore(_abstract(made))
    assert {p.name for p in folder.iterdir()} == {"1", "2"}
    # With none that is whole there is nothing to go back to; never to step 0.
    _flip(_largest(folder / "1"), random.Random(0))
    with pytest.raises(Damaged, match="none of 2 checkpoints is whole: .*; ") as caught:
        opened(folder).restore(_abstract(made))
    assert "\n" not in str(caught.value)
    assert {p.name for p in folder.iterdir()} == {"1", "2"}
    with pytest.raises(Damaged, match="its bytes have changed"):
        load_run_params(folder, 1, _abstract(made).params)


def _prove_again(folder, **changes):
    """A proof whose own digests all fit, whatever the files hold."""
    proof = read_proof(folder)
    (folder / "proof.json").unlink()
    arguments = dict(
        tensors=proof.tensors, began=0.0, step=proof.step, updates=proof.updates
    )
    write_proof(folder, **(arguments | changes))


@pytest.mark.failure(36)
def test_tensors_are_held_to_what_was_on_the_devices(made, pair, tmp_path, opened):
    folder = shutil.copytree(pair, tmp_path / "c")
    # Whole files, which say something else than the devices did: one bit of one entry.
    other = Checkpoints(tmp_path / "other", keep=1)
    wrong = made[1].params["layers"]["q"].at[0, 3, 0, 0].multiply(-1)
    layers = {**made[1].params["layers"], "q": wrong}
    other.save(2, made[1].replace(params={**made[1].params, "layers": layers}), LOOP)
    other.close()
    shutil.rmtree(folder / "2" / "state")
    shutil.copytree(tmp_path / "other" / "2" / "state", folder / "2" / "state")
    _prove_again(folder / "2")
    verify(folder / "2")
    with pytest.raises(Damaged, match="2: params/layers/q is not what was saved"):
        opened(folder, on_damage="stop").restore(_abstract(made))
    with pytest.raises(Damaged, match="2: params/layers/q is not what was saved"):
        load_run_params(folder, 2, _abstract(made).params)
    step, _, _ = opened(folder).restore(_abstract(made))
    assert step == 1
    _prove_again(folder / "1", updates=5)
    with pytest.raises(Damaged, match="1: 0 updates, its proof says 5"):
        opened(folder).restore(_abstract(made))


def test_another_models_checkpoint_is_not_taken_for_a_damaged_one(made, pair, opened):
    abstract = _abstract(made)
    wider = jax.tree.map(lambda x: x, abstract)
    wider.params["final_norm"] = jax.ShapeDtypeStruct((128,), np.float32)
    with pytest.raises(ValueError, match=r"params/final_norm is float32\[64\], this"):
        opened(pair).restore(wider)
    more = abstract.replace(params={**abstract.params, "head": abstract.updates})
    with pytest.raises(ValueError, match="2: holds no params/head, unlike this run's"):
        opened(pair).restore(more)
    assert {p.name for p in pair.iterdir()} == {"1", "2"}


# -- saving --------------------------------------------------------------------------


@pytest.mark.failure(31)
def test_a_half_written_checkpoint_is_passed_over(made, pair, tmp_path, opened):
    folder = shutil.copytree(pair, tmp_path / "c")
    # What a kill in the middle of a save leaves behind.
    (folder / "2").rename(folder / ".2.partial")
    again = opened(folder)
    assert again.latest() == 1
    step, _, _ = again.restore(_abstract(made))
    assert step == 1
    again.save(2, made[1], LOOP)
    again.wait()
    assert {p.name for p in folder.iterdir()} == {"1", "2"}


@pytest.mark.failure(31)
def test_a_full_disk_is_noticed_before_anything_is_written(
    made, pair, tmp_path, opened, monkeypatch
):
    checkpoints = opened(shutil.copytree(pair, tmp_path / "c"))
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    with pytest.raises(OSError, match="a checkpoint needs .* 0.00 GB are free"):
        checkpoints.save(3, made[1], {})
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"1", "2"}


@pytest.mark.failure(31)
@pytest.mark.parametrize("noticed", ["check", "save", "close"])
def test_a_disk_that_fills_up_while_saving_is_told_and_leaves_the_last_good_one(
    made, pair, tmp_path, noticed
):
    folder = shutil.copytree(pair, tmp_path / "c")
    checkpoints = Checkpoints(folder, keep=9)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond this: the system refuses the write, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        checkpoints.save(3, made[1], LOOP)
        checkpoints._pending[1].exception(timeout=60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    act = {
        "check": checkpoints.check,
        "save": lambda: checkpoints.save(4, made[1], LOOP),
        "close": checkpoints.close,
    }[noticed]
    message = r"c: the checkpoint of step 3 was not written \(.+\); .* of step 2"
    with pytest.raises(OSError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert checkpoint.steps_in(folder) == {1, 2}
    verify(folder / "2")
    # Once there is room again, it is written, and what was left of the first try goes.
    # Here Orbax is still writing into that; a run has ended by then.
    calm = 0
    while calm < 10:
        partials = list(folder.glob(".*.partial"))
        calm = 0 if partials else calm + 1
        for partial in partials:
            shutil.rmtree(partial, ignore_errors=True)
        time.sleep(0.1)
    (folder / ".3.partial" / "state").mkdir(parents=True)
    again = Checkpoints(folder, keep=9)
    again.save(3, made[1], LOOP)
    again.close()
    verify(folder / "3")
    assert {p.name for p in folder.iterdir()} == {"1", "2", "3"}


@pytest.mark.failure(31)
def test_a_folder_that_cannot_be_written_to_is_one_line(made, tmp_path, opened):
    folder = tmp_path / "c"
    folder.write_text("")  # which root may not write into either
    with pytest.raises(OSError) as caught:
        opened(folder).save(1, made[1], LOOP)
    assert str(folder) in str(caught.value)


@pytest.mark.failure(38)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_is_not_saved(made, tmp_path, opened, value):
    state = made[1]
    poisoned = state.params["layers"]["up"].at[1, 2, 3].set(value)
    layers = {**state.params["layers"], "up": poisoned}
    checkpoints = opened()
    with pytest.raises(NotFinite, match="1 entries of params/layers/up are not finite"):
        checkpoints.save(
            1, state.replace(params={**state.params, "layers": layers}), LOOP
        )
    assert not (tmp_path / "c").exists()


def test_the_last_healthy_and_the_best_stay_outside_the_rotation(
    made, tmp_path, opened
):
    checkpoints = opened(keep=2)
    saves = [(1, True, 0.1), (2, True, 0.6), (3, True, 0.4), (4, True, None),
             (5, False, None), (6, False, 0.5), (7, False, None)]  # fmt: skip
    for step, healthy, score in saves:
        checkpoints.save(step, made[1], LOOP, healthy=healthy, score=score)
    checkpoints.wait()
    proofs = checkpoint.proofs_in(tmp_path / "c")
    assert checkpoint.kept_steps(proofs, 2) == {
        2: ["best"], 4: ["healthy"], 6: ["newest"], 7: ["newest"],
    }  # fmt: skip
    assert proofs.keys() == {2, 4, 6, 7}
    checkpoints.save(8, made[1], LOOP, healthy=True, score=0.7)
    checkpoints.wait()
    proofs = checkpoint.proofs_in(tmp_path / "c")
    # The newest is all three, and those that were kept for a reason go.
    assert proofs.keys() == {7, 8}
    assert checkpoint.kept_steps(proofs, 2)[8] == ["newest", "healthy", "best"]


def test_a_checkpoint_that_is_a_link_is_read_and_its_name_alone_removed(
    made, pair, tmp_path, opened
):
    folder = shutil.copytree(pair, tmp_path / "c")
    (folder / "1").rename(tmp_path / "elsewhere")
    (folder / "1").symlink_to(tmp_path / "elsewhere")
    checkpoints = opened(folder, keep=1)
    verify(folder / "1")
    checkpoints.save(3, made[1], LOOP)
    checkpoints.wait()
    assert {p.name for p in folder.iterdir()} == {"3"}
    assert (tmp_path / "elsewhere" / "proof.json").is_file()


def test_an_old_one_that_cannot_be_removed_costs_no_later_save(
    made, pair, tmp_path, opened, monkeypatch, capsys
):
    """Such as one whose files another machine still reads: the run once ended."""
    folder = shutil.copytree(pair, tmp_path / "c")
    remove = shutil.rmtree

    def busy(path, *args, **kwargs):
        if path.name == ".1.partial":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        remove(path, *args, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", busy)
    checkpoints = opened(folder, keep=1)
    for step in (3, 4):
        checkpoints.save(step, made[1], LOOP)
        checkpoints.wait()
    assert {p.name for p in folder.iterdir()} == {"4", ".1.partial"}
    told = capsys.readouterr().out
    assert told.count(f"WARNING: {folder}/.1.partial: not removed (Device or") == 2
    monkeypatch.undo()
    checkpoints.save(5, made[1], LOOP)
    checkpoints.wait()
    assert {p.name for p in folder.iterdir()} == {"5"}


def test_what_was_set_aside_before_makes_room_for_what_is_now(
    made, pair, tmp_path, opened
):
    folder = shutil.copytree(pair, tmp_path / "c")
    (folder / "2.damaged").write_text("a file")
    (folder / "2" / "loop.json").unlink()
    assert opened(folder).restore(_abstract(made))[0] == 1
    assert (folder / "2.damaged" / "proof.json").is_file()


def test_a_step_that_is_there_is_not_written_again(made, pair, tmp_path, opened):
    folder = shutil.copytree(pair, tmp_path / "c")
    before = (folder / "2" / "proof.json").read_bytes()
    checkpoints = opened(folder)
    checkpoints.save(2, made[1], LOOP)
    checkpoints.wait()
    assert (folder / "2" / "proof.json").read_bytes() == before


def test_a_score_that_comes_later_makes_it_the_best_one(made, tmp_path, opened):
    checkpoints = opened(keep=1)
    for step, score in ((1, 0.5), (2, None)):
        checkpoints.save(step, made[1], LOOP, score=score)
    # What a kill in the middle of it leaves.
    (tmp_path / "c" / ".2.proof.partial").write_text("{")
    checkpoints.record_score(2, 0.6)
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"2"}
    assert verify(tmp_path / "c" / "2").score == 0.6
    (tmp_path / "c" / ".2.proof.partial").write_text("{")
    checkpoints.save(3, made[1], LOOP)
    checkpoints.wait()
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"2", "3"}
    assert checkpoints.restore(_abstract(made))[0] == 3


def test_what_a_checkpoint_of_7b_costs_is_said_beforehand(pair, tmp_path):
    qwen = Qwen2Config.from_hf(
        dict(
            model_type="qwen2", vocab_size=152_064, hidden_size=3584,
            intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28,
            num_key_value_heads=4, max_position_embeddings=4096, rope_theta=1e4,
            rms_norm_eps=1e-6, tie_word_embeddings=False,
        )
    )  # fmt: skip
    shapes, _ = abstract_params(Qwen2(qwen))
    nbytes = checkpoint.state_bytes(shapes, make_optimizer(**OPTIMIZER))
    # 7,615,616,512 parameters, twice as many moments, and Adam's count.
    assert nbytes == 12 * 7_615_616_512 + 4
    text = checkpoint.describe_cost(nbytes, keep=3, dumps=2, folder=tmp_path / "none")
    assert text.startswith("91.39 GB each, 3 newest kept, 731.10 GB at most (")
    assert text.endswith("; a stop needs 91 s to save, at 1 GB/s")
    proof = read_proof(pair / "2")
    rate = proof.bytes / proof.seconds
    text = checkpoint.describe_cost(nbytes, keep=3, dumps=2, folder=pair)
    assert f"needs {nbytes / rate:,.0f} s to save" in text and "of step 2" in text


def test_a_checkpoints_size_on_disk_is_what_was_said(made, pair):
    said = checkpoint.state_bytes(made[1].params, make_optimizer(**OPTIMIZER))
    arrays = sum(x.nbytes for x in jax.tree.leaves(made[1]))
    assert said + 3 * 4 == arrays  # the three counters of the step
    written = sum(os.path.getsize(p) for p in _files(pair / "2" / "state"))
    assert written < 1.5 * said + 100_000


def test_the_last_healthy_one_is_known_and_later_ones_can_be_forgotten(
    made, tmp_path, opened
):
    folder = tmp_path / "c"
    checkpoints = opened(folder)
    assert checkpoints.newest_healthy() is None
    for step, healthy in ((1, True), (2, True), (3, False), (4, False)):
        checkpoints.save(step, made[1], LOOP, healthy=healthy)
    assert checkpoints.newest_healthy() == 2  # the last one may still be written
    checkpoints.forget_after(2)
    assert {p.name for p in folder.iterdir()} == {"1", "2"}
    assert checkpoints.restore(_abstract(made))[0] == 2
