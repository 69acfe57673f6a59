"""Finds gold answers that the verifier cannot read, before a run begins."""

from collections.abc import Sequence

from rl.problems.reading import check_left_out
from rl.progress import watch
from rl.types import Problem
from rl.verifier import canonical_key, self_check
from rl.verifier.pool import Lost, Workers

_EXAMPLES = 3


def readable(
    problems: Sequence[Problem],
    *,
    where: str,
    workers: int,
    timeout: float,
    unreadable: float,
) -> tuple[list[Problem], str]:
    """Selects the problems with at least one gold answer that the verifier can read.

    Plain numbers are readable. Other golds are readable if the verifier can parse them
    and then finds them equal to themselves.

    Args:
      problems: problems that the verifier will judge.
      where: name of the problems' source, with which messages begin.
      workers: number of worker processes.
      timeout: seconds that one gold may take.
      unreadable: largest share of problems that may be left out.

    Returns:
      The selected problems, and a message about the others ("" if there are none).

    Raises:
      ValueError: the share of left-out problems is larger than `unreadable`.
    """
    golds = {gold: None for p in problems for gold in p.answers if not _is_plain(gold)}
    faults: dict[str, str | None] = {}
    if golds:
        texts = list(golds)
        chunks = [texts[i : i + 64] for i in range(0, len(texts), 64)]
        with (
            watch("golds", total=len(texts), unit="golds") as count,
            Workers(workers, timeout, "functools:partial") as pool,
        ):
            requests = [((self_check,), chunk) for chunk in chunks]
            found = pool.map(requests, on_done=count.update)
        for chunk, of_chunk in zip(chunks, found, strict=True):
            faults |= dict(zip(chunk, map(_fault, of_chunk), strict=True))
    bad = [p for p in problems if all(faults.get(gold) for gold in p.answers)]
    if not bad:
        return list(problems), ""
    first = "; ".join(
        f"{p.id!r}: {_tail(p.answers[0])} {faults[p.answers[0]]}"
        for p in bad[:_EXAMPLES]
    )
    message = (
        f"{where}: the verifier cannot read the golds of {len(bad):,} of"
        f" {len(problems):,} problems ({len(bad) / len(problems):.2%}), such as {first}"
    )
    message = check_left_out(message, len(bad), len(problems), unreadable)
    left_out = {p.id for p in bad}
    return [p for p in problems if p.id not in left_out], message


def _is_plain(gold: str) -> bool:
    return canonical_key(gold).startswith("=")


def _fault(result: str | None | Lost) -> str | None:
    return result.reason if isinstance(result, Lost) else result


def _tail(gold: str) -> str:
    text = repr(gold)
    return text if len(text) <= 60 else f"... {text[-50:]}"
