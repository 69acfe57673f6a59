"""Groups in two parts: the rest is drawn only where the first part leaves it open.

Of a group of G completions, G1 are drawn first. Where these are all right, or all
wrong, the group may end there, and is dropped as every group is that teaches nothing.
Some of those that end would have been informative, and which do depends on what they
hold: a group with one right completion in 16 shows it among its first 4 in one case of
4. Groups that are kept are therefore no fair sample of informative ones, and each has
the weight

    1 / (1 - sum over outcomes at which it ends of C(n, G1) / C(G, G1))

where n of the G completions have that outcome. The sum over all groups begun, of weight
times anything that does not depend on the order within a group (its gradient under any
advantage, loss and shaping; the number of its tokens), then has exactly the expectation
that it has over whole groups that are filtered.

Proof. Completions of a group are drawn by the same weights and independently, so given
which G there are, all orders are equally likely. Whether the group is kept depends on
the order through its first G1 alone; these are all of an outcome in C(n, G1) of
C(G, G1) cases. So the weight is one over the chance of being kept, given the
completions, and cancels that chance (Horvitz and Thompson, 1952). Every informative
group has such a chance: with G1 of 2 or more its first part can be mixed. At which
outcomes it ends is settled before it is drawn.

The weight is at most G / G1, and what it costs is variance. The sum over groups kept of
the weight's square, by its expectation V and the completions C that it takes, is what
the two are traded at: going on wherever the first part has one outcome takes from V the
groups that would be missed, each by its weight (`missed`: 1/p - 1 is the chance of
missing it times the weight), and where that is more than V / C for each completion,
a group goes on.

A mini-batch divides by the sum of weights, as it divides by tokens that are as much a
matter of chance: such a quotient has a bias that falls as one over its groups, with two
parts as with one.
"""

import functools
import math

import numpy as np
from jaxtyping import Bool, Float64

from rl.batches.rates import Rate


def stands_for(
    correct: Bool[np.ndarray, " G"], *, first: int, ends: tuple[bool, bool]
) -> float:
    """How many groups one that was completed stands for; see the module's docstring.

    Args:
      correct: of all its completions that have a verdict.
      first: how many of these are of the first part.
      ends: whether it would have ended with a first part all wrong, or all right.
    """
    right = int(correct.sum())
    orders = math.comb(len(correct), first)
    ended = sum(
        math.comb(n, first)
        for n, would in zip((len(correct) - right, right), ends, strict=True)
        if would
    )
    return orders / (orders - ended)


def missed(rate: Rate, first: int, rest: int) -> float:
    """What is missed where a group ends at a first part of one outcome.

    The mean, over what the rest would bring, of the weight of a group that holds as
    much of the other outcome and is kept; 0 where the rest would bring none.

    Args:
      rate: of the other outcome, once the first part is known.
      first, rest: completions.
    """
    return float(np.dot(rate.counts(rest)[1:], _weights(first, rest)))


@functools.cache
def _weights(first: int, rest: int) -> Float64[np.ndarray, " rest"]:
    """Of groups that hold so many of the other outcome, from one on."""
    size = first + rest
    alike = [math.comb(size - others, first) for others in range(1, rest + 1)]
    return 1 / (1 - np.array(alike) / math.comb(size, first))
