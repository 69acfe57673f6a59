"""Versions go from the trainer to a server's copy bit for bit, or not at all."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

from models.safetensors_io import read_tensors, write_tensors
from rollout.vllm.mirror import FileSource, Mirror
from rollout.vllm.places import find
from rollout.vllm.weight_sync import PublishedFiles

ROOT = pathlib.Path(__file__).resolve().parents[3]
BFLOAT16, FLOAT32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
SHAPES = {"embed": [256, 64], "up": [64, 128], "bias": [128], "norm": [64]}


class Trainer:
    """Adam without a gradient: every parameter moves by about the learning rate."""

    def __init__(self, folder, dtype="bfloat16", rate=1e-6):
        self.rng = np.random.default_rng(0)
        self.kind = BFLOAT16 if dtype == "bfloat16" else FLOAT32
        self.wire = "BF16" if dtype == "bfloat16" else "F32"
        self.rate = rate
        self.params = {
            name: self.rng.normal(0, 0.02, shape).astype(np.float32)
            for name, shape in SHAPES.items()
        }
        self.frozen = ()
        self.files = PublishedFiles(
            folder,
            export=lambda params: ((n, x.astype(self.kind)) for n, x in params.items()),
            specs={name: (tuple(s), self.kind) for name, s in SHAPES.items()},
            dtype=dtype,
        )

    def update(self):
        for name, x in self.params.items():
            if name not in self.frozen:
                x += self.rate * self.rng.normal(0, 1, x.shape).astype(np.float32)

    def stage(self, version):
        return self.files.stage(self.params, f"run:{version}")

    def mirror(self):
        return Mirror(SHAPES, self.wire)

    def take(self, mirror, told):
        whole, delta = (find(told[file], key="") for file in ("whole", "delta"))
        source = FileSource(whole, delta, SHAPES, self.wire)
        return mirror.take(told["tensors"], source)

    def is_served(self, mirror):
        return all(
            mirror.tensors[name].tobytes() == x.astype(self.kind).tobytes()
            for name, x in self.params.items()
        )


@pytest.fixture
def trainer(tmp_path):
    made = Trainer(tmp_path / "weights")
    yield made
    made.files.close()


def test_200_versions_are_the_full_load_bit_for_bit(trainer):
    mirror = trainer.mirror()
    assert trainer.take(mirror, trainer.stage(0)).bytes == trainer.files.bytes
    for version in range(1, 201):
        trainer.update()
        told = trainer.stage(version)
        taken = trainer.take(mirror, told)
        assert not taken.healed and taken.bytes < trainer.files.bytes / 4
        # What a new server would load.
        for name, array in read_tensors(told["whole"]).items():
            assert mirror.tensors[name].tobytes() == array.tobytes()
        assert trainer.is_served(mirror)


@pytest.mark.parametrize(("dtype", "rate"), [("float32", 1e-6), ("bfloat16", 1e-2)])
def test_where_a_delta_gains_nothing_whole_tensors_go(tmp_path, dtype, rate):
    trainer = Trainer(tmp_path / "weights", dtype, rate)
    mirror = trainer.mirror()
    for version in range(4):
        trainer.update()
        taken = trainer.take(mirror, trainer.stage(version))
        assert trainer.files.bytes <= taken.bytes <= 1.01 * trainer.files.bytes
        assert trainer.is_served(mirror)
    trainer.files.close()


def test_a_tensor_that_stood_still_is_not_sent(trainer):
    trainer.frozen, trainer.rate = ("embed",), 1.0
    mirror = trainer.mirror()
    trainer.take(mirror, trainer.stage(0))
    trainer.update()
    taken = trainer.take(mirror, trainer.stage(1))
    assert taken.bytes == trainer.files.bytes - 256 * 64 * 2 + 8
    assert trainer.is_served(mirror)


def _flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def _lost(told):
    os.unlink(told["delta"])


def _cut(told):
    os.truncate(told["delta"], 10)


def _a_place_flipped(told):
    _flip(told["delta"], told["tensors"]["embed"]["start"] + 9)


def _a_value_flipped(told):
    _flip(told["delta"], told["tensors"]["embed"]["stop"] - 1)


def _a_count_flipped(told):
    _flip(told["delta"], told["tensors"]["embed"]["start"])


@pytest.mark.failure(8)
@pytest.mark.parametrize(
    "damage", [_lost, _cut, _a_place_flipped, _a_value_flipped, _a_count_flipped]
)
def test_a_bad_delta_is_refused_and_healed_by_a_whole_tensor(trainer, damage):
    mirror = trainer.mirror()
    trainer.take(mirror, trainer.stage(0))
    trainer.update()
    told = trainer.stage(1)
    damage(told)
    taken = trainer.take(mirror, told)
    assert "embed" in taken.healed
    assert trainer.is_served(mirror)
    # And the next one is a delta again.
    trainer.update()
    taken = trainer.take(mirror, trainer.stage(2))
    assert not taken.healed and taken.bytes < trainer.files.bytes / 4
    assert trainer.is_served(mirror)


def test_a_server_that_missed_a_version_takes_the_tensors_whole(trainer):
    mirror, other = trainer.mirror(), trainer.mirror()
    trainer.take(mirror, trainer.stage(0))
    for version in (1, 2):
        trainer.update()
        told = trainer.stage(version)
    for late in (mirror, other):
        taken = trainer.take(late, told)
        assert taken.bytes == trainer.files.bytes and not taken.healed
        assert trainer.is_served(late)
    # What is told again, after a restart of something else, costs nothing.
    assert trainer.take(mirror, told).bytes == 0


@pytest.mark.failure(8)
def test_a_bad_whole_tensor_is_refused_and_the_next_version_mends_it(trainer):
    mirror = trainer.mirror()
    told = trainer.stage(0)
    _flip(told["whole"], os.path.getsize(told["whole"]) - 101)
    with pytest.raises(ValueError, match="is corrupted or stale: digest"):
        trainer.take(mirror, told)
    # The trainer's own base is the damaged file; no server takes the damage over.
    for version in (1, 2):
        trainer.update()
        trainer.take(mirror, trainer.stage(version))
        assert trainer.is_served(mirror)


def _whole_cut(trainer, told):
    os.truncate(told["whole"], os.path.getsize(told["whole"]) - 100)


def _no_safetensors(trainer, told):
    pathlib.Path(told["whole"]).write_bytes(b"nothing of the kind")


def _of_another_dtype(trainer, told):
    tensors = [(name, x) for name, x in trainer.params.items()]
    write_tensors(told["whole"], {n: (x.shape, x.dtype) for n, x in tensors}, tensors)


def _of_another_shape(trainer, told):
    tensors = [(n, x.astype(BFLOAT16).T) for n, x in trainer.params.items()]
    write_tensors(told["whole"], {n: (x.shape, x.dtype) for n, x in tensors}, tensors)


def _lacks_a_tensor(trainer, told):
    tensors = [(n, x.astype(BFLOAT16)) for n, x in trainer.params.items()][:-1]
    write_tensors(told["whole"], {n: (x.shape, x.dtype) for n, x in tensors}, tensors)


def _told_of_less(trainer, told):
    del told["tensors"]["up"]


def _told_of_more(trainer, told):
    told["tensors"]["down"] = {"digest": 0}


@pytest.mark.failure(8)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_whole_cut, "unreadable weights file: [0-9]+ bytes, its header says"),
        (_no_safetensors, "unreadable weights file"),
        (_of_another_dtype, "embed is F32, serving dtype is BF16"),
        (_of_another_shape, r"embed has shape \[64, 256\], expected \[256, 64\]"),
        (_lacks_a_tensor, "the weights file lacks norm"),
        (_told_of_less, "1 tensors missing, first up"),
        (_told_of_more, "1 unknown tensors, first down"),
    ],
)
def test_a_file_of_something_else_is_refused(trainer, damage, words):
    mirror = trainer.mirror()
    told = trainer.stage(0)
    damage(trainer, told)
    with pytest.raises(ValueError, match=words):
        trainer.take(mirror, told)


def test_damage_to_the_file_that_deltas_are_made_from_reaches_nobody(trainer):
    mirror = trainer.mirror()
    told = trainer.stage(0)
    trainer.take(mirror, told)
    trainer.update()
    # The worst damage: it hides from the trainer that anything has changed.
    held = pathlib.Path(told["whole"]).read_bytes()
    place = held.index(mirror.tensors["up"].tobytes())
    with open(told["whole"], "r+b") as file:
        file.seek(place)
        file.write(trainer.params["up"].astype(BFLOAT16).tobytes())
    assert trainer.take(mirror, trainer.stage(1)).healed.keys() == {"up"}
    assert trainer.is_served(mirror)


def test_deltas_that_have_no_room_are_left_out(trainer, monkeypatch):
    mirror = trainer.mirror()
    trainer.take(mirror, trainer.stage(0))
    trainer.update()
    free = shutil.disk_usage(trainer.files._folder)._replace(free=40)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    taken = trainer.take(mirror, trainer.stage(1))
    assert trainer.files.bytes - 20_000 < taken.bytes <= trainer.files.bytes
    assert not taken.healed and trainer.is_served(mirror)


WRITER = """
    import pathlib, sys
    from tests.rollout.vllm.test_mirror import Trainer
    trainer = Trainer(pathlib.Path(sys.argv[1]))
    for version in range(10**6):
        trainer.update()
        trainer.stage(version)
        print(version, flush=True)
"""
READER = """
    import json, pathlib, sys
    from tests.rollout.vllm.test_mirror import SHAPES
    from rollout.vllm.mirror import FileSource, Mirror
    from rollout.vllm.places import find
    told = json.loads(pathlib.Path(sys.argv[1]).read_text())
    while True:
        mirror = Mirror(SHAPES, "BF16")
        whole, delta = (find(told[file], key="") for file in ("whole", "delta"))
        source = FileSource(whole, delta, SHAPES, "BF16")
        mirror.take(told["tensors"], source)
        print("taken", flush=True)
"""


def _start(code, argument):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), argument],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.failure(11)
def test_a_trainer_killed_while_it_writes_leaves_nothing_to_serve(tmp_path):
    """And a server that it fed goes on from the next trainer's first version."""
    rng = np.random.default_rng(1)
    mirror = Mirror(SHAPES, "BF16")
    for round in range(3):
        folder = tmp_path / str(round)
        writer = _start(WRITER, str(folder))
        for _ in range(int(rng.integers(1, 40))):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        after = Trainer(tmp_path / f"next-{round}")
        after.rng = np.random.default_rng(round)
        after.update()
        assert not after.take(mirror, after.stage(0)).healed
        assert after.is_served(mirror)
        after.files.close()


@pytest.mark.failure(12)
def test_a_server_killed_while_it_reads_leaves_the_version_as_it_was(trainer, tmp_path):
    trainer.stage(0)
    trainer.update()
    told = trainer.stage(1)
    (tmp_path / "told").write_text(json.dumps(told))
    reader = _start(READER, str(tmp_path / "told"))
    for _ in range(5):
        assert reader.stdout.readline() == "taken\n"
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    mirror = trainer.mirror()
    assert not trainer.take(mirror, told).healed
    assert trainer.is_served(mirror)
