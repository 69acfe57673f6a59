"""Finds reworded evaluation problems by TF-IDF similarity and shared numbers.

A rewording changes words and variables, but rarely the numbers or the answer.
"""

import functools
import itertools
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import norm

from tools.curation.text import NUMBER_WORDS, numbers, tokens

_BUCKETS = 2**20
_CHUNK = 500  # texts compared at a time, which bounds memory
_PIECE = 4
_BACKGROUND = 20_000  # training texts from which word frequencies are estimated
_COMMON = 0.15  # words in a larger share of the texts have weight 0
_PRIOR = 1.0  # nats added to the weight of all numbers; half to that of common ones


class Match(NamedTuple):
    """Describes a text that may be a rewording of an evaluation problem."""

    row: int  # index of the text
    name: str  # id of the evaluation problem
    words: float  # cosine similarity of the two TF-IDF vectors
    numbers: float  # weighted share of the numbers that are in both texts


class Retrieval:
    """Finds texts that may be rewordings of evaluation problems.

    `problems` has the text of each problem by id. Frequencies of words and numbers are
    counted in the problems and in the first 20,000 texts of `background`.
    """

    def __init__(self, problems: Mapping[str, str], background: Iterable[str]):
        self._names = list(problems)
        texts = [*problems.values(), *itertools.islice(background, _BACKGROUND)]
        self._texts = len(texts)
        self._numbers = [numbers(text) for text in texts]  # problems first
        self._holders = Counter(itertools.chain.from_iterable(self._numbers))
        counts = _counts(texts)
        holders = counts.getnnz(axis=0)
        self._rarity = np.log((1 + self._texts) / (1 + holders)) + 1
        self._rarity[holders > max(2, _COMMON * self._texts)] = 0
        self._vectors = self._weighted(counts[: len(problems)]).T.tocsr()

    def matches(self, texts: Sequence[str]) -> list[Match]:
        """Returns the pairs of a text and a problem that match, in order of the texts.

        A pair matches if numbers >= 0.4 and words >= 0.75 - numbers / 2 (see `Match`).
        """
        matches = []
        for begin in range(0, len(texts), _CHUNK):
            some = texts[begin : begin + _CHUNK]
            found = self._weighted(_counts(some)) @ self._vectors
            found = found.multiply(found >= 0.25).tocoo()
            places = zip(*found.coords, found.data, strict=True)
            counted = [numbers(text) for text in some]
            for row, column, words in sorted(places):
                shared = self._agreement(counted[row], self._numbers[column])
                if shared >= 0.4 and words >= 0.75 - shared / 2:
                    name = self._names[column]
                    matches.append(Match(begin + int(row), name, float(words), shared))
        return matches

    def _weighted(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        weighted = (counts @ sparse.diags(self._rarity)).tocsr()
        weighted.eliminate_zeros()
        length = np.maximum(norm(weighted, axis=1), 1e-6)
        return (sparse.diags(1 / length) @ weighted).tocsr()

    def _agreement(self, left: Counter, right: Counter) -> float:
        """Returns the weighted share of common numbers; 0.5 if there are no numbers."""
        both, either = self._weight(left & right), self._weight(left | right)
        return (both + _PRIOR / 2) / (either + _PRIOR)

    def _weight(self, numbers: Counter) -> float:
        return sum(
            count * math.log((1 + self._texts) / (1 + self._holders[number]))
            for number, count in numbers.items()
        )


def _counts(texts: Sequence[str]) -> sparse.csr_matrix:
    """Returns 1 + log(count) of each feature, or 0 if absent, `[texts, _BUCKETS]`."""
    found = [[*itertools.chain(*map(_features, tokens(text)))] for text in texts]
    columns = np.array([*itertools.chain(*found)], np.int32)
    ends = np.cumsum([0, *map(len, found)])
    ones = np.ones(len(columns), np.float32)
    counts = sparse.csr_matrix((ones, columns, ends), (len(texts), _BUCKETS))
    counts.sum_duplicates()
    counts.data = 1 + np.log(counts.data)
    return counts


@functools.cache
def _features(token: str) -> list[int]:
    """Returns hash buckets of a TeX command, or of a word and its character 4-grams.

    Words for numbers, single letters, digits and symbols have no features.
    """
    names = [token] if token.startswith("\\") else []
    if token.isalpha() and len(token) > 1 and token not in NUMBER_WORDS:
        word = f" {token} "
        pieces = range(len(word) - _PIECE + 1)
        names = [token, *(word[i : i + _PIECE] for i in pieces)]
    return [zlib.crc32(name.encode()) % _BUCKETS for name in names]
