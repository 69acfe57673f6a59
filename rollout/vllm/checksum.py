"""Computes checksums of published weights at memory speed.

Imports only NumPy, because vLLM's workers import this module too.
"""

import zlib

import numpy as np

_WORDS = 512  # 32-bit words per row


def checksum(data: np.ndarray) -> int:
    """Returns a 64-bit checksum of an array's bytes, several times as fast as CRC-32.

    The bytes form rows of 32-bit words. The result combines a CRC-32 of the row sums
    with one of the column sums. Sums wrap, so a changed word changes one sum of each
    kind, and the two sums identify the word's position. Bytes that do not fill a row
    enter both CRCs unchanged.

    Args:
      data: a C-contiguous array.
    """
    flat = data.reshape(-1).view(np.uint8)
    in_rows = flat.size - flat.size % (4 * _WORDS)
    table = flat[:in_rows].view(np.uint32).reshape(-1, _WORDS)
    columns, rows = (table.sum(axis=axis, dtype=np.uint32) for axis in (0, 1))
    first, second = (
        zlib.crc32(flat[in_rows:].data, zlib.crc32(sums.data))
        for sums in (columns, rows)
    )
    return first << 32 | second
