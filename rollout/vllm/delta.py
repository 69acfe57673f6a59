"""What changed between two versions of a tensor: the places and their new bits.

At a small learning rate few of a served dtype's values move in one publish, and a place
and its new bits are three bytes in bfloat16. A delta is

    8 bytes: how many places changed | one byte or more per place | the new bits

where a place is written as its distance from the one before, in bytes that are summed:
255 says that another byte follows. Needs NumPy only: it is imported by the trainer and
inside vLLM's workers.
"""

import numpy as np

_MORE = 255
_HEAD = 8
_BLOCK = 1 << 18  # values, so that words of 8 bytes fit
_SAMPLE = 4096
# Of the tensor's bytes: to find more changes costs the writer more than it saves.
MOST = 0.25


def encode(old: np.ndarray, new: np.ndarray) -> np.ndarray | None:
    """What makes `old` into `new`; None where the whole tensor is the better way.

    Args:
      old, new: C-contiguous, of one shape and dtype.

    Returns:
      uint8, at most `MOST` of the tensor's bytes; eight bytes if nothing changed.
    """
    old, new = _bits(old), _bits(new)
    places = _changed(old, new)
    if places is None:
        return None
    gaps = np.diff(places, prepend=0)
    far = np.flatnonzero(gaps >= _MORE)
    steps = gaps.astype(np.uint8)
    steps[far] = gaps[far] % _MORE
    steps = np.insert(steps, np.repeat(far, gaps[far] // _MORE), _MORE)
    head = np.array([places.size], np.uint64)
    delta = np.concatenate([part.view(np.uint8) for part in (head, steps, new[places])])
    return delta if delta.size <= max(_HEAD, MOST * new.nbytes) else None


def apply(tensor: np.ndarray, delta: np.ndarray) -> None:
    """Changes `tensor` in place.

    Args:
      tensor: C-contiguous, writable, as `encode` saw it as `old`.
      delta: uint8, from `encode`. That it has arrived as it was sent is for the
        caller to check on the result.

    Raises:
      ValueError: no delta of such a tensor looks like this; nothing was changed.
    """
    bits = _bits(tensor)
    count = int(delta[:_HEAD].view(np.uint64)[0]) if delta.size >= _HEAD else -1
    split = delta.size - count * bits.itemsize
    if count < 0 or split < _HEAD + count:
        raise ValueError(f"a delta of {delta.size} bytes for {count} changes")
    steps = delta[_HEAD:split]
    places = np.cumsum(steps, dtype=np.int64)[steps != _MORE]
    if places.size != count or (count and places[-1] >= bits.size):
        raise ValueError(f"{places.size} places for {count} changes of {bits.size}")
    bits[places] = delta[split:].view(bits.dtype)


def _changed(old: np.ndarray, new: np.ndarray) -> np.ndarray | None:
    """Flat places at which the bits differ, or None if a sample says: too many."""
    sample = slice(None, None, max(1, new.size // _SAMPLE))
    share = np.mean(old[sample] != new[sample]) if new.size else 0.0
    if share * (1 + new.itemsize) > 1.2 * MOST * new.itemsize:
        return None
    per = 8 // new.itemsize
    shift = per.bit_length() - 1
    whole = new.size - new.size % per
    found = [whole + np.flatnonzero(old[whole:] != new[whole:])]
    # Places are rare among words, and a block stays in the cache between two looks.
    for start in reversed(range(0, whole, _BLOCK)):
        before, after = (
            x[start : min(start + _BLOCK, whole)].view(np.uint64) for x in (old, new)
        )
        words = np.flatnonzero(before != after)
        hits = np.flatnonzero(
            before[words].view(new.dtype) != after[words].view(new.dtype)
        )
        found.append(start + (words[hits >> shift] << shift) + (hits & (per - 1)))
    return np.concatenate(found[::-1])


def _bits(tensor: np.ndarray) -> np.ndarray:
    return tensor.reshape(-1).view(f"u{tensor.itemsize}")
