"""The processes of a run: how they find each other, and how none outlives another.

JAX's runtime joins the devices. Beside it the leader (process 0) keeps a connection to
each follower, over which it announces what all are to do. When one closes, its process
is dead: the others, which may be waiting in a collective for ever, are ended at once.
"""

import importlib.util
import os
import pickle
import queue
import secrets
import socket
import sys
import threading
import time
import traceback
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NoReturn

import jax

# JAX has no public name for its processes' key-value store.
from jax._src.distributed import global_state

# A process whose host is gone or that is stopped closes no connection: JAX's own
# heartbeat then ends the others, within this time.
_HEARTBEAT_SECONDS = 50
_START_SECONDS = 300
_SHUTDOWN_SECONDS = 60
# An error of a collective comes a moment before the news of the death behind it.
_CAUSE_SECONDS = 5.0
_KEY = "rl/leader"
# Variables that speak of several processes: by a count, by a list, by being there.
_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "MEGASCALE_NUM_SLICES")
_LISTS = ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES")
_MARKS = ("JAX_COORDINATOR_ADDRESS", "JOB_COMPLETION_INDEX")
_TPU = "libtpu"
_FLAGS = "--coordinator, --num_processes and --process_id"

Message = tuple[str, tuple, dict[str, Any]]
Errors = tuple[type[Exception], ...]


class Alone:
    """A single process, which nobody follows.

    Attributes:
      leads: whether this process runs the loop.
      signalled: number of the signal that asked the run to stop, if any.
    """

    leads = True

    def __init__(self):
        self.signalled: int | None = None

    def signal(self, number: int) -> None:
        """Asks the run to stop, for a signal that this process received."""
        self.signalled = self.signalled or number

    def end(self, status: int) -> None:
        """The run has ended in order, with this exit status."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        """Holds nothing."""


class _Linked(Alone):
    """A process among several. An error that leaves its `with` ends them all."""

    def __init__(self, told: Errors):
        super().__init__()
        self._told = told
        self._ended = False
        self._dying = threading.Lock()

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            return
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
        super().__init__(told)
        self._followers = followers
        self._sending = threading.Lock()
        for index in followers:
            threading.Thread(target=self._watch, args=(index,), daemon=True).start()

    def announce(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Sends a message to every follower, in the order of the calls."""
        message = pickle.dumps((name, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            with self._sending:
                for connection in self._followers.values():
                    connection.send_bytes(message)
        except OSError:  # it is dead, and the thread that watches it says so
            time.sleep(_CAUSE_SECONDS)
            raise

    def end(self, status: int) -> None:
        self._ended = True
        self.announce("end", status)
        jax.distributed.shutdown()

    def _watch(self, index: int) -> None:
        try:
            while True:
                kind, content = self._followers[index].recv()
                if kind == "signal":
                    self.signal(content)
                else:
                    self._die(f"process {index}: {content}")
        except (EOFError, OSError):
            if not self._ended:
                self._die(f"process {index} has died, and the others end with it")

    def _tell_end(self, reason: str) -> None:
        message = pickle.dumps(("failed", (reason,), {}))
        if not self._sending.acquire(timeout=_CAUSE_SECONDS):
            return  # the main thread hangs in a message; a closed connection tells too
        for connection in self._followers.values():
            try:
                connection.send_bytes(message)
            except OSError:
                continue


class Follower(_Linked):
    """A process that does what the leader announces."""

    leads = False

    def __init__(self, leader: Connection, told: Errors):
        super().__init__(told)
        self._leader = leader
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._watch, daemon=True).start()

    def receive(self) -> Message:
        """The next announcement; waits for it."""
        return self._messages.get()

    def signal(self, number: int) -> None:
        self._leader.send(("signal", number))

    def end(self, status: int) -> None:
        jax.distributed.shutdown()

    def _watch(self) -> None:
        try:
            while not self._ended:
                message = pickle.loads(self._leader.recv_bytes())
                self._ended = message[0] == "end"
                if message[0] == "failed":
                    self._die(f"the leader has ended: {message[1][0]}")
                self._messages.put(message)
        except (EOFError, OSError):
            self._die("the leader, process 0, has died, and the others end with it")

    def _tell_end(self, reason: str) -> None:
        try:
            self._leader.send(("failed", reason))
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
        reason = " ".join(str(error).split()) or repr(error)
        raise ValueError(
            f"{source}: the processes could not be joined ({reason[:300]});"
            f" --num_processes=1 runs alone, {_FLAGS} say who takes part"
        ) from None
    return True


def _accept(told: Errors) -> Leader:
    key = secrets.token_bytes(32)
    count = jax.process_count() - 1
    with Listener(("", 0), backlog=count, authkey=key) as listener:
        global_state.client.key_value_set(_KEY, f"{listener.address[1]} {key.hex()}")
        followers = {}
        while len(followers) < count:
            try:
                connection = listener.accept()
            except (AuthenticationError, EOFError, OSError):
                continue  # a stranger
            _send_small_messages_at_once(connection)
            followers[connection.recv()] = connection
    return Leader(dict(sorted(followers.items())), told)


def _connect(told: Errors) -> Follower:
    text = global_state.client.blocking_key_value_get(_KEY, 2000 * _START_SECONDS)
    port, key = text.split()
    host = global_state.coordinator_address.rpartition(":")[0]
    connection = Client((host, int(port)), authkey=bytes.fromhex(key))
    connection.send(jax.process_index())
    return Follower(connection, told)


def _send_small_messages_at_once(connection: Connection) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as of_connection:
        of_connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
