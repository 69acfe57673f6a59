"""Training problems that an evaluation set also holds, as they are or nearly so."""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.retrieval import Retrieval
from tools.curation.row import Screened
from tools.curation.text import band_hashes, exact_key, similarity, word_ngrams

_CHUNK = 500


def decontaminate(plan: Plan, rows: Sequence[Screened], judge: AnswerJudge) -> None:
    """Gives rows that an evaluation set also holds the reason that says so."""
    index = EvaluationIndex(
        plan.evaluation_texts,
        threshold=plan.near.contamination_threshold,
        ngram=plan.ngram,
    )
    overlaps = [index.overlap(row.problem, row.bands) for row in rows]
    texts = {row.key: o for row, o in zip(rows, overlaps, strict=True)}
    common = boilerplate((o.ngrams for o in texts.values()), plan.ngram_max_problems)
    for row, overlap in zip(rows, overlaps, strict=True):
        runs = [key for key in overlap.ngrams if key not in common]
        if overlap.near:
            matches = [f"{name} ({score:.2f})" for name, score in overlap.near]
            nearest, _ = max(overlap.near, key=lambda match: match[1])
            row.against("evaluation_near", ", ".join(matches), plan.seen(nearest))
        elif runs:
            names = list(dict.fromkeys(itertools.chain(*map(index.holders, runs))))
            said = ", ".join(names[:3])
            row.against("evaluation_ngram", said, plan.seen(names[0]))
    if plan.evaluation:
        _drop_reworded(plan, [row for row in rows if row.survives], judge)


def _drop_reworded(plan: Plan, rows: Sequence[Screened], judge: AnswerJudge) -> None:
    """Rows that ask an evaluation problem in other words and have its answer."""
    index = Retrieval(plan.evaluation_texts, (row.problem for row in rows))
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
                said = f"{match.name} ({score})"
                row.against("evaluation_reworded", said, plan.seen(match.name))


@dataclasses.dataclass(frozen=True, slots=True)
class Overlap:
    """What a row shares with the evaluation problems.

    Attributes:
      near: (id, similarity) of problems at or above the threshold; 1 is word for word.
      ngrams: keys of shared word 13-grams; whether one counts is known only once the
        whole run has been seen, see `boilerplate`.
    """

    near: tuple[tuple[str, float], ...] = ()
    ngrams: tuple[int, ...] = ()


class EvaluationIndex:
    """The evaluation problems, for near and 13-gram matches.

    Args:
      problems: id -> text.
      threshold: `duplicates.similarity` at which a match is near.
      ngram: words in a run that two texts share.
    """

    def __init__(self, problems: Mapping[str, str], *, threshold: float, ngram: int):
        self._problems = problems
        self._threshold = threshold
        self._ngram = ngram
        self._exact: dict[str, list[str]] = collections.defaultdict(list)
        self._bands: dict[int, list[str]] = collections.defaultdict(list)
        self._ngrams: dict[int, list[str]] = collections.defaultdict(list)
        for name, text in problems.items():
            self._exact[exact_key(text)].append(name)
            for band in band_hashes(text):
                self._bands[band].append(name)
            for key in self._keys(text):
                self._ngrams[key].append(name)

    def overlap(self, text: str, bands: Sequence[int] | None = None) -> Overlap:
        """What `text`, whose `band_hashes` may be given, shares with the problems."""
        bands = band_hashes(text) if bands is None else bands
        # Word for word though set otherwise: 1{,}000 and 1000 share few 3-grams.
        same = self._exact.get(exact_key(text), ())
        met = {name for band in bands for name in self._bands.get(band, ())}
        near = [
            (n, 1.0 if n in same else round(similarity(text, self._problems[n]), 4))
            for n in sorted(met.union(same))
        ]
        return Overlap(
            near=tuple((n, score) for n, score in near if score >= self._threshold),
            ngrams=tuple(key for key in self._keys(text) if key in self._ngrams),
        )

    def holders(self, key: int) -> Sequence[str]:
        """Ids of the evaluation problems that hold a 13-gram."""
        return self._ngrams.get(key, ())

    def _keys(self, text: str) -> dict[int, None]:
        return dict.fromkeys(map(_key, word_ngrams(text, self._ngram)))


def boilerplate(
    ngrams_of_problems: Iterable[Sequence[int]], max_problems: int
) -> frozenset[int]:
    """13-grams that too many different training problems share to mean anything.

    "where m and n are relatively prime positive integers, find m + n" is no leak. As in
    the GPT-3 paper (arXiv 2005.14165, appendix C), a 13-gram found in more than a few
    documents is not evidence.

    Args:
      ngrams_of_problems: the `Overlap.ngrams` of each distinct problem.
      max_problems: most problems that may share a 13-gram that counts.
    """
    counts = collections.Counter(key for keys in ngrams_of_problems for key in keys)
    return frozenset(key for key, count in counts.items() if count > max_problems)


def _key(ngram: str) -> int:
    digest = hashlib.blake2b(ngram.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
