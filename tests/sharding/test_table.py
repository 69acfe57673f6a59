"""Lines of the sharding table change the whole program, which still works."""

import ast
import os
import shutil

import pytest

from tests.other_processes import ROOT, python

CHANGES = {
    '("data", "fsdp", "tensor")': '("replica", "shard", "model")',
    '"batch": (DATA, FSDP)': '"batch": DATA',
    '"embed": FSDP': '"embed": DATA',
}


def test_only_the_table_names_the_axes_of_the_mesh():
    for folder in ("models", "rollout", "rl"):
        for path in (ROOT / folder).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            words = {node.value for node in nodes if isinstance(node, ast.Constant)}
            assert not words & {"fsdp", "tensor"}, path


@pytest.mark.slow  # pytest in a process of its own, all programs compiled again
@pytest.mark.ci
def test_update_and_sampler_follow_the_table(tmp_path):
    """All lines at once: rows and columns over `replica`, nothing over `shard`."""
    for name in ("sharding", "models", "rollout", "rl", "tests", "configs"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    table = tmp_path / "sharding" / "rules.py"
    text = table.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    table.write_text(text)
    # Each compares a mesh of several devices along every axis with one device.
    tests = [
        "tests/models/test_embedding.py::"
        "test_every_mesh_gives_the_same_rows_and_gradient"
        "[False-float64-shape3]",
        "tests/rl/update/test_head.py::"
        "test_any_chunk_and_mesh_give_the_plain_result[shape6-cpu-7-3]",
        "tests/rl/update/test_step.py::"
        "test_every_mesh_gives_the_same_loss_and_change[shape1]",
        "tests/rollout/test_jax_sampler.py::"
        "test_any_mesh_gives_the_same_completions[shape1-4-settings1]",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # Programs that are compiled for one call.
    environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    pytest_without_cache = "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"
    run = python(*pytest_without_cache, *tests, cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stdout[-5000:]
