"""A rule-based verifier of mathematical answers: sound, bounded, deterministic.

Enters: a completion and its gold answer. Leaves: a verdict that is a function of them
alone. Begin in `contract`; needs python-flint and neither jax nor numpy.

```
judge(completion, gold, problem)  a verdict, with the rule that decided
verify(completion, gold, problem) whether that verdict is "correct"
is_equivalent(predicted, gold)    two answers against each other
VerifierPool(workers, timeout)    many completions at once, in processes of their own
```
"""

import hashlib
import pathlib
from collections.abc import Sequence

from .batch import VerifierPool
from .equal.equivalence import (
    canonical_key,
    equivalence_classes,
    is_equivalent,
    self_check,
)
from .grade.contract import Examiner, Rule, Verdict, judge
from .parse.extract import extract_answer
from .trl import reward

__all__ = [
    "VERSION",
    "Examiner",
    "Rule",
    "Verdict",
    "VerifierPool",
    "canonical_key",
    "equivalence_classes",
    "extract_answer",
    "is_equivalent",
    "judge",
    "reward",
    "self_check",
    "verify",
]


_FOLDERS = ("", "parse/", "equal/", "grade/")


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    here = pathlib.Path(__file__).parent
    for path in sorted(p for n in _FOLDERS for p in here.glob(f"{n}*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


VERSION = _digest_of_sources()
"""Changes whenever a verdict could: recorded with every score."""


def verify(
    completion: str, gold: str | Sequence[str], problem: str | None = None
) -> bool:
    """Returns whether a completion ends in a right and finished answer; see `judge`."""
    return judge(completion, gold, problem).correct is True
