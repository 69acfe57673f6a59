"""The last resort: sympy, on a tree that is ours, never on text.

Only limits, integrals and infinite sums get here; numbers settle the rest. sympy may
take for ever on any of them, so it runs in a process that is killed at a deadline: a
helper of this process or, inside a pool's worker, the worker itself.
"""

import collections
import importlib
import threading

from rl.verifier import tree
from rl.verifier.child import START_SECONDS, Child
from rl.verifier.tree import Node

DEADLINE_SECONDS = 0.4
_MAX_SIZE = 150
_MAX_BITS = 200
_HEAVY = frozenset({"fact", "fact2", "binom"})


def agree(left: Node, right: Node) -> bool | None:
    """Whether two expressions are equal to sympy.

    Returns:
      None where it does not know, where they are too large for it, or where it took
      longer than the deadline.
    """
    bigs = tree.count(left, "big") + tree.count(right, "big")
    if not 0 < bigs <= 2 or not (_is_worth_it(left) and _is_worth_it(right)):
        return None
    if _Helper.in_this_process:
        judge = importlib.import_module("rl.verifier.sympy_judge")
        return judge.decide(left, right)
    return _Helper.ask(left, right)


def start_helper() -> None:
    """Starts the helper ahead, so that its start is no item's time."""
    if not _Helper.in_this_process:
        _Helper.start()


def work_in_this_process() -> None:
    """For a process that somebody else kills at a deadline: imports sympy now."""
    importlib.import_module("rl.verifier.sympy_judge")
    _Helper.in_this_process = True


class _Helper:
    """The sympy processes of this process: one at work, one started ahead."""

    in_this_process = False
    _started = False
    _lock = threading.Lock()
    _children: collections.deque[Child] = collections.deque()

    @classmethod
    def start(cls) -> None:
        while len(cls._children) < 2:
            cls._children.append(Child("rl.verifier.sympy_helper:judge_expressions"))

    @classmethod
    def ask(cls, left: Node, right: Node) -> bool | None:
        with cls._lock:
            cls.start()
            child = cls._children[0]
            # Only the very first start is waited for: an item's time is bounded.
            patience = DEADLINE_SECONDS if cls._started else START_SECONDS
            try:
                if not child.await_ready(patience):
                    return None
                cls._started = True
                child.send(left, (right,))
                return child.receive(DEADLINE_SECONDS)
            except (TimeoutError, EOFError, OSError):
                cls._children.popleft()
                child.kill()
                cls.start()
                return None


def _is_worth_it(node: Node) -> bool:
    """No constants that numbers could not settle, nothing that is large."""
    if tree.size(node) > _MAX_SIZE:
        return False
    stack = [node]
    while stack:
        part = stack.pop()
        if part[0] == "num" and part[1].numerator.bit_length() > _MAX_BITS:
            return False
        if part[0] == "fn" and part[1] in _HEAVY and not tree.symbols(part):
            return False
        if part[0] == "pow" and part[2][0] == "pow":
            if not tree.symbols(part) or tree.symbols(part[2][2]):
                return False
        if part[0] == "big" and part[1] in ("sum", "prod"):
            if not tree.symbols(part[4]) and part[4] != tree.INFINITY:
                return False
        stack.extend(child for child in part if isinstance(child, tuple))
    return True
