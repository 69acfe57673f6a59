"""All chance on the host: numbers on a path, hashed. Imports nothing of ours.

Equal paths give equal draws on any machine, and two of one length give unrelated ones.
To NumPy a short path is the same with zeros behind it: paths of several lengths must
not draw the same kind of thing.
"""

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What a run draws seeds for; no two share a path."""

    SAMPLING = 0
    SHUFFLING = 1
    EVALUATING = 2


def derive(*path: int) -> int:
    """A seed for others' generators: non-negative, 31 bits."""
    return int(np.random.SeedSequence(path).generate_state(1)[0] >> 1)


def generator(*path: int) -> np.random.Generator:
    """A generator of its own for a path."""
    return np.random.default_rng(path)


def run_seed(seed: int, stream: Stream, count: int) -> int:
    """Returns seed number `count` of a stream, in a run with `config.seed = seed`."""
    return derive(len(Stream) * seed + stream, count)
