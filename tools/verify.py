"""Judges files of answer pairs, or explains one verdict.

    python -m tools.verify PAIRS.jsonl [--json OUT]
    python -m tools.verify --pred ANSWER --gold GOLD [--problem TEXT] [--explain]

A row of PAIRS has `gold` (or a list `golds`) and `pred`. `pred` is an answer, or a
complete model response if the row has `"mode": "response"`. Verdicts are compared with
the boolean `label` of rows that have one.
--pred and --gold explain one verdict: how both were parsed, which rule decided and why.
"""

import argparse
import collections
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

from configs.reading import user_path
from rl.files import read_rows
from rl.progress import each
from rl.verifier import VERSION, Examiner, extract_answer, is_equivalent
from rl.verifier.parse.answers import parse_answer
from tools import command

# types of a row's fields
_PAIR = {
    "gold": str | None,
    "golds": Sequence[str] | None,
    "pred": str,
    "mode": Literal["answer", "response"] | None,
    "label": bool | None,
}


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("files", nargs="*", type=user_path, metavar="FILE.jsonl")
    add("--pred", metavar="ANSWER", help="the answer, without \\boxed")
    add("--gold", metavar="GOLD", help="the gold answer")
    text = "problem text, to reject copies and to check requested units"
    add("--problem", metavar="TEXT", help=text)
    add("--explain", action="store_true", help="with --pred: also show sympy objects")
    add("--list", type=int, default=20, metavar="N", help="print at most N rows (20)")
    words = [*(sys.argv[1:] if argv is None else argv)]
    for i in range(len(words) - 1, 0, -1):
        is_text = words[i - 1] in ("--pred", "--gold", "--problem")
        if is_text and not words[i].startswith("--"):
            # argparse takes a value such as `-\frac12` for a flag, unless joined by =.
            words[i - 1 : i + 1] = [f"{words[i - 1]}={words[i]}"]
    arguments = parser.parse_args(words)
    texts = arguments.pred is not None, arguments.gold is not None
    if texts != ((False, False) if arguments.files else (True, True)):
        parser.error("give either files, or both --pred and --gold")
    return command.run(_verify, arguments)


def _verify(arguments: argparse.Namespace) -> dict:
    if arguments.pred is not None:
        texts = arguments.pred, arguments.gold, arguments.problem
        result = explain(*texts, in_sympy=arguments.explain)
    else:
        result = judge_pairs(arguments.files)
    _show(result, arguments.list)
    return result


def explain(
    answer: str, gold: str, problem: str | None = None, *, in_sympy: bool = False
) -> dict:
    """Explains one verdict: the parsed answer and gold, the rule and its reason.

    `in_sympy` adds the answer and the gold as sympy objects.
    """
    verdict = Examiner([gold], problem).judge(answer)
    texts = {"answer": answer, "gold": gold} if in_sympy else {}
    return {
        "verifier": VERSION,
        "answer read as": _reading(answer),
        "gold read as": _reading(gold),
        **{f"{name} in sympy": _in_sympy(text) for name, text in texts.items()},
        "equivalent": is_equivalent(answer, gold),
        "correct": verdict.correct,
        "rule": verdict.rule,
        "reason": verdict.reason,
    }


def _reading(answer: str) -> str:
    parsed = parse_answer(answer)
    if parsed.node is None:
        return f"text only, because it {parsed.reason}"
    return str(parsed.written)


def _in_sympy(answer: str) -> str:
    try:
        return repr(parse_answer(answer).to_sympy())
    except (ValueError, TypeError, NotImplementedError) as error:
        return str(error)


def judge_pairs(paths: list[pathlib.Path]) -> dict:
    """Judges each row of the files, and computes the agreement with labels."""
    verdicts: list[dict] = []
    agreement: collections.Counter[tuple[bool, bool]] = collections.Counter()
    started = time.perf_counter()
    rows = [pair for path in paths for pair in read_rows(path, fields=_PAIR)]
    if not rows:
        names = ", ".join(map(str, paths))
        raise ValueError(f"{names}: contains no pairs; give rows with gold and pred")
    for where, row in each(rows, "verify", "pairs"):
        golds, predicted = row.get("golds") or [row.get("gold")], row["pred"]
        if None in golds:
            raise ValueError(f"{where}: has neither 'gold' nor 'golds'; add one")
        label, is_response = row.get("label"), row.get("mode") == "response"
        answer = extract_answer(predicted) if is_response else predicted
        correct = answer is not None and any(is_equivalent(answer, g) for g in golds)
        verdict = {"id": row.get("id"), "correct": correct, "answer": answer}
        if label is not None:
            verdict |= {"label": label, "gold": golds, "pred": predicted[-200:]}
            agreement[label, correct] += 1
        verdicts.append(verdict)
    result: dict[str, Any] = {
        "verifier": VERSION,
        "pairs": len(verdicts),
        "correct": sum(bool(v["correct"]) for v in verdicts),
        "pairs_per_second": len(verdicts) / (time.perf_counter() - started),
    }
    if labelled := agreement.total():
        result |= {
            "agreement": (agreement[True, True] + agreement[False, False]) / labelled,
            "false_positives": agreement[False, True],
            "false_negatives": agreement[True, False],
        }
    return result | {"verdicts": verdicts}


def _show(result: dict, limit: int) -> None:
    for key, value in result.items():
        if not isinstance(value, list):
            shown = f"{value:.4f}" if isinstance(value, float) else value
            print(f"{key:18} {shown}")
    verdicts = result.get("verdicts", [])
    wrong = [v for v in verdicts if v.get("label", v["correct"]) != v["correct"]]
    for row in wrong[:limit]:
        print(f"{row['id']}: {row['gold']} | {row['pred']!r}: label {row['label']}")


if __name__ == "__main__":
    sys.exit(main())
