"""A comparison as one HTML file without scripts or network: what flipped, and how."""

import collections
import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Drawn
from rl.types import Problem
from tools.evaluation.benchmarks import title
from tools.evaluation.compare import Arm
from tools.evaluation.files import Judged, read_completions, read_verdicts
from tools.evaluation.tex import formula, to_html
from tools.page import document

_STYLE = pathlib.Path(__file__).with_suffix(".css")
_MOST_CHARACTERS = 8_000  # of a completion


def compare_page(
    result: Mapping[str, Any],
    arms: Sequence[Arm],
    problems: Mapping[str, Sequence[Problem]],
    *,
    most_flips: int = 200,
) -> str:
    """Renders the page.

    Every problem is there with each arm's answers, equivalent ones together, and can be
    linked to as `#BENCHMARK/ID`. Where the first arm and another differ on whether it
    is solved, a completion of each answer is there as well, side by side.

    Args:
      result: of `tools.evaluation.compare.compare`.
      arms: the folders that were compared.
      problems: by benchmark, those that were asked.
      most_flips: of a benchmark, that are shown with completions.
    """
    verdicts = [[read_verdicts(folder) for folder in arm] for arm in arms]
    texts = [[read_completions(folder) for folder in arm] for arm in arms]
    sections = []
    for name in result["benchmarks"]:
        drawn = [
            [{(d.id, d.sample): d for d in kept[name]} for kept in of_arm]
            for of_arm in texts
        ]
        of_id = {problem.id: problem for problem in problems[name]}
        ids = list(verdicts[0][0][name])
        flips = {word: set() for word in ("lost", "gained")}
        for pair in result["pairs"]:
            for word, found in flips.items():
                found |= set(pair["benchmarks"][name][word])
        blocks = {"lost": [], "gained": [], "alike": []}
        for id in ids:
            kinds = [word for word, found in flips.items() if id in found] or ["alike"]
            shown = kinds[0]
            whole = shown != "alike" and len(blocks[shown]) < most_flips
            judged = [[v[name][id] for v in of_arm] for of_arm in verdicts]
            blocks[shown].append(
                _problem(name, of_id[id], result["arms"], judged, drawn, whole, kinds)
            )
        sections.append(_section(name, blocks))
    title = _title(result)
    top = f"<h1>{html.escape(title)}</h1>\n{_summary(result)}\n"
    style = _STYLE.read_text(encoding="utf-8")
    return document(title, top + "\n".join(sections), style=style)


def _title(result: Mapping[str, Any]) -> str:
    first, *others = (arm["name"] for arm in result["arms"])
    return f"{', '.join(others)} against {first}"


def _summary(result: Mapping[str, Any]) -> str:
    cells = ["benchmark", "arm", "drawn", "accuracy, %", "difference", "p"]
    cells += ["lost", "gained"]
    rows = ["".join(f"<th>{cell}</th>" for cell in cells)]
    for name in result["benchmarks"]:
        for i, arm in enumerate(result["arms"]):
            if i == 0:
                of_first = result["pairs"][0]["benchmarks"][name]
                figures = [f"{100 * of_first['first']:.1f}", "", "", "", ""]
            else:
                part = result["pairs"][i - 1]["benchmarks"][name]
                low, high = (100 * edge for edge in part["difference_interval"])
                figures = [
                    f"{100 * part['second']:.1f}",
                    f"{100 * part['difference']:+.1f} [{low:+.1f}, {high:+.1f}]",
                    f"{part['p_value']:.3g}",
                    str(len(part["lost"])),
                    str(len(part["gained"])),
                ]
            heads = [title(name) if i == 0 else "", arm["name"], arm["drawn"]]
            rows.append(
                "".join(f"<td>{html.escape(cell)}</td>" for cell in heads + figures)
            )
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    unlike = [
        f"{arm['name']}: {arm['drawn']}"
        for arm, pair in zip(result["arms"][1:], result["pairs"], strict=True)
        if not pair["drawn_alike"]
    ]
    note = ""
    if unlike:
        first = result["arms"][0]
        said = "; ".join([f"{first['name']}: {first['drawn']}", *unlike])
        note = f'<p class="warning">Not drawn alike. {html.escape(said)}.</p>'
    return f'{note}<div class="wide"><table>{table}</table></div>'


def _section(name: str, blocks: Mapping[str, Sequence[str]]) -> str:
    parts = []
    words = {"lost": "Lost", "gained": "Gained", "alike": "No flip"}
    for key, word in words.items():
        if blocks[key]:
            opened = "" if key == "alike" else " open"
            parts.append(
                f"<details{opened}><summary><h3>{word} ({len(blocks[key])})</h3>"
                f"</summary>{''.join(blocks[key])}</details>"
            )
    return f"<section><h2>{html.escape(title(name))}</h2>{''.join(parts)}</section>"


def _problem(
    name: str,
    problem: Problem,
    arms: Sequence[Mapping[str, Any]],
    judged: Sequence[Sequence[Sequence[Judged]]],
    drawn: Sequence[Sequence[Mapping[tuple[str, int], Drawn]]],
    whole: bool,
    kinds: Sequence[str],
) -> str:
    """One problem; `judged` and `drawn` are by arm and by its folders."""
    anchor = html.escape(f"{name}/{problem.id}")
    told = f" ({' and '.join(kinds)})" if len(kinds) > 1 else ""
    columns = []
    for arm, of_arm, texts in zip(arms, judged, drawn, strict=True):
        right = sum(j.correct for row in of_arm for j in row)
        count = sum(map(len, of_arm))
        columns.append(
            f'<div class="arm"><h4>{html.escape(arm["name"])}</h4>'
            f'<p class="soft">{right} of {count} right</p>'
            + "".join(_clusters(problem.id, of_arm, texts, whole))
            + "</div>"
        )
    gold = " or ".join(map(formula, problem.answers))
    return (
        f'<article id="{anchor}"><p class="id"><a href="#{anchor}">'
        f"{html.escape(problem.id)}</a>{told}</p>"
        f'<div class="text">{to_html(problem.problem)}</div>'
        f'<p class="soft">Gold: {gold}</p>'
        f'<div class="arms">{"".join(columns)}</div></article>'
    )


def _clusters(
    id: str,
    judged: Sequence[Sequence[Judged]],
    drawn: Sequence[Mapping[tuple[str, int], Drawn]],
    whole: bool,
) -> list[str]:
    """Equivalent answers together, the most frequent first."""
    members: dict[Any, list[tuple[int, int]]] = collections.defaultdict(list)
    for model, row in enumerate(judged):
        for sample, j in enumerate(row):
            # Classes are numbered within one folder.
            kind = None if j.kind is None else (model, j.kind)
            if j.kind is not None and j.correct:
                kind = "right"
            members[kind].append((model, sample))
    shown = []
    for places in sorted(members.values(), key=len, reverse=True):
        model, sample = places[0]
        one = judged[model][sample]
        answer = "no answer" if one.answer is None else formula(one.answer)
        mark = "right" if one.correct else "wrong"
        head = f'<span class="{mark}">{len(places)} ×</span> {answer}'
        if not whole:
            shown.append(f'<p class="cluster {mark}">{head}</p>')
            continue
        completion = drawn[model][id, sample].completion
        text = to_html(completion[:_MOST_CHARACTERS])
        if len(completion) > _MOST_CHARACTERS:
            text += f' <i class="soft">({len(completion):,} characters in all)</i>'
        shown.append(
            f'<details class="cluster {mark}"><summary>{head}</summary>'
            f'<div class="text">{text}</div></details>'
        )
    return shown
