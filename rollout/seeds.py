"""Derives all randomness on the host from paths of integers.

Equal paths give equal draws on any machine. NumPy takes a path and the same path with
zeros appended for equal, so one purpose needs paths of one length.
"""

import enum

import numpy as np


class Stream(enum.IntEnum):
    """The purposes for which a run draws seeds."""

    SAMPLING = 0
    SHUFFLING = 1
    EVALUATING = 2


def derive(*path: int) -> int:
    """Returns a seed for other generators: non-negative, 31 bits."""
    return int(np.random.SeedSequence(path).generate_state(1)[0] >> 1)


def generator(*path: int) -> np.random.Generator:
    """Returns the generator of a path."""
    return np.random.default_rng(path)


def run_seed(seed: int, stream: Stream, count: int) -> int:
    """Returns seed number `count` of a stream, in a run with `config.seed = seed`."""
    return derive(len(Stream) * seed + stream, count)
