"""Derives seeds and random generators on the host from paths (tuples of integers).

Equal paths give equal random numbers on any machine. NumPy treats short paths that
differ only in trailing zeros as equal, so all paths of one purpose need equal length.
"""

import enum

import numpy as np


class Stream(enum.IntEnum):
    """Lists the purposes of seeds; each has its own sequence of seeds in a run."""

    SAMPLING = 0
    SHUFFLING = 1
    EVALUATING = 2


def derive(*path: int) -> int:
    """Returns the seed of a path, a non-negative integer of 31 bits."""
    return int(np.random.SeedSequence(path).generate_state(1)[0] >> 1)


def generator(*path: int) -> np.random.Generator:
    return np.random.default_rng(path)


def run_seed(seed: int, stream: Stream, count: int) -> int:
    """Returns seed number `count` of the purpose `stream`; `seed` is `config.seed`."""
    return derive(len(Stream) * seed + stream, count)
