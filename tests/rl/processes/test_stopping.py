"""What a signal ends, and when: real processes and signals, without a run."""

import os
import signal
import subprocess
import time

import pytest

from rl.processes import stopping
from tests.other_processes import eventually, start_python

SCRIPT = """
    import hashlib, sys, time
    from rl.processes.stopping import Stopped, run

    def deep(stop):  # in C, which no signal handler of Python's interrupts
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)

    def save(stop, seconds=2.0):
        with stop.saving():
            time.sleep(seconds)  # longer than the patience
            print("saved", flush=True)

    def sleep(stop, seconds=60):
        time.sleep(seconds)

    def interrupted(stop, work):
        try:
            with stop.interruptible():
                work(stop)
        except Stopped:
            save(stop)
            raise

    def step(stop):
        with stop.grace_period(grace_seconds=1):
            interrupted(stop, sleep)

    def step_in_time(stop):
        with stop.grace_period(grace_seconds=60):
            while stop._number is None:
                time.sleep(0.01)
            time.sleep(0.1)
            interrupted(stop, lambda stop: print("never"))

    def long_step(stop):
        with stop.grace_period(grace_seconds=1):
            sleep(stop)

    def command(stop):
        print("begun", flush=True)
        stop.finish = lambda: print("finished saving", flush=True)
        try:
            exec(sys.argv[1])
        except Exception:
            print("swallowed", flush=True)
        return 0

    sys.exit(run("again", command))
"""
# Work of a command: what it prints, and its status after SIGTERM.
CASES = {
    "step(stop)": (["saved"], 143),
    "step_in_time(stop)": (["saved"], 143),
    "long_step(stop)": (["finished saving"], 143),
    "deep(stop)": (["finished saving"], 143),
    "sleep(stop)": ([], 143),
    "save(stop)": (["saved"], 0),
}


def start(work, *, hangup=signal.SIG_DFL):
    """Starts a command; it inherits this handling of SIGHUP."""
    before = signal.signal(signal.SIGHUP, hangup)
    process = start_python("-c", SCRIPT, work, stderr=subprocess.PIPE)
    signal.signal(signal.SIGHUP, before)
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.1)
    return process


@pytest.mark.failure(35)
def test_the_phase_decides_how_a_signal_ends_it():
    for number in (signal.SIGTERM, signal.SIGINT):
        running = {work: start(work) for work in CASES}
        for process in running.values():
            process.send_signal(number)
        # Two seconds on a quiet machine; minutes without the watching thread.
        assert running["deep(stop)"].wait(20)
        for work, (printed, status) in CASES.items():
            out, error = running[work].communicate(timeout=60)
            assert out.splitlines() == printed, work
            expected = status and status - signal.SIGTERM + number
            assert running[work].returncode == expected, work
            # Where all ends at once, the first line may be left out.
            first = f"{number.name}: stopping; a second signal ends the process at once"
            lines = [line for line in error.splitlines() if line != first]
            assert lines == ["again"] * bool(status), work


@pytest.mark.failure(75)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_closed_terminal_and_slurms_warning_end_it_like_sigterm(number):
    process = start("step(stop)")
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "saved\n"
    assert process.returncode == 128 + number


def test_a_command_under_nohup_outlives_its_terminal():
    process = start("sleep(stop, 1)", hangup=signal.SIG_IGN)
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
