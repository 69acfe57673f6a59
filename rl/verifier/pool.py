"""Judging in parallel, with a hard deadline for each item.

A worker that misses an item's deadline, or dies, is killed and replaced by one that was
started ahead. No signal handler and no timer is used, so a pool works from any thread,
and from asyncio through `asyncio.to_thread(pool.judge, items)`.
"""

import collections
import concurrent.futures
import dataclasses
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Literal, Self, get_args

from rl.verifier.child import START_SECONDS, Child
from rl.verifier.extract import extract_answer

Status = Literal["ok", "no_answer", "unparsable", "timeout"]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier says of one completion.

    Attributes:
      correct: the answer equals an accepted one.
      answer: the extracted answer, None where there is none.
      status: "ok"; "no_answer" (no box, or an empty one); "unparsable" (compared as
        text only); "timeout" (no verdict by the deadline: counted as wrong).
    """

    correct: bool
    answer: str | None
    status: Status


class VerifierPool:
    """Parallel judging whose size and speed no input can wear down.

    Args:
      workers: items judged at the same time.
      timeout: seconds that one item may take before it is counted as wrong.
      judge: "module:function" that the workers run, called with the accepted golds
        of a group; it returns a function from an answer to (correct, status).

    Raises:
      ValueError: for fewer than one worker or a timeout that is not positive.
    """

    def __init__(
        self,
        workers: int = 2,
        timeout: float = 1.0,
        *,
        judge: str = "rl.verifier.worker:judge_answers",
    ):
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive seconds, not {timeout}")
        self.workers = workers
        self.timeout = timeout
        self._judge = judge
        self._counts = collections.Counter(
            dict.fromkeys(("judged", "replaced", *get_args(Status)[1:]), 0)
        )
        self._lock = threading.Lock()
        self._closed = False
        # Spares hide the start of a replacement behind the next item's work.
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._alive = {Child(judge) for _ in range(2 * workers)}
        try:
            for worker in self._alive:
                if not worker.await_ready():
                    raise TimeoutError(
                        f"a verifier worker did not start in {START_SECONDS:.0f} s"
                    )
                self._idle.put(worker)
        except BaseException:
            self.close()
            raise
        self._threads = concurrent.futures.ThreadPoolExecutor(
            workers, thread_name_prefix="verifier"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    @property
    def counts(self) -> Mapping[str, int]:
        """Items so far: judged, no_answer, unparsable, timeout; and worker deaths."""
        with self._lock:
            return dict(self._counts)

    @property
    def pids(self) -> list[int]:
        """Process ids of the living workers, spares included."""
        with self._lock:
            return sorted(worker.pid for worker in self._alive)

    def judge(self, items: Sequence[tuple[str, Sequence[str]]]) -> list[Verdict]:
        """Judges completions against their accepted golds; any match counts.

        Items with the same golds are judged together: the golds are parsed once, and
        equal answers are compared once.

        Args:
          items: pairs of a completion and its accepted gold answers.

        Returns:
          One verdict per item, in order.

        Raises:
          TypeError: where an item's golds are a bare string.
          RuntimeError: after close().
        """
        if self._closed:
            raise RuntimeError("the verifier pool is closed")
        answers = []
        groups: dict[tuple[str, ...], dict[str, None]] = {}
        for completion, golds in items:
            if isinstance(golds, str):
                raise TypeError(
                    f"golds must be a sequence of strings, not {golds[:60]!r}"
                )
            answer = extract_answer(completion)
            answers.append(answer)
            if answer is not None:
                groups.setdefault(tuple(golds), {})[answer] = None
        futures = {
            golds: self._threads.submit(self._judge_group, golds, list(unique))
            for golds, unique in groups.items()
        }
        found = {golds: future.result() for golds, future in futures.items()}
        verdicts = [
            Verdict(False, None, "no_answer")
            if answer is None
            else Verdict(
                found[tuple(golds)][answer][0], answer, found[tuple(golds)][answer][1]
            )
            for answer, (_, golds) in zip(answers, items, strict=True)
        ]
        with self._lock:
            self._counts["judged"] += len(verdicts)
            self._counts.update(v.status for v in verdicts if v.status != "ok")
        return verdicts

    def close(self) -> None:
        """Ends all workers; a second call does nothing."""
        self._closed = True
        if hasattr(self, "_threads"):
            self._threads.shutdown(cancel_futures=True)
        with self._lock:
            alive, self._alive = self._alive, set()
        for worker in alive:
            worker.kill()

    def _judge_group(
        self, golds: tuple[str, ...], answers: list[str]
    ) -> dict[str, tuple[bool, Status]]:
        found: dict[str, tuple[bool, Status]] = {}
        deaths = collections.Counter()
        worker = self._idle.get()
        try:
            while len(found) < len(answers):
                waiting = answers[len(found) :]
                try:
                    if not worker.is_alive:
                        worker = self._replace(worker)
                    worker.await_ready()
                    worker.send(golds, tuple(waiting))
                    for answer in waiting:
                        found[answer] = worker.receive(self.timeout)
                except TimeoutError:
                    found[answers[len(found)]] = (False, "timeout")
                    worker = self._replace(worker)
                    if len(found) < len(answers):
                        self._idle.put(worker)
                        worker = self._idle.get()
                except (EOFError, OSError):
                    # Killed from outside, or by this very answer: tried once more, by
                    # a fresh worker, which nobody has killed before it began.
                    suspect = answers[len(found)]
                    deaths[suspect] += 1
                    if deaths[suspect] > 1:
                        found[suspect] = (False, "timeout")
                    worker = self._replace(worker)
        finally:
            self._idle.put(worker)
        return found

    def _replace(self, worker: Child) -> Child:
        worker.kill()
        fresh = Child(self._judge)
        with self._lock:
            self._counts["replaced"] += 1
            self._alive.discard(worker)
            self._alive.add(fresh)
        return fresh
