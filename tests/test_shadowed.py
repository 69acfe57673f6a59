"""With another package of this project's name installed, commands end with one line."""

import os

import pytest

from tests.other_processes import ROOT, python


@pytest.mark.failure(68)
@pytest.mark.parametrize("command", ["rl.train", "tools.evaluate"])
def test_a_package_of_our_name_is_named(tmp_path, command):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "__init__.py").write_text("")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = python("-m", command, "--help", cwd=tmp_path, env=env)
    assert done.returncode == 1
    line = done.stderr.strip()
    assert line.startswith(
        f"error: Python finds package 'configs' at {tmp_path}/configs"
    )
    assert len(line.splitlines()) == 1
