"""How processes meet and notice each other's silence, without a run."""

import contextlib
import socket
import subprocess
import sys
import textwrap
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection

import pytest

from rl.hosts import link, peers
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
    from rl.hosts import link, peers

    link.ALIVE_SECONDS, link.SILENT_SECONDS = 0.2, 1.5
    ours, theirs = socket.socketpair()
    raw = theirs.dup()
    ours, theirs = Connection(ours.detach()), Connection(theirs.detach())
    leader = peers.Leader({1: ours}, told=())
    if sys.argv[1] == "silent":
        time.sleep(60)
    if sys.argv[1] not in ("long", "halts"):
        follower = peers.Follower(theirs, told=())
    if sys.argv[1] == "leaves":
        time.sleep(0.5)
        raw.sendall((18).to_bytes(8, "little") + b"what is no message")
        time.sleep(60)
    if sys.argv[1] == "long":
        raw.sendall((2**40).to_bytes(8, "little"))
        time.sleep(60)
    if sys.argv[1] == "halts":
        raw.sendall((100).to_bytes(8, "little") + b"the beginning of a message")
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
        ("long", 1, "", "error: process 1: a message of 1,099,511,627,776 bytes, of at"
         " most 65,536"),
        ("halts", 1, "", "error: process 1 has said nothing for 2 seconds: it is"
         " stopped or its host is gone, and the others end"),
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


UNREAD = """
    import atexit, os, socket, sys, time
    from multiprocessing.connection import Connection
    from rl.hosts import peers

    peers._CAUSE_SECONDS = 0.2
    ours, theirs = socket.socketpair()
    leader = peers.Leader({1: Connection(ours.detach())}, told=(ValueError,))
    atexit.register(time.sleep, 600)  # as JAX does, for processes that still run
    # Nobody reads what is printed any more.
    for stream in (1, 2):
        reads, writes = os.pipe()
        os.close(reads)
        os.dup2(writes, stream)
    print("some line that is not flushed")
    with leader:
        raise {"told": ValueError, "untold": TypeError}[sys.argv[1]]("broken")
"""


@pytest.mark.failure(54)
@pytest.mark.parametrize("how", ["told", "untold"])
def test_a_leader_whose_errors_nobody_reads_ends_all_the_same(how):
    # It hung: the line could not be written, and the others were never told.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(UNREAD), how], cwd=ROOT, timeout=60
    )
    assert done.returncode == 1


# A follower in a process of its own, behind a link that takes so many bytes a second.
FOLLOWER = """
    import contextlib, socket, sys, threading, time
    from multiprocessing.connection import Connection
    from rl.hosts import link, peers

    link.ALIVE_SECONDS, link.SILENT_SECONDS = 0.2, 3.0
    rate, messages = float(sys.argv[1]), int(sys.argv[2])
    came = socket.socket(fileno=int(sys.argv[3]))
    near, far = socket.socketpair()

    def slowly():
        with contextlib.suppress(OSError):
            while data := came.recv(20_000):
                far.sendall(data)
                time.sleep(len(data) / rate)
        far.shutdown(socket.SHUT_WR)

    def back():
        with contextlib.suppress(OSError):
            while data := far.recv(20_000):
                came.sendall(data)

    for act in (slowly, back):
        threading.Thread(target=act, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    follower = peers.Follower(Connection(near.detach()), told=())
    began = time.monotonic()
    for _ in range(messages):
        name, args, _ = follower.receive()
        seconds = time.monotonic() - began
        print(name, *(len(x) for x in args), f"{seconds:.1f}", flush=True)
    time.sleep(60)
"""
LEADER = """
    import socket, sys, time
    from multiprocessing.connection import Connection
    import numpy as np
    from rl.hosts import link, peers

    link.ALIVE_SECONDS, link.SILENT_SECONDS = 0.2, 3.0
    ends = [socket.socket(fileno=int(n)) for n in sys.argv[2:]]
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    followers = {i: Connection(e.detach()) for i, e in enumerate(ends, 1)}
    print("ready", flush=True)
    sys.stdin.readline()
    leader = peers.Leader(followers, told=())
    data = np.random.default_rng(0).integers(0, 256, 1_500_000).astype(np.uint8)
    leader.announce("update", data)
    leader.announce("publish")
    if sys.argv[1] == "lives":
        sys.stdin.readline()
        print("alive")
    if sys.argv[1] == "stops":
        time.sleep(1)  # the first is in the middle of its message
        leader.abandon(143)
"""


@contextlib.contextmanager
def _group(how, rates, messages):
    """A leader and its followers, each a process; they begin when all are there."""
    pairs = [socket.socketpair() for _ in rates]
    python = [sys.executable, "-u", "-c"]
    options = dict(
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    ours, theirs = zip(*pairs, strict=True)
    with contextlib.ExitStack() as stack:

        def start(script, ends, *words):
            fds = [end.fileno() for end in ends]
            command = [*python, textwrap.dedent(script), *words, *map(str, fds)]
            process = subprocess.Popen(command, pass_fds=fds, **options)
            stack.callback(process.kill)
            return process

        leader = start(LEADER, ours, how)
        followers = [
            start(FOLLOWER, [end], str(rate), str(messages))
            for end, rate in zip(theirs, rates, strict=True)
        ]
        for process in (leader, *followers):
            assert process.stdout.readline() == "ready\n"
        for end in (*ours, *theirs):
            end.close()
        for process in (*followers, leader):
            process.stdin.write("go\n")
            process.stdin.flush()
        yield leader, followers


@pytest.mark.failure(54)
def test_a_slow_follower_holds_up_no_other_and_no_sign_of_life():
    """A message takes 6 s to the first; the others may be without one for 3 s."""
    with _group("lives", [250_000, 1e9, 1e9], messages=2) as (leader, followers):
        for process in followers:
            for name in ("update 1500000", "publish"):
                line = process.stdout.readline()
                assert line.startswith(name), process.stderr.read()
        out, error = leader.communicate("end\n", timeout=30)
        assert (leader.returncode, out, error) == (0, "alive\n", "")


@pytest.mark.failure(54)
def test_a_stop_reaches_all_but_who_is_in_the_middle_of_a_message():
    with _group("stops", [100_000, 1e9, 1e9], messages=3) as (leader, followers):
        leader.wait(timeout=60)
        # The first is told by the end of its connection.
        ends = [process.wait(timeout=60) for process in followers]
        assert ends == [1, 143, 143]
        assert "the leader, process 0, has died" in followers[0].stderr.read()


def test_messages_that_wait_are_few_and_the_last_goes_before_them():
    ours, theirs = socket.socketpair()
    near, far = link.Link(Connection(ours.detach())), theirs
    sent = []

    def say():
        for number in range(40):
            near.send(bytes([number]) * 1_000_000)
            sent.append(number)

    threading.Thread(target=say, daemon=True).start()
    while len(sent) < 17:  # one is on its way, sixteen wait
        time.sleep(0.01)
    time.sleep(0.5)
    assert len(sent) == 17
    near.finish(b"last", at_once=True)
    other = link.Link(Connection(far.detach()))
    assert other.receive() == bytes(1_000_000)
    assert other.receive() == b"last"
    near.flush(time.monotonic() + 10)
    assert len(sent) == 17, "and nothing is taken after it"


def test_messages_come_in_order_and_a_broken_link_says_so():
    ours, theirs = socket.socketpair()
    near, far = (link.Link(Connection(s.detach())) for s in (ours, theirs))
    for number in range(100):
        near.send(b"%d" % number)
        assert far.receive() == b"%d" % number
    far._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError):
        while True:
            near.send(b"to nobody")
    with pytest.raises(EOFError):
        near.receive()
