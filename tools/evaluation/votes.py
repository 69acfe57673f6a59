"""Computes maj@k, the accuracy of majority voting over equivalent answers."""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np

from rl.evaluate import Scored, by_problem
from rl.reward.verifier import Reward
from rl.types import Problem
from rl.verifier import canonical_key


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
    scored: Sequence[Scored], judge: Reward
) -> dict[str, list[str | None]]:
    """Groups the answers to each problem into classes of equivalent answers.

    `judge` is the reward function of the verifier. Returns the class of each completion
    by problem id; None without an answer. The class is named by the canonical key of
    its first answer.
    """
    answers = {s.answer for s in scored if s.answer is not None}
    key_of = {answer: canonical_key(answer) for answer in answers}
    texts: dict[str, dict[str, str]] = {}  # the first answer by its key
    for s in scored:
        of_problem = texts.setdefault(s.id, {})
        if s.answer is not None:
            of_problem.setdefault(key_of[s.answer], s.answer)
    pairs = [(id, *two) for id, of in texts.items() for two in combinations(of, 2)]
    scores = judge(
        [[f"\\boxed{{{texts[id][b]}}}"] for id, _, b in pairs],
        [Problem(id=id, problem="", answers=(texts[id][a],)) for id, a, _ in pairs],
    )
    judged = zip(pairs, scores, strict=True)
    equal = {pair for pair, (score,) in judged if score.verdict.correct}
    class_of: dict[tuple[str, str], str] = {}
    for id, of_problem in texts.items():
        first: list[str] = []  # answers of each class
        for key in of_problem:
            found = next((head for head in first if (id, head, key) in equal), key)
            first += [key] if found == key else []
            class_of[id, key] = found
    return {
        id: [None if s.answer is None else class_of[id, key_of[s.answer]] for s in of]
        for id, of in by_problem(scored).items()
    }
