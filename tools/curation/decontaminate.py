"""Training problems that an evaluation set also holds, as they are or nearly so."""

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence

from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.retrieval import Retrieval
from tools.curation.row import Row
from tools.curation.text import band_hashes, exact_key, similarity, word_ngrams

_CHUNK = 500


def decontaminate(plan: Plan, rows: Sequence[Row], judge: AnswerJudge) -> None:
    """Gives rows that an evaluation set also holds the reason that says so."""
    if not plan.evaluation:
        return
    texts = {name: problem.problem for name, problem in plan.evaluation.items()}
    index = EvaluationIndex(
        texts, threshold=plan.near.contamination_threshold, ngram=plan.ngram
    )
    runs = [index.runs(row.problem) for row in rows]
    of_texts = {row.key: found for row, found in zip(rows, runs, strict=True)}
    common = boilerplate(of_texts.values(), plan.ngram_max_problems)
    for row, found in zip(rows, runs, strict=True):
        near = index.near(row.problem, row.bands)
        telling = [run for run in found if run not in common]
        if near:
            matches = [f"{name} ({score:.2f})" for name, score in near.items()]
            nearest = plan.evaluation[max(near, key=near.__getitem__)]
            row.against("evaluation_near", ", ".join(matches), nearest)
        elif telling:
            names = dict.fromkeys(itertools.chain(*map(index.holders, telling)))
            first, *_ = names
            said = ", ".join(itertools.islice(names, 3))
            row.against("evaluation_ngram", said, plan.evaluation[first])
    _drop_reworded(plan, texts, [row for row in rows if row.survives], judge)


def _drop_reworded(
    plan: Plan, texts: Mapping[str, str], rows: Sequence[Row], judge: AnswerJudge
) -> None:
    """Rows that ask an evaluation problem in other words and have its answer."""
    index = Retrieval(texts, (row.problem for row in rows))
    for begin in range(0, len(rows), _CHUNK):
        chunk = rows[begin : begin + _CHUNK]
        matches = index.matches([row.problem for row in chunk])
        equal = judge.equal_pairs(
            [(chunk[m.row].answers, plan.evaluation[m.name].answers) for m in matches]
        )
        for match, same in zip(matches, equal, strict=True):
            row = chunk[match.row]
            if same and row.survives:
                score = f"words {match.words:.2f}, numbers {match.numbers:.2f}"
                other = plan.evaluation[match.name]
                row.against("evaluation_reworded", f"{match.name} ({score})", other)


class EvaluationIndex:
    """The evaluation problems, for near and n-gram matches.

    Args:
      problems: id -> text.
      threshold: `text.similarity` at which a match is near.
      ngram: words in a run that two texts share.
    """

    def __init__(self, problems: Mapping[str, str], *, threshold: float, ngram: int):
        self._problems = problems
        self._threshold = threshold
        self._ngram = ngram
        # exact key or hash of a band -> who has it; and so for runs of words
        self._met: dict[str | int, list[str]] = collections.defaultdict(list)
        self._runs: dict[str, list[str]] = collections.defaultdict(list)
        for name, text in problems.items():
            for key in (exact_key(text), *band_hashes(text)):
                self._met[key].append(name)
            for run in dict.fromkeys(word_ngrams(text, ngram)):
                self._runs[run].append(name)

    def near(self, text: str, bands: Iterable[int] | None = None) -> dict[str, float]:
        """Problems at or above the threshold, with their similarity to `text`.

        Word for word is 1, however it is set: `1{,}000` and `1000` share few 3-grams.

        Args:
          text: of a problem.
          bands: its `band_hashes`, where they are known.
        """
        same = self._met.get(exact_key(text), ())
        bands = band_hashes(text) if bands is None else bands
        met = {name for band in bands for name in self._met.get(band, ())}
        scores = {
            n: 1.0 if n in same else round(similarity(text, self._problems[n]), 4)
            for n in sorted(met.union(same))
        }
        return {n: score for n, score in scores.items() if score >= self._threshold}

    def runs(self, text: str) -> list[str]:
        """Runs of words that a problem has too.

        Whether one counts is known only once all texts have been seen: `boilerplate`.
        """
        runs = dict.fromkeys(word_ngrams(text, self._ngram))
        return [run for run in runs if run in self._runs]

    def holders(self, run: str) -> Sequence[str]:
        """Ids of the evaluation problems that have a run of words."""
        return self._runs.get(run, ())


def boilerplate(
    runs_of_problems: Iterable[Sequence[str]], max_problems: int
) -> frozenset[str]:
    """Runs that too many different training problems share to mean anything.

    "where m and n are relatively prime positive integers, find m + n" is no leak. As in
    the GPT-3 paper (arXiv 2005.14165, appendix C), a 13-gram found in more than a few
    documents is not evidence.

    Args:
      runs_of_problems: what `EvaluationIndex.runs` gives of each distinct problem.
      max_problems: most problems that may share a run that counts.
    """
    counts = collections.Counter(run for runs in runs_of_problems for run in runs)
    return frozenset(run for run, count in counts.items() if count > max_problems)
