"""Progress of long work, on a terminal and in a log."""

import io
import os
import pty
import re
import termios
import threading
import time
import types

import pytest

from rl import progress
from rl.progress import duration, each, phase, watch
from tests.other_processes import eventually, start_python


def _as_stderr(monkeypatch, stream):
    # pytest puts its own into sys between a fixture and its test.
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=stream))
    return stream


@pytest.fixture
def log(monkeypatch):
    # A busy machine may stop a thread for a tenth of a second.
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.3)
    return _as_stderr(monkeypatch, io.StringIO())


def test_a_phase_prints_a_line_when_it_begins_and_when_it_is_done(log):
    with phase("load", "some/folder"):
        assert log.getvalue() == "load: some/folder\n"
    assert re.fullmatch(r"load: some/folder\nload: done in \d+\.\d s\n", log.getvalue())


def test_a_log_gets_lines_with_count_rate_and_time_left(log, monkeypatch):
    seconds = 0.0
    clock = types.SimpleNamespace(monotonic=lambda: seconds)
    monkeypatch.setattr(progress, "time", clock)
    with watch("sample", total=4_000, unit="completions") as count:
        line = "sample: 0 of 4,000 completions, 0.0 s so far\n"
        eventually(lambda: line in log.getvalue())
        # The first may have waited for a compiler.
        seconds = 60.0
        count.update()
        seconds = 63.0
        count.update(999)
        line = "sample: 1,000 of 4,000 completions, 333/s, 9.0 s left\n"
        eventually(lambda: line in log.getvalue())


def test_without_a_total_the_time_is_shown(log):
    with watch("update"):
        eventually(
            lambda: re.search(r"^update: \d+\.\d s so far$", log.getvalue(), re.M)
        )


@pytest.mark.failure(105)
def test_a_clock_that_is_set_back_does_not_change_the_time_left(log, monkeypatch):
    with watch("sample", total=10, unit="completions") as count:
        count.update()
        monkeypatch.setattr(time, "time", lambda: 0.0)
        count.update()
        eventually(lambda: "2 of 10" in log.getvalue())
    last = log.getvalue().splitlines()[-1]
    assert re.fullmatch(r"sample: 2 of 10 completions, [\d.,]{1,6}/s, \d.* left", last)


def test_each_counts_finished_things(log):
    for letter in each("abc", "read", "letters"):
        if letter == "c":
            eventually(lambda: "read: 2 of 3 letters, " in log.getvalue())


def test_the_first_update_is_not_part_of_the_rate(log):
    with watch("sample", total=1_000, unit="completions") as count:
        count.update(900)
        eventually(lambda: "sample: 900 of 1,000 completions, " in log.getvalue())
        assert "/s" not in log.getvalue()


def test_a_hushed_process_and_work_of_a_moment_print_nothing(log, monkeypatch):
    with watch("sample", total=2, unit="completions") as count:
        count.update(2)
    monkeypatch.setattr(progress, "_hushed", threading.Event())
    progress.hush()
    with phase("load", "some/folder"):
        time.sleep(2 * progress.LINE_SECONDS)
    assert log.getvalue() == ""


def test_an_inner_watch_covers_the_outer_one_until_it_ends(log):
    with watch("outer"):
        with watch("inner"):
            eventually(lambda: log.getvalue().count("inner") >= 3)
            assert "outer" not in log.getvalue()
        eventually(lambda: "outer" in log.getvalue())


def test_a_watch_of_another_thread_covers_nothing(log):
    ended = threading.Event()

    def behind():
        with watch("behind"):
            ended.wait(10)

    with watch("before"):
        thread = threading.Thread(target=behind)
        thread.start()
        eventually(
            lambda: {"behind", "before"} <= set(re.findall(r"\w+", log.getvalue()))
        )
        ended.set()
        thread.join()


def test_an_error_goes_through_and_ends_the_lines(log):
    with pytest.raises(ValueError, match="broken"), phase("load", "it"):
        raise ValueError("broken")
    said = log.getvalue()
    time.sleep(2 * progress.LINE_SECONDS)
    assert log.getvalue() == said == "load: it\n"


def _screens(program):
    """Run a program on a terminal of 80 columns; what is on it after each write."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    env = os.environ | {"COLUMNS": "200"}
    process = start_python("-c", program, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    lines, at, screens = [""], 0, []
    while True:
        try:
            text = os.read(leader, 65536).decode()
        except OSError:  # the program has ended
            break
        for piece in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+", text):
            if piece == "\n":
                lines.append("")
            elif piece == "\x1b[K":
                lines[-1] = lines[-1][:at]
            elif piece != "\r":
                lines[-1] = lines[-1][:at] + piece + lines[-1][at + len(piece) :]
            at = at + len(piece) if len(piece) > 1 and piece[0] != "\x1b" else at
            at = 0 if piece in "\r\n" else at
        screens.append(list(lines))
    os.close(leader)
    assert process.wait() == 0
    return screens


@pytest.mark.failure(69)
def test_a_terminal_shows_a_bar_and_clears_it_when_it_is_done():
    screens = _screens(
        "import time; from rl import progress; progress.BAR_SECONDS = 0.05\n"
        "with progress.phase('load', 'a folder', total=10, unit='parameters') as count:"
        "\n    count.update(3); time.sleep(0.6); count.update(2); time.sleep(0.6)\n"
        "with progress.watch('sample', total=4, unit='completions'): time.sleep(0.6)\n"
        "print('step 1/20')"
    )
    shown = {line for screen in screens for line in screen}
    assert any(
        re.match(r"load:  50%\|.* 5/10 \[00:\d\d<00:\d\d, .*/s\]$", s) for s in shown
    )
    assert any(s.startswith("sample:   0%|") for s in shown)
    assert max(len(s) for s in shown if "%|" in s) < 80
    text = "\n".join(screens[-1])
    assert re.search(r"^load: a folder\nload: done in \S+ s\nstep 1/20\n\Z", text, re.M)


@pytest.mark.parametrize(
    "seconds,said",
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 00 s"),
     (3_599, "59 min 59 s"), (3_600, "1 h 00 min"), (90_060, "25 h 01 min")],
)  # fmt: skip
def test_duration(seconds, said):
    assert duration(seconds) == said
