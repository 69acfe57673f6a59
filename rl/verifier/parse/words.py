"""Defines numbers and phrases in words, with their values."""

from collections.abc import Iterator
from fractions import Fraction

from . import tree as t

COUNTING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen"
    " fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
PARTS = "half third quarter fifth sixth seventh eighth ninth tenth".split()


def spoken_numbers() -> Iterator[tuple[str, Fraction]]:
    yield from ((word, Fraction(n)) for n, word in enumerate(COUNTING))
    for tens, word in enumerate(TENS, start=2):
        yield word, Fraction(10 * tens)
        for n in range(1, 10):
            yield f"{word} {COUNTING[n]}", Fraction(10 * tens + n)
    yield from ((f"{word} hundred", Fraction(100)) for word in ("a", "one"))
    for bottom, word in [*enumerate(PARTS, start=2), (4, "fourth")]:
        yield from ((f"{one} {word}", Fraction(1, bottom)) for one in ("a", "one"))
        for top in range(2, bottom):
            yield f"{COUNTING[top]} {word}s", Fraction(top, bottom)


PHRASES: dict[str, t.Node] = {
    **{words: t.number(value) for words, value in spoken_numbers()},
    **dict.fromkeys(["all real numbers", "all reals", "all real"], t.REALS),
    "dne": t.Word("does not exist"),
    **dict.fromkeys(
        ["no solution", "no solutions", "empty set", "no real solutions"]
        + ["no real solution", "the empty set", "none"],
        t.Braces(()),
    ),
    **dict.fromkeys(["dozen", "a dozen", "one dozen"], t.number(12)),
}
