"""A checksum at memory speed, shared by the writer and the reader of weights.

Needs NumPy only: it is imported by the trainer and inside vLLM's workers.
"""

import zlib
from collections.abc import Iterable

import numpy as np

WORDS = 512  # of four bytes, in a row


def checksum(data: np.ndarray) -> int:
    """A 64-bit checksum of an array's bytes, several times as fast as CRC-32.

    The bytes are laid out as rows of 32-bit words; one CRC-32 is taken of the row sums
    and one of the column sums. Sums wrap, so any changed word changes one of each, and
    the two together hold a word's place; bytes that fill no row go into both as they
    are.

    Args:
      data: any C-contiguous array.
    """
    flat = data.reshape(-1).view(np.uint8)
    whole = flat.size - flat.size % (4 * WORDS)
    table = flat[:whole].view(np.uint32).reshape(-1, WORDS)
    columns, rows = (table.sum(axis=axis, dtype=np.uint32) for axis in (0, 1))
    return of_sums(columns, rows, flat[whole:])


def of_sums(columns: np.ndarray, rows: np.ndarray, rest: np.ndarray) -> int:
    """The checksum whose sums somebody else has taken, such as a GPU.

    Args:
      columns, rows: uint32, `[WORDS]` and one for each row.
      rest: uint8, the bytes that fill no row.
    """
    first, second = (zlib.crc32(rest, zlib.crc32(sums)) for sums in (columns, rows))
    return first << 32 | second


def joined(checksums: Iterable[int]) -> int:
    """One of several, in their order."""
    return checksum(np.fromiter(checksums, np.uint64))
