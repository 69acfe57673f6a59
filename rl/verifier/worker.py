"""The child side of a pool: judges what arrives, until the parent is gone.

Started as `python -m rl.verifier.worker FD module:function`.
"""

import importlib
import multiprocessing.connection
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence

from rl.verifier.equivalence import is_equivalent

_MEMORY_BYTES = 1 << 30


def judge_answers(golds: Sequence[str]) -> Callable[[str], tuple[bool, str]]:
    """The verdict of the rule-based verifier, with the golds parsed once."""

    def judge(answer: str) -> tuple[bool, str]:
        return any(is_equivalent(answer, gold) for gold in golds), "ok"

    return judge


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main(descriptor: int, judge: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    threading.Thread(
        target=_leave_with_parent, args=(os.getppid(),), daemon=True
    ).start()
    module, name = judge.split(":")
    make_judge = getattr(importlib.import_module(module), name)
    connection = multiprocessing.connection.Connection(descriptor)
    connection.send("ready")
    while True:
        try:
            golds, answers = connection.recv()
        except EOFError:
            return
        judge_one = make_judge(golds)
        for answer in answers:
            connection.send(judge_one(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
