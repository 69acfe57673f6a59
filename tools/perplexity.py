"""Measures the perplexity of texts, to find abilities that training has reduced.

    python -m tools.perplexity --text A.txt,B.txt,C.txt MODEL [MODEL ...] [--json OUT]

A model is a Hugging Face folder, a run's workdir or a hub id. All other models are
compared with the first one, window by window. The interval of the difference needs at
least three texts and 40 windows. Texts get no prompt template. Each window begins with
the tokenizer's begin-of-text token, if any. Use texts unrelated to the training data.
"""

import argparse
import hashlib
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.reading import user_path
from rl.files import damaged
from rl.processes.devices import start_cpu_devices
from rl.progress import phase
from rl.statistics import t_interval
from tools import command, logprobs, page
from tools.evaluation.pretrained import Pretrained, find_pretrained

TEXTS, WINDOWS = 3, 40  # minimum numbers for the interval of a difference


def windows(ids: Sequence[int], length: int) -> list[Sequence[int]]:
    """Splits token ids into windows of about equal length, at most `length` tokens.

    Each window after the first begins with the last token of the previous window.
    """
    count = math.ceil((len(ids) - 1) / (length - 1))
    edges = np.linspace(0, len(ids) - 1, count + 1).round().astype(int)
    return [ids[start : end + 1] for start, end in itertools.pairwise(edges)]


def score(model: Pretrained, texts: Sequence[str], *, context: int) -> dict[str, Any]:
    """Scores texts under a model, in windows of at most `context` tokens.

    In the result, `nats` is the mean of -log p over all tokens except the first one of
    each text. `of_windows` has the mean over each window. `bits_per_byte` is the sum of
    -log2 p, divided by the number of UTF-8 bytes. Raises ValueError if a text or window
    has fewer than 2 tokens.
    """
    begin, ids = logprobs.encode_texts(model, texts)
    length = context - len(begin)
    for number, of_text in enumerate(ids, 1):
        if len(of_text) < 2 or length < 2:
            raise ValueError(
                f"text {number} of --text: length {len(of_text)}, window {length}: both"
                " must be at least 2 tokens; use a longer --text or --context"
            )
    cut = [window for of_text in ids for window in windows(of_text, length)]
    sequences = [[*begin, *window] for window in cut]
    with phase("score", str(model.folder), total=len(cut), unit="windows") as scored:
        rows = logprobs.score(
            model, sequences, context=context, on_scored=scored.update
        )
    # The first token of a window is scored in the previous window.
    found = [-row[len(begin) + 1 :].astype(np.float64) for row in rows]
    every = np.concatenate(found)
    return {
        "tokens": len(every),
        "nats": float(every.mean()),
        "bits_per_byte": float(every.sum())
        / math.log(2)
        / len("".join(texts).encode()),
        "of_windows": [float(of_window.mean()) for of_window in found],
        "texts": len(texts),
        "ids": hashlib.sha256(str(ids).encode()).hexdigest(),
    }


def compared(
    first: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Compares two results of `score`: `other` minus `first`, in nats per token.

    Returns the `difference` and its 95% `interval`, which is None for too few texts or
    windows. Returns None if the token ids or the numbers of windows differ.
    """
    same_ids = first["ids"] == other["ids"]
    if not same_ids or len(first["of_windows"]) != len(other["of_windows"]):
        return None
    differences = np.subtract(other["of_windows"], first["of_windows"])
    enough = first["texts"] >= TEXTS and len(differences) >= WINDOWS
    return {
        "difference": other["nats"] - first["nats"],
        "interval": t_interval(differences.tolist()) if enough else None,
    }


def markdown(result: Mapping[str, Any]) -> str:
    rows: list[dict[str, str]] = []
    for name, part in result["models"].items():
        difference = "tokens differ" if rows else ""
        if against := part.get("against_first"):
            pair = against["difference"], against["interval"]
            difference = page.with_interval(*pair, "+.4f")
        rows.append(
            {
                "model": name,
                "tokens": f"{part['tokens']:,}",
                "nats per token": f"{part['nats']:.4f}",
                "perplexity": f"{math.exp(part['nats']):.3f}",
                "bits per byte": f"{part['bits_per_byte']:.4f}",
                "nats above the first": difference,
            }
        )
    note = (
        "Brackets are 95% intervals over paired windows (Student's t), for at least"
        f" {TEXTS} texts and {WINDOWS} windows."
    )
    return page.markdown("Perplexity", [page.Section("", rows, note)])


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL")
    add("--text", required=True, help="UTF-8 files, comma-separated")
    add("--context", type=int, default=1024, help="tokens per window (default 1024)")
    add("--dtype", default="auto", help="auto: that of config.json")
    return command.run(_measure, parser.parse_args(argv))


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    paths, texts = [user_path(name) for name in arguments.text.split(",")], []
    for path in paths:
        with damaged(path, "convert it to UTF-8"):
            texts.append(path.read_bytes().decode("utf-8"))  # with its line ends
    start_cpu_devices(0, rows=1)
    found = {name: find_pretrained(name, arguments.dtype) for name in arguments.models}
    models = {
        name: score(model, texts, context=arguments.context)
        for name, model in found.items()
    }
    first, *others = models.values()
    for other in others:
        other["against_first"] = compared(first, other)
    text = ",".join(map(str, paths))
    result = {"text": text, "context": arguments.context, "models": models}
    print(markdown(result))
    return result


if __name__ == "__main__":
    sys.exit(main())
