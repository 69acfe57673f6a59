"""A rule-based verifier of mathematical answers: bounded, exact where it can be.

```
verify(completion, gold)       the last box of a reply against a gold answer
is_equivalent(predicted, gold) two answers against each other
VerifierPool(workers, timeout) many completions at once, each with a hard deadline
```
"""

import hashlib
import pathlib

from rl.verifier.equivalence import (
    canonical_key,
    equivalence_classes,
    is_equivalent,
    self_check,
)
from rl.verifier.extract import extract_answer
from rl.verifier.pool import Verdict, VerifierPool
from rl.verifier.symbolic import start_helper

__all__ = [
    "VERSION",
    "Verdict",
    "VerifierPool",
    "canonical_key",
    "equivalence_classes",
    "extract_answer",
    "is_equivalent",
    "self_check",
    "start_helper",
    "verify",
]


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


VERSION = _digest_of_sources()
"""Changes whenever a verdict could: recorded beside every score."""


def verify(completion: str, gold: str) -> bool:
    """Whether the final answer of a completion equals the gold answer."""
    answer = extract_answer(completion)
    return answer is not None and is_equivalent(answer, gold)
