"""The child side: judges what arrives, until the parent is gone.

Started as `python -m rl.verifier.worker FD module:function`. The function is called
with the context of a request (the accepted golds) and returns what judges one item.
"""

import importlib
import multiprocessing.connection
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence

from rl.verifier import symbolic
from rl.verifier.answers import parse_answer
from rl.verifier.compare import same_answer

_MEMORY_BYTES = 1 << 30
_LOOK_SECONDS = 1.0


def judge_answers(golds: Sequence[str]) -> Callable[[str], tuple[bool, str]]:
    """The verdict of the rule-based verifier, with the golds parsed once."""
    accepted = [parse_answer(gold) for gold in golds]

    def judge(answer: str) -> tuple[bool, str]:
        parsed = parse_answer(answer)
        status = "unparsable" if parsed.node is None else "ok"
        if answer in golds:
            return True, status
        return any(same_answer(parsed, gold) for gold in accepted), status

    return judge


def _leave_with_parent(parent: int) -> None:
    """A parent that was killed cannot end its children: they look for themselves."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def main(descriptor: int, judge: str) -> None:
    """Answers requests on a connection."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    parent = os.getppid()
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    module, name = judge.split(":")
    make_judge = getattr(importlib.import_module(module), name)
    # Before it is ready: later, the import would be some item's time.
    symbolic.work_in_this_process()
    connection = multiprocessing.connection.Connection(descriptor)
    connection.send("ready")
    while True:
        try:
            context, items = connection.recv()
        except (EOFError, OSError):
            return
        judge_one = make_judge(context)
        for item in items:
            connection.send(judge_one(item))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
