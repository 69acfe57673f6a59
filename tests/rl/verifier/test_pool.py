"""The pool: hard deadlines, replaced workers, any thread."""

import asyncio
import os
import pathlib
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from rl.processes.stopping import STOPPING
from rl.verifier import Rule, VerifierPool
from rl.verifier import pool as pool_module
from rl.verifier import worker as worker_module
from tests.other_processes import eventually, is_running, python, start_python
from tests.rl.verifier.hostile import FAMILIES

_HANGING = "tests.rl.verifier.hanging:judge"
_FILLER = r"Let us check each case: $\frac{1}{2} + \frac{1}{3}$ and so on. "


def _boxed(answer: str) -> str:
    return rf"{_FILLER}so it is \boxed{{{answer}}}."


def _item(answer: str, *golds: str, problem: str | None = None):
    return _boxed(answer), golds, problem


@pytest.fixture(scope="module")
def pool():
    # Patient: on a machine that does much else a verdict may wait for its turn.
    with VerifierPool(2, timeout=20) as pool:
        yield pool


@pytest.mark.failure(15)
def test_known_pairs_through_the_production_path(pool):
    items = [
        _item(r"\frac{1}{2}", "0.5"),
        _item("(x+1)^2", "x^2+2x+1"),
        _item(r"\sin^2 x + \cos^2 x", "1"),
        _item("3", "4", "3.0"),
        _item("3", "4", "5"),
        _item(r"\sum_{k=1}^8 k", "36"),
        _item(r"7 \cdot 6", "42", problem=r"What is $6 \cdot 7$?"),
        _item(r"7 \cdot 6", "42", problem="What is $6 + 36$?"),
        ("no box", ("4",), None),
        _item("1 + ((", "4"),
        _item("1", r"\frac{1}{"),
    ]
    assert [(v.correct, v.answer, v.rule) for v in pool.judge(items)] == [
        (True, r"\frac{1}{2}", "number"),
        (True, "(x+1)^2", "enclosure"),
        (False, r"\sin^2 x + \cos^2 x", "unfinished"),
        (True, "3", "number"),
        (False, "3", "different"),
        (False, r"\sum_{k=1}^8 k", "unreadable"),
        (False, r"7 \cdot 6", "echo"),
        (False, r"7 \cdot 6", "unfinished"),
        (False, None, "no_answer"),
        (False, "1 + ((", "unreadable"),
        (None, "1", "bad_gold"),
    ]


def test_counts():
    with VerifierPool(1, timeout=20) as pool:
        texts = ["no box", _boxed("(("), _boxed("1"), _boxed("1.0")]
        pool.judge([(text, ["1"], None) for text in texts])
        counts = pool.counts
        # Every rule has a count from the start: a metric does not come and go.
        assert {"judged", "replaced", *get_args(Rule)} <= set(counts)
        once = dict.fromkeys(("no_answer", "unreadable", "text", "number"), 1)
        assert {name: n for name, n in counts.items() if n} == {"judged": 4, **once}


@pytest.mark.failure(13)
@pytest.mark.failure(14)
def test_every_hang_is_cut_and_the_pool_keeps_its_size():
    hangs = ["hang in python", "sleep"] * 3
    with VerifierPool(2, timeout=1, judge=_HANGING) as pool:
        size = len(pool.pids)
        honest = [_item(f"{n}/7", rf"\frac{{{n}}}{{7}}") for n in range(100)]
        assert all(verdict.correct for verdict in pool.judge(honest))
        verdicts = pool.judge([_item(text, f"{n}") for n, text in enumerate(hangs)])
        assert {(v.correct, v.rule) for v in verdicts} == {(None, "lost")}
        assert {v.reason for v in verdicts} == {"took too long"}
        assert pool.counts["lost"] == len(hangs)
        # Each is tried twice.
        assert pool.counts["replaced"] == 2 * len(hangs)
        assert len(pool.pids) == size
        assert all(verdict.correct for verdict in pool.judge(honest))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.failure(14)
def test_a_hundred_hangs():
    hangs = ["hang in python", "hang in c", "sleep", "die"] * 25
    asked = [_item("who", f"{n}") for n in range(2_000)]
    with VerifierPool(2, timeout=0.5, judge=_HANGING) as pool:
        size = len(pool.pids)
        pool.judge([_item(text, f"{n}") for n, text in enumerate(hangs)])
        assert pool.counts["lost"] == 100
        # All are at work again: a worker that is lost would leave its part to the rest.
        assert len(pool.pids) == size
        answered = {int(verdict.reason) for verdict in pool.judge(asked)}
        assert sorted(answered) == pool.pids


def test_a_fault_costs_only_its_own_verdict():
    with VerifierPool(1, timeout=2, judge=_HANGING) as pool:
        answers = ["1", "hang in python", "2", "hang in c", "eat memory", "die", "1.0"]
        verdicts = pool.judge([_item(answer, "1") for answer in answers])
    found = [(verdict.correct, verdict.rule) for verdict in verdicts]
    lost = (None, "lost")
    assert found[:3] == [(True, "text"), lost, (False, "different")]
    assert found[3:] == [lost, lost, lost, (True, "number")]
    reasons = [verdict.reason for verdict in verdicts if verdict.rule == "lost"]
    assert reasons == ["took too long"] * 2 + ["ended its worker"] * 2


@pytest.mark.failure(41)
def test_an_item_lost_once_is_tried_again(tmp_path):
    """A worker stopped for the machine's sake must not cost a verdict."""
    with VerifierPool(1, timeout=20, judge=_HANGING) as pool:
        marker = tmp_path / "was here"
        (verdict,) = pool.judge([_item(f"die once {marker}", "1")])
        assert marker.exists()
        assert (verdict.correct, verdict.rule) == (False, "unreadable")
        assert pool.counts["replaced"] == 1 and pool.counts["lost"] == 0


def test_workers_killed_from_outside_are_replaced():
    with VerifierPool(2, timeout=20) as pool:
        size = len(pool.pids)
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)
        items = [_item(f"{n}.0", f"{n}") for n in range(8)]
        assert [verdict.rule for verdict in pool.judge(items)] == ["number"] * 8
        assert len(pool.pids) == size


def test_from_a_thread_and_from_several_at_once(pool):
    def judge(n):
        return pool.judge([_item(f"{n}/3", rf"\frac{{{n}}}{{3}}")])[0].correct

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(judge, range(1, 9))) == [True] * 8


def test_inside_asyncio(pool):
    async def judge():
        # The second call blocks the loop, as a careless caller would.
        first = await asyncio.to_thread(pool.judge, [_item("1/2", "0.5")])
        return first + pool.judge([_item("1/4", "0.25")])

    assert [verdict.correct for verdict in asyncio.run(judge())] == [True, True]


@pytest.mark.failure(16)
def test_after_jax_has_started():
    """Forked children of a JAX process stall; the workers are started by exec."""
    jax = pytest.importorskip("jax")
    jax.numpy.ones(3).sum().block_until_ready()
    with VerifierPool(1, timeout=20) as pool:
        (verdict,) = pool.judge([_item("1/2", "0.5")])
        assert verdict.correct
        (command,) = {
            open(f"/proc/{pid}/cmdline").read().split("\0")[1] for pid in pool.pids
        }
        assert command == "-c"


def test_the_parents_main_module_is_not_imported_again(tmp_path):
    """A script without a __main__ guard would start itself for ever."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('started')\n"
        "from rl.verifier import VerifierPool\n"
        "with VerifierPool(1) as pool:\n"
        "    print(pool.judge([('\\\\boxed{2}', ['2.0'], None)])[0].correct)\n"
    )
    env = os.environ | {"PYTHONPATH": os.getcwd()}
    run = python(script, timeout=120, env=env)
    assert run.stdout.split() == ["started", "True"]


_PARENT = """
import threading, time
from rl.verifier import VerifierPool
pool = VerifierPool(1, timeout=600, judge="tests.rl.verifier.hanging:judge")
item = ("\\\\boxed{ANSWER}", ["1"], None)
threading.Thread(target=pool.judge, args=([item],), daemon=True).start()
time.sleep(1)
print(*pool.pids, flush=True)
time.sleep(600)
"""


@pytest.mark.failure(55)
@pytest.mark.parametrize("answer", ["2", "hang in python", "hang in c"])
def test_workers_leave_when_the_parent_is_killed(answer):
    """One that is stuck in C reads no closed connection and sees no signal handler."""
    parent = start_python("-c", _PARENT.replace("ANSWER", answer))
    pids = list(map(int, parent.stdout.readline().split()))
    assert pids and all(map(is_running, pids))
    parent.kill()
    parent.wait()
    eventually(lambda: not any(map(is_running, pids)))


def test_a_worker_inherits_no_key_no_descriptor_and_no_signal(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    with open(os.devnull) as ours, VerifierPool(1) as pool:
        os.set_inheritable(ours.fileno(), True)
        pool.judge([_item("1", "1")])
        for pid in pool.pids:
            with open(f"/proc/{pid}/environ") as file:
                names = {entry.partition("=")[0] for entry in file.read().split("\0")}
            assert "PATH" in names and "SOME_API_KEY" not in names
            # Its three streams; the process that judges has the connection too.
            assert len(os.listdir(f"/proc/{pid}/fd")) == 3
            with open(f"/proc/{pid}/status") as file:
                fields = dict(line.split(":\t", 1) for line in file)
            blocked = int(fields["SigBlk"], 16)
            for number in STOPPING:
                assert blocked & 1 << (number - 1)
                os.kill(pid, number)
        assert pool.judge([_item("2", "2")])[0].correct
        assert pool.counts["replaced"] == 0


def test_no_handler_and_no_timer_is_used():
    """A pool works from any thread, and in a program with handlers of its own."""
    files = map(pathlib.Path, (pool_module.__file__, worker_module.__file__))
    source = "".join(file.read_text() for file in files)
    for word in ("setitimer", "signal.alarm", "SIGALRM", "signal.signal"):
        assert word not in source


def test_bad_arguments_are_named(pool):
    with pytest.raises(ValueError, match="workers=0: must be at least 1"):
        VerifierPool(0)
    with pytest.raises(ValueError, match="timeout=0: must be a positive"):
        VerifierPool(1, timeout=0)
    with pytest.raises(TypeError, match="golds='42'"):
        pool.judge([(_boxed("42"), "42", None)])


def test_a_worker_that_ends_at_its_start_is_named():
    with pytest.raises(RuntimeError, match="nomodule:f: the worker ended at its start"):
        VerifierPool(1, judge="nomodule:f")


def test_a_closed_pool_says_so():
    pool = VerifierPool(1)
    pids = pool.pids
    pool.close()
    pool.close()
    assert not any(map(is_running, pids))
    with pytest.raises(RuntimeError, match="closed"):
        pool.judge([])


def test_a_real_batch_is_judged_whole(pool):
    hostile = ["9^{9^{9^9}}", "(" * 4_000, "1+" * 3_000 + "1", "{" * 900, "x" * 15_000]
    hostile += [predicted for _, predicted, _ in FAMILIES["costly evaluation"]]
    items = []
    for index in range(2_048):
        answer = rf"\sqrt{{{index // 16}}} + \frac{{{index % 3}}}{{7}}"
        if index % 20 == 19:
            answer = hostile[index // 20 % len(hostile)]
        gold = rf"\frac17 + \sqrt{{{index // 16}}}"
        items.append((_FILLER * 200 + rf"\boxed{{{answer}}}", (gold,), _FILLER))
    verdicts = pool.judge(items)
    assert all(verdict.correct is not None for verdict in verdicts)
    right = [index % 3 == 1 and index % 20 != 19 for index in range(2_048)]
    assert [verdict.correct for verdict in verdicts] == right
