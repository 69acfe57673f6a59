"""The processes of a run: how they find each other, and how none outlives another.

JAX's runtime joins the devices. Beside it the leader (process 0) keeps a connection to
each follower, over which it announces what all are to do. When one closes, its process
is dead: the others, which may be waiting in a collective for ever, are ended at once.
"""

import contextlib
import importlib.util
import ipaddress
import os
import queue
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    answer_challenge,
    deliver_challenge,
)
from typing import Any, NoReturn

import jax

# JAX has no public name for its processes' key-value store.
from jax._src.distributed import global_state

from rl import progress
from rl.hosts.link import Link, Silent
from rl.hosts.messages import Message, decode, encode
from rl.hosts.stopping import in_a_line

# JAX's own, which aborts with a page of text, comes after that of `rl.hosts.link`.
_HEARTBEAT_SECONDS = 90
_START_SECONDS = 300
_SHUTDOWN_SECONDS = 60
# An error of a collective comes a moment before the news of the death behind it.
_CAUSE_SECONDS = 5.0
# In which one who connects has to show that it knows the run's key.
_HANDSHAKE_SECONDS = 10
# What a follower says is short.
_LONGEST_FROM_FOLLOWER = 2**16
_KEY = "rl/leader"
# Variables that speak of several processes: by a count, by a list, by being there.
_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "MEGASCALE_NUM_SLICES")
_LISTS = ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES")
_MARKS = ("JAX_COORDINATOR_ADDRESS", "JOB_COMPLETION_INDEX")
_TPU = "libtpu"
_FLAGS = "--coordinator, --num_processes and --process_id"

Errors = tuple[type[Exception], ...]


class Alone:
    """A single process, which nobody follows.

    Attributes:
      alone, leads, on_signal: see `rl.hosts.stopping.Processes`.
    """

    alone, leads = True, True

    def __init__(self):
        self.on_signal: Callable[[int], None] = lambda number: None

    def signal(self, number: int) -> None:
        """Asks the run to stop, for a signal that this process received."""

    def abandon(self, status: int) -> None:
        """Ends the other processes at once, with this exit status."""

    def end(self, status: int) -> None:
        """The run has ended in order, with this exit status."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        """Holds nothing."""


class _Linked(Alone):
    """A process among several. An error that leaves its `with` ends them all."""

    alone = False

    def __init__(self, told: Errors):
        super().__init__()
        self._told = told
        self._ended = False
        self._dying = threading.Lock()

    def _receive(self, link: Link, who: str, longest: int | None = None) -> Message:
        """The next message from another process."""
        try:
            return decode(link.receive(longest))
        except Silent as silence:
            if self._ended:
                raise EOFError from None
            self._die(
                f"{who} {silence}: it is stopped or its host is gone, and the others"
                " end"
            )

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            return
        with contextlib.suppress(OSError):  # nobody reads it, and the others must end
            if not isinstance(error, self._told):
                time.sleep(_CAUSE_SECONDS)
                traceback.print_exception(error)
            sys.stdout.flush()
        self._die(str(error) or repr(error))

    def _die(self, reason: str) -> NoReturn:
        with self._dying:  # for ever: the first reason is the one that counts
            self._tell_end(" ".join(reason.split()))
            _end_now(reason)

    def _tell_end(self, reason: str) -> None:
        raise NotImplementedError


class Leader(_Linked):
    """Process 0, with its connections to the others by their numbers."""

    def __init__(self, followers: dict[int, Connection], told: Errors):
        self._followers = {i: Link(connection) for i, connection in followers.items()}
        self._announcing = threading.Lock()
        super().__init__(told)
        for index in followers:
            threading.Thread(target=self._watch, args=(index,), daemon=True).start()

    def announce(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Sends a message to every follower, in the order of the calls.

        It is made once, and this does not wait until they have it.
        """
        message = encode(name, *args, **kwargs)
        try:
            with self._announcing:
                for link in self._followers.values():
                    link.send(message)
        except OSError:  # it is dead, and the thread that watches it says so
            time.sleep(_CAUSE_SECONDS)
            raise

    def end(self, status: int) -> None:
        self._ended = True
        message = encode("end", status)
        for link in self._followers.values():
            link.finish(message)
        until = time.monotonic() + _SHUTDOWN_SECONDS
        for link in self._followers.values():
            link.flush(until)
        jax.distributed.shutdown()

    def abandon(self, status: int) -> None:
        self._ended = True
        self._tell("stopped", status)

    def _watch(self, index: int) -> None:
        try:
            while True:
                kind, args, _ = self._receive(
                    self._followers[index],
                    f"process {index}",
                    _LONGEST_FROM_FOLLOWER,
                )
                if kind == "signal":
                    self.on_signal(*args)
                else:
                    self._die(f"process {index}: {args[0]}")
        except ValueError as error:
            self._die(f"process {index}: {error}")
        except (EOFError, OSError):
            if not self._ended:
                self._die(f"process {index} has died, and the others end with it")

    def _tell_end(self, reason: str) -> None:
        self._tell("failed", reason)

    def _tell(self, *message: Any) -> None:
        message = encode(*message)
        for link in self._followers.values():
            link.finish(message, at_once=True)
        # Where one does not take it in time, a closed connection tells too.
        until = time.monotonic() + _CAUSE_SECONDS
        for link in self._followers.values():
            try:
                link.flush(until)
            except OSError:
                continue


class Follower(_Linked):
    """A process that does what the leader announces."""

    leads = False

    def __init__(self, leader: Connection, told: Errors):
        self._leader = Link(leader)
        super().__init__(told)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._watch, daemon=True).start()

    def receive(self) -> Message:
        """The next announcement; waits for it."""
        return self._messages.get()

    def signal(self, number: int) -> None:
        self._leader.send(encode("signal", number))

    def end(self, status: int) -> None:
        jax.distributed.shutdown()

    def _watch(self) -> None:
        try:
            while not self._ended:
                message = self._receive(self._leader, "the leader, process 0,")
                self._ended = message[0] == "end"
                if message[0] == "stopped":
                    os._exit(*message[1])
                if message[0] == "failed":
                    self._die(f"the leader has ended: {message[1][0]}")
                self._messages.put(message)
        except ValueError as error:
            self._die(f"the leader, process 0: {error}")
        except (EOFError, OSError):
            self._die("the leader, process 0, has died, and the others end with it")

    def _tell_end(self, reason: str) -> None:
        self._leader.finish(encode("failed", reason), at_once=True)
        try:
            self._leader.flush(time.monotonic() + _CAUSE_SECONDS)
        except OSError:
            return


Peers = Alone | Leader | Follower


def start(
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    *,
    told: Errors,
) -> Peers:
    """Joins the processes of this run; a single one starts nothing.

    Must come before JAX first looks for devices.

    Args:
      coordinator: `host:port` at which process 0 can be reached, the port free.
      num_processes: of the run; 1 stays alone whatever the environment says.
      process_id: this process's number, 0 for the leader.
      told: errors that say all in a line; others are shown with their traceback.

    The first three may be None: then the environment is asked, as far as JAX knows it
    (SLURM, TPU pods, GKE, Open MPI, indexed jobs of Kubernetes).

    Raises:
      ValueError: arguments that do not fit, or too few processes came.
    """
    given = (coordinator, num_processes, process_id)
    if num_processes == 1 and process_id in (None, 0):
        return Alone()
    if given == (None, None, None):
        source, arguments = _named_in_environment(), {}
        if not source:
            if importlib.util.find_spec("libtpu") is None:
                return Alone()
            source = _TPU  # whose own metadata name the processes of a pod
    else:
        source = (
            f"--coordinator={coordinator} --num_processes={num_processes}"
            f" --process_id={process_id}"
        )
        _check_flags(source, *given)
        arguments = {
            "coordinator_address": coordinator,
            "num_processes": num_processes,
            "process_id": process_id,
            "cluster_detection_method": "deactivate",
        }
    # When JAX's own time is over it aborts with a page of text.
    deadline = threading.Timer(_START_SECONDS, _nobody_came, (source,))
    deadline.daemon = True
    deadline.start()
    try:
        if not _initialize(source, arguments):
            return Alone()
        jax.devices()  # the processes exchange what devices they have
        if jax.process_count() == 1:
            return Alone()
        return _accept(told) if jax.process_index() == 0 else _connect(told)
    finally:
        deadline.cancel()


def _nobody_came(source: str) -> NoReturn:
    _end_now(f"{source}: not all processes came within {_START_SECONDS} seconds")


def _end_now(reason: str) -> NoReturn:
    """Ends this process whatever its main thread waits for, with one line."""
    # In one piece: JAX may be aborting the process in another thread.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"error: {reason}\n".encode())
    os._exit(1)


def _named_in_environment() -> str:
    """The variable that speaks of several processes, with its value."""
    one = ("", "0", "1")
    found = [name for name in _COUNTS if os.environ.get(name, "1") not in one]
    found += [name for name in _LISTS if "," in os.environ.get(name, "")]
    found += [name for name in _MARKS if name in os.environ]
    return f"{found[0]}={os.environ[found[0]]}" if found else ""


def _check_flags(source, coordinator, num_processes, process_id) -> None:
    if None in (coordinator, num_processes, process_id):
        given = " ".join(p for p in source.split() if not p.endswith("=None"))
        raise ValueError(f"{given}: {_FLAGS} go together")
    if num_processes < 1:
        raise ValueError(f"--num_processes={num_processes}: must be at least 1")
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"--process_id={process_id}: must lie in 0 ... {num_processes - 1}"
            f" (--num_processes={num_processes})"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--coordinator={coordinator!r}: must be HOST:PORT")


def _initialize(source: str, arguments: dict[str, Any]) -> bool:
    """Starts JAX's runtime; False where JAX finds no processes and none are named."""
    # Its handler of SIGTERM would compete with the run's own.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=2 * _START_SECONDS,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
        )
    except (ValueError, RuntimeError) as error:  # its own errors and gRPC's
        if source == _TPU and "coordinator_address" in str(error):
            return False  # libtpu is installed, and there is no TPU
        reason = in_a_line(error)
        raise ValueError(
            f"{source}: the processes could not be joined ({reason[:300]});"
            f" --num_processes=1 runs alone, {_FLAGS} say who takes part"
        ) from None
    return True


def _accept(told: Errors) -> Leader:
    key = secrets.token_bytes(32)
    count = jax.process_count() - 1
    host = global_state.coordinator_address.rpartition(":")[0]
    with _listen(host, count) as listener:
        port = listener.getsockname()[1]
        global_state.client.key_value_set(_KEY, f"{port} {key.hex()}")
        return Leader(_meet(listener, key, count), told)


def _listen(host: str, count: int) -> socket.socket:
    """At the address by which the others know this process, and at no other.

    Where the name stands for none of this machine's addresses, as a service of
    Kubernetes does, or for its loopback without being called so, at all of them.
    """
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        family, *_, address = found[0]
        loopback = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        if not loopback or host in ("localhost", address[0]):
            return socket.create_server((address[0], 0), family=family, backlog=count)
    except OSError:
        pass
    return socket.create_server(("", 0), backlog=count)


def _meet(listener: socket.socket, key: bytes, count: int) -> dict[int, Connection]:
    """Connections to followers by their numbers, of those who know the key in time.

    Each handshake has a thread: strangers, silent or slow, hold up nobody.
    """
    met: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()

    def greet(stranger: socket.socket) -> None:
        _limit_receiving(stranger, _HANDSHAKE_SECONDS)
        connection = Connection(stranger.detach())
        try:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            index = int(connection.recv_bytes(8))
        except (AuthenticationError, EOFError, OSError, ValueError):
            connection.close()
            return
        with socket.socket(fileno=os.dup(connection.fileno())) as follower:
            _limit_receiving(follower, 0)
            follower.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        met.put((index, connection))

    def accept() -> None:
        while True:
            try:
                stranger, _ = listener.accept()
            except OSError:
                return  # closed: all are there
            threading.Thread(target=greet, args=(stranger,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    followers: dict[int, Connection] = {}
    while len(followers) < count:
        index, connection = met.get()
        followers[index] = connection
    listener.shutdown(socket.SHUT_RDWR)  # which ends `accept`
    return dict(sorted(followers.items()))


def _limit_receiving(connected: socket.socket, seconds: int) -> None:
    """How long a read may wait in the kernel; 0: for ever."""
    limit = struct.pack("ll", seconds, 0)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _connect(told: Errors) -> Follower:
    progress.hush()
    text = global_state.client.blocking_key_value_get(_KEY, 2000 * _START_SECONDS)
    port, key = text.split()
    host = global_state.coordinator_address.rpartition(":")[0].strip("[]")
    connection = Client((host, int(port)), authkey=bytes.fromhex(key))
    connection.send_bytes(str(jax.process_index()).encode())
    return Follower(connection, told)
