"""Tests the folder of published weights: content, free space, removal."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from models.decoder import Decoder, init_params
from models.tensors import TABLE, export_tensors
from rollout.vllm import sampler
from rollout.vllm.client import checksum
from rollout.vllm.sampler import Export, WeightFolder
from sharding.mesh import make_mesh
from tests.models.reference import config_of
from tests.other_processes import fill, mounted, start_python

FLOAT32 = np.dtype(np.float32)
NAMES = ("model.embed_tokens.weight", "model.norm.weight")


class _Export:
    """Exports a dictionary of arrays of one size."""

    dtype = FLOAT32

    def __init__(self, size=1000, tensors=dict.items):
        self.specs = {name: ((size,), FLOAT32) for name in NAMES}
        self.tensors = tensors


def _folder(root, **export):
    return WeightFolder(str(root), fallback=root, export=_Export(**export))


def _params(value, size=1000):
    return {name: np.full(size, value + i, FLOAT32) for i, name in enumerate(NAMES)}


@pytest.mark.parametrize("tied", [True, False])
def test_a_version_has_every_tensor_and_an_explicit_head(tmp_path, tied):
    config = config_of(tie_word_embeddings=tied)
    params = init_params(Decoder(config), make_mesh(devices=jax.devices()[:1]), 0)
    served = dataclasses.replace(config, tie_word_embeddings=False)
    export = Export(served, FLOAT32, TABLE)
    folder = WeightFolder(str(tmp_path), fallback=tmp_path, export=export)
    with contextlib.closing(folder):
        written = folder.write(params, "run:7", keep=None)
        tensors = safetensors.numpy.load_file(written.path)
        # The folder holds the policy, on a machine that others may use.
        assert oct(os.stat(folder.path).st_mode)[-3:] == "700"
    assert written.label == "run:7"
    expected = dict(export_tensors(params, config, FLOAT32))
    head = params["embedding" if tied else "head"]
    assert tensors.keys() == expected.keys() | {"lm_head.weight"}
    for name, array in (expected | {"lm_head.weight": np.asarray(head)}).items():
        np.testing.assert_array_equal(tensors[name], array)
    assert written.checksums == {name: checksum(x) for name, x in tensors.items()}
    assert list(tmp_path.iterdir()) == []


def test_the_served_version_stays_while_others_are_written(tmp_path):
    folder = _folder(tmp_path)
    served = folder.write(_params(0.0), "run:0", keep=None)
    before = pathlib.Path(served.path).read_bytes()
    for version in (1, 2):  # the first of them was refused by a server
        newer = folder.write(_params(version), f"run:{version}", keep=served)
        assert newer.path != served.path
    with pytest.raises(ValueError, match="but the header says float32"):
        folder.write(_params(3.0, size=999), "run:3", keep=served)
    assert not pathlib.Path(newer.path).exists()
    assert pathlib.Path(served.path).read_bytes() == before
    assert folder.write(_params(4.0), "run:4", keep=served).path == newer.path
    folder.close()


@pytest.mark.failure(31)
def test_room_for_two_versions_is_checked(tmp_path, monkeypatch, caplog):
    size = shutil.disk_usage(tmp_path).total // 4 // 2  # of each of two tensors
    with pytest.raises(OSError, match=r"GB free, .*; set config\.rollout\.vllm\.weig"):
        _folder(tmp_path, size=size)
    assert list(tmp_path.iterdir()) == []
    # Without a weight_dir it is shared memory, or a folder on the disk.
    monkeypatch.setattr(sampler, "SHARED_MEMORY", tmp_path / "shm")
    disk = tmp_path / "disk"
    settings = dict(fallback=disk, export=_Export())
    assert WeightFolder(**settings).path.parent == tmp_path / "shm"
    check = sampler._check_space

    def no_room(folder, needed):
        check(folder, needed if folder == disk else 2**62)

    monkeypatch.setattr(sampler, "_check_space", no_room)
    assert WeightFolder(**settings).path.parent == disk
    assert "GB free" in caplog.text and "using" in caplog.text


@pytest.mark.failure(31)
def test_a_disk_that_fills_while_a_version_is_written_keeps_the_served_one(tmp_path):
    def export(params):
        if params["fill"]:  # another process takes the room after it was checked
            fill(small)
        yield from _params(1.0, 60_000).items()

    with mounted(tmp_path / "small", "size=2m") as small:
        folder = _folder(small, size=60_000, tensors=export)
        served = folder.write({"fill": False}, "run:1", keep=None)
        before = pathlib.Path(served.path).read_bytes()
        with pytest.raises(OSError) as error:
            folder.write({"fill": True}, "run:2", keep=served)
        assert error.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="GB free"):
            folder.write({"fill": True}, "run:2", keep=served)
        assert pathlib.Path(served.path).read_bytes() == before
        assert [p.parent.name for p in folder.path.rglob("*.safetensors")] == ["0"]
        folder.close()


TRAINER = """
    import pathlib, sys, time
    from tests.rollout.vllm.test_weight_folder import _folder, _params
    folder = _folder(pathlib.Path(sys.argv[1]))
    print(folder.write(_params(1.0), "run:1", keep=None).path, flush=True)
    time.sleep(600)
"""


@pytest.mark.failure(11)
def test_the_next_start_removes_what_a_killed_trainer_left(tmp_path):
    trainer = start_python("-c", TRAINER, tmp_path)
    left = pathlib.Path(trainer.stdout.readline().strip())
    assert left.is_file()
    _folder(tmp_path).close()
    assert left.is_file(), "its trainer lives"
    trainer.kill()
    trainer.wait()
    assert left.is_file()
    other = _folder(tmp_path)
    assert list(tmp_path.iterdir()) == [other.path]
    # One whose removal was interrupted has no lock any more.
    (other.path / "owner").unlink()
    _folder(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


@given(
    st.integers(0, 3 * 4096 * 3).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, max(n - 1, 0)))
    ),
    st.integers(1, 255),
)
def test_any_changed_byte_changes_the_checksum(size_and_place, change):
    size, place = size_and_place
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    before = checksum(data)
    assert before == checksum(data.copy())
    if size:
        data[place] ^= change
        assert checksum(data) != before


def test_words_that_change_places_change_the_checksum():
    words = np.random.default_rng(0).integers(0, 2**63, 4096, dtype=np.uint64)
    for one, other in ((0, 1), (0, 512), (3, 3 + 7 * 512), (5, 2000)):
        swapped = words.copy()
        swapped[[one, other]] = words[[other, one]]
        assert checksum(swapped) != checksum(words)
