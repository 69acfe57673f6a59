"""Verifies mathematical answers with rules: sound, bounded and deterministic.

A verdict of `judge` depends only on its arguments, not on the time or the machine. The
package needs neither JAX nor numpy. Start reading in `grade/contract.py`.
"""

import hashlib
import pathlib
from collections.abc import Sequence

from .equal.equivalence import canonical_key, is_equivalent, self_check
from .grade.contract import Examiner, Rule, Verdict, judge
from .parse.extract import extract_answer
from .pool import VerifierPool
from .trl import reward

__all__ = [
    "VERSION", "Examiner", "Rule", "Verdict", "VerifierPool", "canonical_key",
    "extract_answer", "is_equivalent", "judge", "reward", "self_check", "verify",
]  # fmt: skip

_SOURCES = sorted(pathlib.Path(__file__).parent.rglob("*.py"))
VERSION = hashlib.sha256(b"".join(p.read_bytes() for p in _SOURCES)).hexdigest()[:12]
"""Hash of the verifier's source code, which tools record with their results."""


def verify(
    completion: str, gold: str | Sequence[str], problem: str | None = None
) -> bool:
    """Returns whether the answer in a completion is correct; see `judge`."""
    return judge(completion, gold, problem).correct is True
