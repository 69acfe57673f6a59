"""Explains a verdict, or checks that the gold answers of data files can be verified.

    python -m tools.verify --pred ANSWER --gold GOLD [--problem TEXT] [--explain]
    python -m tools.verify --self_check DATA.jsonl ... [--json OUT]

--pred and --gold explain one verdict: how both were parsed, which rule decided and why.
--self_check compares each gold answer of the files with itself. It lists the answers
that the verifier cannot check. `tools.bench verifier` judges files of labelled pairs.
"""

import argparse
import pathlib
import sys

from configs.reading import output_file, user_path
from rl.files import read_rows, replace_json
from rl.progress import each
from rl.verifier import VERSION, Examiner, is_equivalent, self_check
from rl.verifier.parse.answers import parse_answer


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--pred", metavar="ANSWER", help="the answer, without \\boxed")
    add("--gold", metavar="GOLD", help="the gold answer")
    text = "problem text, to reject copies and to check requested units"
    add("--problem", metavar="TEXT", help=text)
    add("--explain", action="store_true", help="with --pred: also show sympy objects")
    text = "check the gold answers of these files"
    add("--self_check", nargs="+", type=user_path, metavar="DATA.jsonl", help=text)
    add("--list", type=int, default=20, metavar="N", help="print at most N rows (20)")
    add("--json", type=output_file, metavar="OUT", help="also write the result here")
    words = [*(sys.argv[1:] if argv is None else argv)]
    for i in range(len(words) - 1, 0, -1):
        if words[i - 1] in ("--pred", "--gold", "--problem"):
            # argparse takes a value such as `-\frac12` for a flag, unless joined by =.
            words[i - 1 : i + 1] = [f"{words[i - 1]}={words[i]}"]
    arguments = parser.parse_args(words)
    explained = arguments.pred is not None and arguments.gold is not None
    if explained == bool(arguments.self_check):
        parser.error("give either --self_check, or both --pred and --gold")
    try:
        if explained:
            texts = arguments.pred, arguments.gold, arguments.problem
            result = explain(*texts, in_sympy=arguments.explain)
        else:
            result = check_answers(arguments.self_check)
    except (OSError, ValueError) as error:
        print(f"verify: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        replace_json(arguments.json, result)
    _show(result, arguments.list)
    return 0


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


def check_answers(paths: list[pathlib.Path]) -> dict:
    """Counts the gold answers of data files; lists those that cannot be verified."""
    refused, checked, missing = [], 0, 0
    rows = [pair for path in paths for pair in read_rows(path)]
    for where, row in each(rows, "verify", "rows"):
        answers = row.get("answers") or [row.get("answer")]
        if not isinstance(answers, list):
            raise ValueError(
                f"{where}: answers={answers!r:.60}: must be a list of texts"
            )
        for answer in answers:
            if not isinstance(answer, str) or not answer.strip():
                missing += 1
                continue
            checked += 1
            if (reason := self_check(answer)) is not None:
                refused.append({"at": where, "answer": answer, "reason": reason})
    return {
        "verifier": VERSION,
        "answers": checked,
        "missing": missing,
        "verifiable": 1 - len(refused) / checked if checked else None,
        "refused": refused,
    }


def _show(result: dict, limit: int) -> None:
    for key, value in result.items():
        if not isinstance(value, list):
            shown = f"{value:.4f}" if isinstance(value, float) else value
            print(f"{key:18} {shown}")
    for row in result.get("refused", [])[:limit]:
        print(f"{row['at']}: {row['answer'][:60]!r} {row['reason']}")


if __name__ == "__main__":
    sys.exit(main())
