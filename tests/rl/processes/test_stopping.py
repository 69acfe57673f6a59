"""What a signal ends, and when: real processes and signals, without a run."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from rl.processes import stopping
from tests.other_processes import eventually
from tests.rl.test_train import ROOT

SCRIPT = """
    import hashlib, sys, time
    from rl.processes.stopping import Stopped, run

    def deep():  # in C, which no signal handler of Python's interrupts
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)

    def save(stop, seconds=2.0):
        with stop.saving():
            time.sleep(seconds)  # longer than the patience
            print("saved", flush=True)

    def command(stop):
        print("begun", flush=True)
        stop.finish = lambda: print("finished saving", flush=True)
        try:
            WORK
        except Exception:
            print("swallowed", flush=True)
        return 0

    sys.exit(run("again", command))
"""
# Code, what it prints, its status after SIGTERM.
CASES = {
    "interruptible": (
        """
            try:
                with stop.grace_period(grace_seconds=1), stop.interruptible():
                    time.sleep(60)
            except Stopped:
                save(stop)
                raise
        """,
        ["saved"],
        143,
    ),
    "a step that ends in time": (
        """
            with stop.grace_period(grace_seconds=60):
                while stop._number is None:
                    time.sleep(0.01)
                time.sleep(0.1)
                try:
                    with stop.interruptible():
                        print("never")
                except Stopped:
                    save(stop)
                    raise
        """,
        ["saved"],
        143,
    ),
    "a step that does not": (
        """
            with stop.grace_period(grace_seconds=1):
                time.sleep(60)
        """,
        ["finished saving"],
        143,
    ),
    "deep in a compilation": ("deep()", ["finished saving"], 143),
    "anything else": ("time.sleep(60)", [], 143),
    "what is being saved": ("save(stop)", ["saved"], 0),
}


def start(work):
    script = textwrap.dedent(SCRIPT).replace(
        "        WORK", textwrap.indent(textwrap.dedent(work), " " * 8)
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.1)
    return process


@pytest.mark.failure(35)
def test_the_phase_decides_how_a_signal_ends_it():
    for number in (signal.SIGTERM, signal.SIGINT):
        running = {name: start(work) for name, (work, _, _) in CASES.items()}
        for process in running.values():
            process.send_signal(number)
        # Two seconds on a quiet machine; minutes without the watching thread.
        assert running["deep in a compilation"].wait(20)
        for name, (_, printed, status) in CASES.items():
            out, error = running[name].communicate(timeout=60)
            assert out.splitlines() == printed, name
            expected = status and status - signal.SIGTERM + number
            assert running[name].returncode == expected, name
            # Where all ends at once, the first line may be left out.
            first = f"{number.name}: stopping; a second signal ends the process at once"
            lines = [line for line in error.splitlines() if line != first]
            assert lines == ["again"] * bool(status), name


@contextlib.contextmanager
def hangup(handler):
    """Starts processes with this handling of SIGHUP, which they inherit."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.failure(75)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_closed_terminal_and_slurms_warning_end_it_like_sigterm(number):
    with hangup(signal.SIG_DFL):
        process = start(CASES["interruptible"][0])
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "saved\n"
    assert process.returncode == 128 + number


def test_a_command_under_nohup_outlives_its_terminal():
    with hangup(signal.SIG_IGN):
        process = start("time.sleep(1)")
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0


def test_a_second_signal_ends_at_once():
    process = start("save(stop, 60)")
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.stdout.read() == ""


class Processes(stopping.SingleProcess):
    """Replaces the processes of a run."""

    def __init__(self, *, leads):
        self.alone, self.leads, self.reported = False, leads, []

    def watch_signals(self, on_signal):
        self.on_signal = on_signal

    def signal(self, number):
        self.reported.append(("signal", number))

    def abandon(self, status):
        self.reported.append(("abandon", status))


def test_a_follower_reports_to_the_leader_and_waits_for_it(monkeypatch):
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail(f"ended: {status}"))
    monkeypatch.setattr(stopping, "PATIENCE_SECONDS", 0.3)
    follower = Processes(leads=False)
    with stopping.StopSignals("again") as stop:
        stop.join(follower)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: follower.reported == [("signal", signal.SIGTERM)])
        time.sleep(stopping.PATIENCE_SECONDS + 0.3)  # it is the leader that decides


def test_a_leader_is_not_interrupted_and_a_schedulers_signals_count_as_one(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(stopping, "PATIENCE_SECONDS", 0.3)
    leader = Processes(leads=True)
    with stopping.StopSignals("again") as stop:
        stop.join(leader)
        verified = False
        # At the end at the latest: the step after it would be cut short, and lost.
        with pytest.raises(stopping.Stopped, match="SIGTERM"), stop.interruptible():
            leader.on_signal(signal.SIGTERM)
            leader.on_signal(signal.SIGTERM)
            eventually(lambda: leader.reported)
            time.sleep(stopping.PATIENCE_SECONDS + 0.3)
            verified = not ended
        assert verified
        eventually(lambda: ("abandon", 143) in leader.reported)
    assert set(ended) == {143}
