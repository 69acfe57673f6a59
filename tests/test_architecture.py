"""A prompt goes through the code as docs/architecture.md says."""

import functools
import pathlib
import re
import sys

import jax
import pytest

from configs import quickstart
from configs.base import from_config
from rl.base_model import base_folder
from rl.problems import arithmetic
from rl.problems.reading import write_problems
from rollout.jax_sampler import JaxSampler
from tests.other_processes import ROOT
from tests.rl.in_process import run_here

pytestmark = pytest.mark.usefixtures("quick_compilation")

PAGE = ROOT / "docs" / "architecture.md"
ROOMS = ("rl", "models", "sharding", "rollout")


def _hops():
    """(depth, "file:function") of each hop, in the page's order."""
    found = re.findall(r"^( *)- `([\w/]+\.py:[\w.]+)`: \S", PAGE.read_text(), re.M)
    return [(len(indent) // 2, hop) for indent, hop in found]


@functools.cache
def _place(filename, qualname):
    """`file:function` of our own code; None for everybody else's."""
    path = pathlib.Path(filename)
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in ROOMS:
        return None
    name = qualname.replace(".<locals>", "")
    if name == "joint.call":  # the wrapper of the engine's methods
        return None
    # A comprehension is part of the function around it.
    return f"{path.relative_to(ROOT)}:{re.sub(r'[.]<.*', '', name)}"


def _record(run):
    """Calls between functions of this project, in order, without libraries."""
    calls = {}

    def place(frame):
        return _place(frame.f_code.co_filename, frame.f_code.co_qualname)

    def note(frame, event, _):
        if event != "call":
            return
        callee = place(frame)
        if callee is None:
            return
        above = frame.f_back
        while above is not None:
            caller = place(above)
            if caller is not None:
                calls.setdefault((caller, callee), len(calls))
                return
            above = above.f_back

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_the_way_is_short():
    hops = [hop for _, hop in _hops()]
    to_batch = hops[: hops.index("rollout/jax_sampler.py:JaxSampler._decode")]
    assert len(to_batch) == 24 and len(set(hops)) == len(hops) < 40
    assert len({hop.partition(":")[0] for hop in to_batch}) == 13


@pytest.mark.slow  # profiles a whole run
@pytest.mark.ci
def test_a_prompt_goes_the_way_that_the_page_tells(tmp_path, monkeypatch):
    config = quickstart.get_config()
    config.steps = 1
    config.compiled = ""
    config.data.eval = ""
    config.model.maker_args.update(cache=str(tmp_path / "bases"), steps=1, layers=1)
    config.rollout.max_response_tokens = config.rollout.slots = 8
    config.rollout.group_size = 2
    config.batch.prompts_per_step = config.batch.prompts_per_update = 4
    # A base that has learned nothing answers no problem: none would pass the filter.
    config.dynamic_sampling.filter = False
    # Programs are traced where they are first called: by the sampling itself.
    monkeypatch.setattr(JaxSampler, "warm_up", lambda *_, **__: None)
    jax.clear_caches()
    problems = arithmetic.problems(**config.data.train_args)
    write_problems(tmp_path / "sums.jsonl", problems)
    config.data.train, config.data.train_args = str(tmp_path / "sums.jsonl"), {}
    base_folder(from_config(config))
    calls = _record(lambda: run_here(config, tmp_path / "work"))
    callers, before = [], {}
    for depth, hop in _hops():
        assert depth <= len(callers), f"{hop} is indented under nothing"
        del callers[depth:]
        if callers:
            caller = callers[-1]
            assert (caller, hop) in calls, f"{caller} does not call {hop}"
            at = calls[caller, hop]
            assert at > before.get(caller, -1), f"{hop} comes earlier than told"
            before[caller] = at
        callers.append(hop)
