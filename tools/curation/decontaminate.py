"""Training problems that an evaluation set also holds, as they are or nearly so."""

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

from tools.curation.text import exact_key, jaccard, views, word_ngrams


@dataclasses.dataclass(frozen=True, slots=True)
class Overlap:
    """What a row shares with the evaluation problems.

    Attributes:
      exact: ids of problems with the same text.
      near: (id, Jaccard similarity) of problems at or above the threshold.
      ngrams: keys of shared word 13-grams; whether one counts is known only once the
        whole run has been seen, see `boilerplate`.
    """

    exact: tuple[str, ...] = ()
    near: tuple[tuple[str, float], ...] = ()
    ngrams: tuple[int, ...] = ()


class EvaluationIndex:
    """The evaluation problems, for exact, near and 13-gram matches.

    Memory grows with the evaluation sets only: about 150 bytes per word.

    Args:
      problems: id -> text.
      threshold: Jaccard similarity of token 3-grams at which a match is near.
      ngram: words in a run that two texts share.
    """

    def __init__(self, problems: Mapping[str, str], *, threshold: float, ngram: int):
        self.threshold = threshold
        self.ngram = ngram
        self._exact: dict[str, list[str]] = collections.defaultdict(list)
        self._views: dict[str, tuple[frozenset[str], ...]] = {}
        self._holders: dict[tuple[int, str], list[str]] = collections.defaultdict(list)
        self._ngrams: dict[int, list[str]] = collections.defaultdict(list)
        for name, text in problems.items():
            self._exact[exact_key(text)].append(name)
            self._views[name] = views(text)
            for view, held in enumerate(self._views[name]):
                for shingle in held:
                    self._holders[view, shingle].append(name)
            for key in dict.fromkeys(map(_key, word_ngrams(text, ngram))):
                self._ngrams[key].append(name)

    def __len__(self) -> int:
        return len(self._views)

    def overlap(self, text: str) -> Overlap:
        """What `text` shares with the evaluation problems."""
        near: dict[str, float] = collections.defaultdict(float)
        for view, mine in enumerate(views(text)):
            shared = collections.Counter(
                name
                for shingle in mine
                for name in self._holders.get((view, shingle), ())
            )
            for name, count in shared.items():
                theirs = self._views[name][view]
                # The union has at least max(|a|, |b|) members: this bound is safe.
                if count >= self.threshold * max(len(mine), len(theirs)):
                    near[name] = max(near[name], jaccard(mine, theirs))
        found = [(n, round(s, 4)) for n, s in near.items() if s >= self.threshold]
        keys = dict.fromkeys(map(_key, word_ngrams(text, self.ngram)))
        return Overlap(
            exact=tuple(self._exact.get(exact_key(text), ())),
            near=tuple(sorted(found)),
            ngrams=tuple(key for key in keys if key in self._ngrams),
        )

    def holders(self, key: int) -> Sequence[str]:
        """Ids of the evaluation problems that hold a 13-gram."""
        return self._ngrams.get(key, ())


def boilerplate(
    ngrams_of_problems: Iterable[tuple[int, ...]], max_problems: int
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
