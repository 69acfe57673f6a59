"""Disks that fill up or cannot be written: a line that names the file, nothing lost."""

import errno
import pathlib
import subprocess

import pytest

from models import hf
from models.config import DecoderConfig
from models.decoder import Decoder, init_params
from rl import files
from rl.metrics import MetricsWriter
from sharding.mesh import make_mesh
from tests.other_processes import fill, mounted
from tests.rl import test_train as runs
from tests.tools.tiny import make_model


@pytest.mark.failure(31)
@pytest.mark.parametrize("what", ["scalars", "samples"])
def test_metrics_that_the_disk_does_not_take(tmp_path, what):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        writer = MetricsWriter(disk, keep=-1, evaluated=-1)
        writer.scalars(1, {"reward/mean": 0.5})
        writer.samples(1, [dict(prompt="1+1?", completion="2", gold="2", reward=1.0)])
        filler = fill(disk)
        with pytest.raises(OSError) as caught:
            for _ in range(2000):
                if what == "scalars":
                    writer.scalars(2, {f"reward/{i}": 0.1 for i in range(50)})
                else:
                    row = dict(prompt="1" * 999, completion="", gold="", reward=1)
                    writer.samples(2, [row])
        assert caught.value.errno == errno.ENOSPC
        assert pathlib.Path(caught.value.filename).is_relative_to(disk)
        filler.unlink()
        # As a resumed run does: what was whole stays, a row cut short goes.
        writer = MetricsWriter(disk, keep=1, evaluated=1)
        writer.scalars(2, {"reward/mean": 0.75})
        writer.close()
        rows = [row for _, row in files.read_rows(disk / "metrics.jsonl")]
        means = (1, 0.5), (2, 0.75)
        assert rows == [{"step": step, "reward/mean": mean} for step, mean in means]
        assert len((disk / "samples.jsonl").read_text().splitlines()) == 1


@pytest.mark.failure(31)
def test_an_export_that_does_not_fit_names_the_file_and_leaves_the_one_before(tmp_path):
    assets = make_model(tmp_path / "model")
    model = Decoder(DecoderConfig.from_folder(assets), mesh=make_mesh())
    params = init_params(model, model.mesh, 0)
    with mounted(tmp_path / "disk", "size=4m") as disk:
        asked = dict(assets=assets, dtype="float32")
        hf.save_folder(disk / "hf", params, model.config, **asked)
        before = {p.name: p.read_bytes() for p in (disk / "hf").iterdir()}
        filler = fill(disk, leave=2**16)
        with pytest.raises(OSError) as caught:
            hf.save_folder(disk / "hf", params, model.config, **asked)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(disk / "hf")
        assert {p.name: p.read_bytes() for p in (disk / "hf").iterdir()} == before
        assert {p.name for p in disk.iterdir()} == {"hf", "filler"}
        # Not even for what describes it.
        filler.unlink()
        filler = fill(disk, leave=2**14)
        card = "x" * 2**16
        with pytest.raises(OSError) as caught:
            hf.save_folder(disk / "hf", params, model.config, card=card, **asked)
        assert caught.value.errno == errno.ENOSPC
        assert pathlib.Path(caught.value.filename).is_relative_to(disk)
        assert {p.name: p.read_bytes() for p in (disk / "hf").iterdir()} == before
        assert {p.name for p in disk.iterdir()} == {"hf", "filler"}
        filler.unlink()
        hf.save_folder(disk / "hf", params, model.config, **asked)


@pytest.mark.failure(33)
def test_a_workdir_that_cannot_be_written_is_one_line(tmp_path):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        (disk / "old").mkdir()
        (disk / "old" / "metrics.jsonl").write_text('{"step": 1}\n')
        (disk / "old" / "manifest.json").write_text("{}")
        remount = ["mount", "-o", "remount,ro", str(disk)]
        if subprocess.run(remount, capture_output=True).returncode:
            pytest.skip("may not mount a disk that is read only")
        names = ("new", "old")
        commands = [runs.command(disk / name, tmp_path / "bases") for name in names]
        ends = runs.starts(tmp_path, commands)
        for name, done in zip(names, ends, strict=True):
            line = runs._error(done)
            assert line.startswith("error: ") and "Read-only file system" in line
            assert str(disk / name) in line
            assert "base: " not in done.stderr  # nothing was made for it
        kept = disk / "old" / "metrics.jsonl"
        assert kept.read_text() == '{"step": 1}\n'
