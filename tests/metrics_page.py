"""The names that docs/monitoring.md gives, as a pattern of what a run may write."""

import itertools
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "monitoring.md"


def documented() -> re.Pattern[str]:
    """A word in capitals matches any word; `{a,b}` matches a and b."""
    cells = re.findall(r"^\| (`.*?) \| ", PAGE.read_text(), re.M)
    names = [name for cell in cells for name in re.findall(r"`(.*?)`", cell)]
    return re.compile("|".join(one for name in names for one in _patterns(name)))


def _patterns(name: str) -> list[str]:
    parts = re.split(r"\{(.*?)\}", name)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    texts = ("".join(chosen) for chosen in itertools.product(*choices))
    return [re.sub(r"[A-Z]+", r"[\\w./-]+", re.escape(text)) for text in texts]
