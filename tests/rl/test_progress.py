"""What is shown of long work, on a terminal and in a log."""

import dataclasses
import io
import re
import threading
import time
import types

import pytest

from rl import progress
from rl.progress import WatchedSampler, duration, each, phase, watch
from rollout.types import NOT_BEGUN, SamplingParams


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def _as_stderr(monkeypatch, stream):
    # pytest puts its own into sys between a fixture and its test.
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=stream))
    return stream


@pytest.fixture
def log(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    return _as_stderr(monkeypatch, io.StringIO())


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_phase_is_told_when_it_begins_and_when_it_is_done(log):
    with phase("load", "some/folder"):
        assert log.getvalue() == "load: some/folder\n"
    assert re.fullmatch(r"load: some/folder\nload: done in \d+\.\d s\n", log.getvalue())


def test_a_log_gets_lines_with_count_rate_and_time_left(log):
    with watch("sample", total=4_000, unit="completions") as count:
        _until(lambda: "sample: 0 of 4,000 completions, " in log.getvalue())
        count.update()
        began = time.time()
        _until(lambda: "sample: 1 of 4,000 completions, " in log.getvalue())
        count.update(999)
        _until(lambda: "1,000 of 4,000" in log.getvalue())
        took = time.time() - began
    last = log.getvalue().splitlines()[-1]
    told = re.fullmatch(
        r"sample: 1,000 of 4,000 completions, ([\d,]+)/s, (\d+\.\d) s left", last
    )
    # 3,000 take three times as long as the 999 after the first, which may have waited
    # for a compiler.
    rate, left = float(told[1].replace(",", "")), float(told[2])
    assert left == pytest.approx(3_000 / rate, abs=0.06)
    assert 999 / took <= rate <= 999 / 0.05


def test_without_a_total_the_time_is_told(log):
    with watch("update"):
        _until(lambda: re.search(r"^update: \d+\.\d s so far$", log.getvalue(), re.M))


def test_nothing_is_told_of_what_takes_a_moment(log):
    with watch("sample", total=2, unit="completions") as count:
        count.update(2)
    assert log.getvalue() == ""


def test_each_counts_what_has_been_dealt_with(log):
    for letter in each("abc", "read", "letters"):
        if letter == "c":
            _until(lambda: "read: 2 of 3 letters, " in log.getvalue())


def test_what_was_there_when_it_began_counts_for_no_rate(log):
    with watch("sample", total=1_000, unit="completions") as count:
        count.update(900)
        _until(lambda: "sample: 900 of 1,000 completions, " in log.getvalue())
        assert "/s" not in log.getvalue()


def test_a_process_that_hushes_tells_nothing(log, monkeypatch):
    monkeypatch.setattr(progress, "_hushed", threading.Event())
    progress.hush()
    with phase("load", "some/folder"):
        time.sleep(3 * progress.LINE_SECONDS)
    assert log.getvalue() == ""


def test_an_inner_watch_covers_the_outer_one_until_it_ends(log):
    with watch("outer"):
        with watch("inner"):
            _until(lambda: log.getvalue().count("inner") == 3)
            assert "outer" not in log.getvalue()
        _until(lambda: "outer" in log.getvalue())


def test_a_watch_of_another_thread_covers_nothing(log):
    ended = threading.Event()

    def behind():
        with watch("behind"):
            ended.wait(10)

    with watch("before"):
        thread = threading.Thread(target=behind)
        thread.start()
        _until(lambda: {"behind", "before"} <= set(re.findall(r"\w+", log.getvalue())))
        ended.set()
        thread.join()


def test_an_error_goes_through_and_ends_the_lines(log):
    with pytest.raises(ValueError, match="broken"), phase("load", "it"):
        raise ValueError("broken")
    said = log.getvalue()
    time.sleep(0.12)
    assert log.getvalue() == said == "load: it\n"


def test_a_terminal_gets_a_bar_that_goes_when_it_is_done(monkeypatch):
    monkeypatch.setattr(progress, "BAR_SECONDS", 0.05)
    stream = _as_stderr(monkeypatch, _Terminal())
    with watch("load", total=10, unit="parameters") as count:
        count.update(5)
        _until(lambda: "5/10" in stream.getvalue())
    assert "load:  50%" in stream.getvalue()
    assert stream.getvalue().endswith("\r")
    assert "\n" not in stream.getvalue()


ENDED = dataclasses.replace(NOT_BEGUN, finish_reason="stop")
BEGUN = [[NOT_BEGUN, ENDED, NOT_BEGUN], [NOT_BEGUN] * 3]


def test_a_watched_sampler_counts_and_passes_everything_on(log):
    told = []

    class Sampler:
        def sample(self, prompts, params, *, seed, begun, on_finished, on_pause):
            assert (prompts, params.n, seed, begun) == ([[1], [2]], 3, 7, BEGUN)
            on_finished(1, 2, "a completion")
            assert on_pause() == "enough"
            _until(lambda: "evaluate: 1 of 5 completions" in log.getvalue())
            return "completions"

    params = SamplingParams(n=3, max_tokens=1, stop_token_ids=(0,))
    sampler = WatchedSampler(Sampler(), "evaluate", lambda: told.append("pause"))
    got = sampler.sample(
        [[1], [2]],
        params,
        seed=7,
        begun=BEGUN,
        on_finished=lambda *of: told.append(of),
        on_pause=lambda: "enough",
    )
    assert got == "completions" and told == [(1, 2, "a completion"), "pause"]


@pytest.mark.parametrize(
    "seconds,said",
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 00 s"),
     (3_599, "59 min 59 s"), (3_600, "1 h 00 min"), (90_060, "25 h 01 min")],
)  # fmt: skip
def test_duration(seconds, said):
    assert duration(seconds) == said
