"""Finds training problems that also occur in an evaluation set."""

import collections
import itertools
import re
from collections.abc import Mapping, Sequence

from rl.problems.audit import agree
from rl.problems.types import Problem
from tools.curation.retrieval import Retrieval
from tools.curation.row import Row
from tools.curation.text import NEAR, band_hashes, exact_key, similarity, word_ngrams

# A word n-gram that occurs in more training problems than this is boilerplate, as in
# GPT-3 (arXiv 2005.14165, appendix C).
_FEW = 10
_FRACTION = re.compile(r"(?:\\[dt]?frac\s*)?\{?(\d+)(?:/|\}\s*\{)(\d+)\}?")
_SUM = re.compile(r"\b[a-z]\s*\+\s*[a-z]\W*\Z")


def decontaminate(rows: Sequence[Row], evaluation: Mapping[str, Problem]) -> None:
    """Drops the rows that match a problem of `evaluation`, which is by id."""
    if not evaluation:
        return
    texts = {name: problem.problem for name, problem in evaluation.items()}
    index = EvaluationIndex(texts)
    runs = [index.runs(row.problem) for row in rows]
    of_texts = {row.key: found for row, found in zip(rows, runs, strict=True)}
    holders = collections.Counter(itertools.chain(*of_texts.values()))
    for row, found in zip(rows, runs, strict=True):
        rare = [run for run in found if holders[run] <= _FEW]
        if near := index.near(row):
            scores = (f"{name} ({score:.2f})" for name, score in near.items())
            row.reasons["evaluation_near"] = ", ".join(scores)
        elif rare:
            names = list(dict.fromkeys(name for run in rare for name in found[run]))
            row.reasons["evaluation_ngram"] = ", ".join(names[:3])
    left = [row for row in rows if row.survives]
    problems = [row.problem for row in left]
    for match in Retrieval(texts, problems).matches(problems):
        row, other = left[match.row], evaluation[match.name]
        asked = _as_asked_by(other, row.answers), _as_asked_by(row, other.answers)
        if row.survives and agree(*asked):
            score = f"words {match.words:.2f}, numbers {match.numbers:.2f}"
            row.reasons["evaluation_reworded"] = f"{match.name} ({score})"


def _as_asked_by(other: Row | Problem, answers: Sequence[str]) -> list[str]:
    """Returns `answers`, and m + n for each answer m/n if `other` asks for a sum."""
    fractions = map(_FRACTION.fullmatch, answers if _SUM.search(other.problem) else ())
    sums = [str(sum(map(int, one.groups()))) for one in fractions if one]
    return [*answers, *sums]


class EvaluationIndex:
    """Finds evaluation problems that resemble a row; `problems` are texts by id."""

    def __init__(self, problems: Mapping[str, str]):
        self._problems = problems
        # Ids of problems by exact key or band hash, and by word n-gram.
        self._met: dict[str | int, list[str]] = collections.defaultdict(list)
        self._runs: dict[str, list[str]] = collections.defaultdict(list)
        for name, text in problems.items():
            keys: list[str | int] = [exact_key(text), *band_hashes(text)]
            for key in keys:
                self._met[key].append(name)
            for run in dict.fromkeys(word_ngrams(text)):
                self._runs[run].append(name)

    def near(self, row: Row) -> dict[str, float]:
        """Returns similarities of at least `NEAR` to the row, by problem id.

        Only problems that share the key or a band hash with the row are compared.
        """
        # The 3-grams of copies with other typesetting, such as 1{,}000, may differ.
        same = self._met.get(row.key, ())
        met = {n for band in row.bands for n in self._met.get(band, ())}
        scores = {
            n: 1.0 if n in same else similarity(row.problem, self._problems[n])
            for n in sorted(met.union(same))
        }
        return {n: score for n, score in scores.items() if score >= NEAR}

    def runs(self, text: str) -> dict[str, Sequence[str]]:
        """Returns ids of problems that contain a word n-gram of `text`, by n-gram."""
        return {n: self._runs[n] for n in word_ngrams(text) if n in self._runs}
