"""Computes maj@k, the accuracy of majority voting over equivalent answers."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from rl.evaluate import Scored, by_problem
from rl.verifier import VerifierPool, canonical_key


def maj_at_k(
    votes: Sequence[Sequence[Hashable]], correct: Sequence[Sequence[bool]]
) -> np.ndarray:
    """Returns the score of each problem's most frequent answer, `[problems]`.

    `votes` has the class of each completion's answer, from `answer_classes`. The score
    is 1 if the answer is correct, else 0. If n answers tie for first place and c of
    them are correct, the score is c / n. Without any answer, the score is 0.
    """
    scores = []
    for classes, verdicts in zip(votes, correct, strict=True):
        verdict_of = dict(zip(classes, verdicts, strict=True))
        count = Counter(answer for answer in classes if answer is not None)
        lead = max(count.values(), default=0)
        winners = [verdict_of[answer] for answer, n in count.items() if n == lead]
        scores.append(np.mean(winners) if winners else 0.0)
    return np.array(scores, np.float64)


def answer_classes(
    scored: Sequence[Scored], pool: VerifierPool
) -> dict[str, list[int | None]]:
    """Groups the answers to each problem into classes of equivalent answers.

    Returns lists of the completions' class numbers by problem id. The number of a
    completion without an answer is None.
    """
    keys: dict[str, list[str | None]] = {}
    texts: dict[str, dict[str, str]] = {}  # an answer by its key
    for id, group in by_problem(scored).items():
        keys[id], texts[id] = [], {}
        for s in group:
            key = None if s.answer is None else canonical_key(s.answer)
            keys[id].append(key)
            if key is not None and s.answer is not None:
                texts[id].setdefault(key, s.answer)
    class_of: dict[str, dict[str, int]] = {id: {} for id in keys}
    number = 0
    # In a round, one answer per problem starts a class and is compared with the rest.
    while open_ids := [id for id in keys if len(class_of[id]) < len(texts[id])]:
        asked = []
        for id in open_ids:
            head, *rest = [key for key in texts[id] if key not in class_of[id]]
            class_of[id][head] = number
            asked += [(id, key, texts[id][key], texts[id][head]) for key in rest]
        verdicts = pool.judge(
            [(f"\\boxed{{{text}}}", (head,), None) for _, _, text, head in asked]
        )
        for (id, key, _, _), verdict in zip(asked, verdicts, strict=True):
            if verdict.correct:
                class_of[id][key] = number
        number += 1
    return {
        id: [None if key is None else class_of[id][key] for key in of_problem]
        for id, of_problem in keys.items()
    }
