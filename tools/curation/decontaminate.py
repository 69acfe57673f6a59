"""Finds training problems that an evaluation set also holds."""

import collections
import itertools
import re
from collections.abc import Mapping, Sequence

from rl.problems.types import Problem
from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.retrieval import Retrieval
from tools.curation.row import Row
from tools.curation.text import band_hashes, exact_key, similarity, word_ngrams

# A run of words that more training problems have is boilerplate: arXiv 2005.14165, C.
_FEW = 10
_FRACTION = re.compile(r"(?:\\[dt]?frac\s*)?\{?(\d+)(?:/|\}\s*\{)(\d+)\}?")
_SUM = re.compile(r"\b[a-z]\s*\+\s*[a-z]\W*\Z")


def decontaminate(plan: Plan, rows: Sequence[Row], judge: AnswerJudge) -> None:
    """Marks the rows that match an evaluation problem."""
    if not plan.evaluation:
        return
    texts = {name: problem.problem for name, problem in plan.evaluation.items()}
    index = EvaluationIndex(texts, threshold=plan.near.contamination_threshold)
    runs = [index.runs(row.problem) for row in rows]
    of_texts = {row.key: found for row, found in zip(rows, runs, strict=True)}
    problems = collections.Counter(itertools.chain(*of_texts.values()))
    for row, found in zip(rows, runs, strict=True):
        told = [run for run in found if problems[run] <= _FEW]
        if near := index.near(row):
            matches = ", ".join(f"{name} ({score:.2f})" for name, score in near.items())
            nearest = max(near, key=near.__getitem__)
            row.against("evaluation_near", matches, plan.evaluation[nearest])
        elif told:
            names = list(dict.fromkeys(name for run in told for name in found[run]))
            said = ", ".join(names[:3])
            row.against("evaluation_ngram", said, plan.evaluation[names[0]])
    left = [row for row in rows if row.survives]
    asked = [row.problem for row in left]
    reworded = Retrieval(texts, asked).matches(asked)
    pairs = [(left[m.row], plan.evaluation[m.name]) for m in reworded]
    equal = judge.equal_pairs(
        [(_asked_as(row, other), _asked_as(other, row)) for row, other in pairs]
    )
    for match, (row, other), same in zip(reworded, pairs, equal, strict=True):
        if same and row.survives:
            score = f"words {match.words:.2f}, numbers {match.numbers:.2f}"
            row.against("evaluation_reworded", f"{match.name} ({score})", other)


def _asked_as(problem: Row | Problem, beside: Row | Problem) -> list[str]:
    """Returns its answers, and m + n for each m/n if the other asks for m + n."""
    fractions = map(
        _FRACTION.fullmatch, problem.answers if _SUM.search(beside.problem) else ()
    )
    sums = [str(sum(map(int, one.groups()))) for one in fractions if one]
    return [*problem.answers, *sums]


class EvaluationIndex:
    """Indexes evaluation problems (id -> text) for n-gram and near matches."""

    def __init__(self, problems: Mapping[str, str], *, threshold: float):
        self._problems, self._threshold = problems, threshold
        # exact key or hash of a band -> who has it; and so for runs of words
        self._met: dict[str | int, list[str]] = collections.defaultdict(list)
        self._runs: dict[str, list[str]] = collections.defaultdict(list)
        for name, text in problems.items():
            keys: list[str | int] = [exact_key(text), *band_hashes(text)]
            for key in keys:
                self._met[key].append(name)
            for run in dict.fromkeys(word_ngrams(text)):
                self._runs[run].append(name)

    def near(self, row: Row) -> dict[str, float]:
        """Returns the problems at or above the threshold, with their similarity.

        Word for word is 1, however it is set: `1{,}000` and `1000` share few 3-grams.
        """
        same = self._met.get(row.key, ())
        met = {n for band in row.bands for n in self._met.get(band, ())}
        scores = {
            n: 1.0 if n in same else similarity(row.problem, self._problems[n])
            for n in sorted(met.union(same))
        }
        return {n: score for n, score in scores.items() if score >= self._threshold}

    def runs(self, text: str) -> dict[str, Sequence[str]]:
        """Returns the runs of words that problems share, each with their ids."""
        return {n: self._runs[n] for n in word_ngrams(text) if n in self._runs}
