"""How processes meet and notice each other's silence, without a run."""

import socket
import subprocess
import sys
import textwrap
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest

from rl.hosts import peers
from tests.rl.test_train import ROOT

KEY = b"k" * 32


def _join(port, index, key=KEY):
    connection = Client(("127.0.0.1", port), authkey=key)
    connection.send_bytes(str(index).encode())
    return connection


@pytest.mark.failure(54)
def test_silent_and_false_strangers_hold_up_nobody(monkeypatch):
    monkeypatch.setattr(peers, "_HANDSHAKE_SECONDS", 1)
    with peers._listen("127.0.0.1", 2) as listener:
        address = listener.getsockname()
        assert address[0] == "127.0.0.1"
        strangers = [socket.create_connection(address) for _ in range(3)]
        strangers[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        strangers[2].close()
        joined = []

        def come():
            with pytest.raises((AuthenticationError, EOFError, OSError)):
                _join(address[1], 1, key=b"another")
            joined.extend(_join(address[1], index) for index in (2, 1))

        thread = threading.Thread(target=come)
        thread.start()
        began = time.monotonic()
        met = peers._meet(listener, KEY, 2)
        # The silent one alone would have cost a second, and held up all behind it.
        assert time.monotonic() - began < 30
        thread.join()
    assert list(met) == [1, 2]
    # Who has met may be silent for longer than a handshake.
    threading.Timer(1.5, joined[0].send_bytes, [b"late"]).start()
    assert met[2].recv_bytes() == b"late"
    strangers[0].settimeout(10)
    while strangers[0].recv(1000):  # its challenge, and then the end: it is let go
        pass
    for connection in (*joined, *met.values()):
        connection.close()


@pytest.mark.failure(54)
@pytest.mark.parametrize(
    "host,address",
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("192.0.2.1", "0.0.0.0"),
     ("no.such.host.invalid", "0.0.0.0")],
)  # fmt: skip
def test_the_listener_is_where_the_others_look_for_it(monkeypatch, host, address):
    found = socket.getaddrinfo

    def resolve(name, *args, **kwargs):
        if name.endswith(".invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return found(name, *args, family=socket.AF_INET, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with peers._listen(host, 1) as listener:
        assert listener.getsockname()[0] == address


SILENCE = """
    import socket, sys, threading, time
    from multiprocessing.connection import Connection
    from rl.hosts import peers

    peers._ALIVE_SECONDS, peers._SILENT_SECONDS = 0.2, 1.5
    ours, theirs = socket.socketpair()
    ours, theirs = Connection(ours.detach()), Connection(theirs.detach())
    leader = peers.Leader({1: ours}, told=())
    if sys.argv[1] == "silent":
        time.sleep(60)
    follower = peers.Follower(theirs, told=())
    if sys.argv[1] == "leaves":
        time.sleep(0.5)
        theirs.send_bytes(b"what is no message")
        time.sleep(60)
    signals = []
    leader.on_signal = signals.append
    follower.signal(15)
    leader.announce("publish", 7)
    assert follower.receive() == ("publish", (7,), {})
    time.sleep(4)  # both live: nobody ends
    print("alive", *signals)
"""


@pytest.mark.failure(54)
@pytest.mark.parametrize(
    "how,status,out,error",
    [
        ("silent", 1, "", "error: process 1 has said nothing for 2 seconds: it is"
         " stopped or its host is gone, and the others end"),
        ("leaves", 1, "", "error: process 1: no message of a run's processes ("),
        ("lives", 0, "alive 15", ""),
    ],
)  # fmt: skip
def test_silence_ends_a_run_with_a_line_and_signs_of_life_do_not(
    how, status, out, error
):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SILENCE), how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout.strip() == out
    lines = done.stderr.strip().splitlines()
    # The two are one process here: the other one may be the first to tell of the end.
    told = [line.replace("error: the leader has ended: ", "error: ") for line in lines]
    assert bool(told) == bool(error) and all(line.startswith(error) for line in told)
