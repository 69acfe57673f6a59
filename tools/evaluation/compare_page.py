"""A comparison as one HTML file without scripts or network: what flipped, and how."""

import collections
import html
import pathlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rl.types import Problem
from tools.evaluation.benchmarks import title
from tools.evaluation.compare import second_figures
from tools.evaluation.files import read_completions, read_verdicts
from tools.evaluation.tex import formula, to_html
from tools.page import beside, document, table

_STYLE = pathlib.Path(__file__).with_suffix(".css")
_MOST_CHARACTERS = 8_000  # of a completion
_MOST_FLIPS = 200  # of a benchmark, each way, that are shown with completions


class _Sample(NamedTuple):
    """A completion with its answer; of one `kind` are those with equivalent ones."""

    kind: Hashable
    answer: str | None
    correct: bool
    completion: str


def compare_page(
    result: Mapping[str, Any],
    arms: Sequence[Sequence[pathlib.Path]],
    problems: Mapping[str, Sequence[Problem]],
) -> str:
    """Renders the page.

    Every problem is there with each arm's answers, equivalent ones together, and can be
    linked to as `#BENCHMARK/ID`. Where the first arm and another differ on whether it
    is solved, a completion of each answer is there as well, side by side; of very many
    such problems for the first ones.

    Args:
      result: of `tools.evaluation.compare.compare`.
      arms: the folders that were compared.
      problems: by benchmark, those that were asked.
    """
    names = [arm["name"] for arm in result["arms"]]
    samples = [_samples(arm) for arm in arms]
    sections = []
    for name in result["benchmarks"]:
        of_id = {problem.id: problem for problem in problems[name]}
        parts = [pair["benchmarks"][name] for pair in result["pairs"]]
        flips = {
            word: {id for part in parts for id in part[word]}
            for word in ("lost", "gained")
        }
        blocks = {"lost": [], "gained": [], "alike": []}
        for id in samples[0][name]:
            kinds = [word for word, found in flips.items() if id in found]
            block = blocks[kinds[0] if kinds else "alike"]
            whole = bool(kinds) and len(block) < _MOST_FLIPS
            columns = [
                _column(arm, of_arm[name][id], whole)
                for arm, of_arm in zip(names, samples, strict=True)
            ]
            block.append(_problem(name, of_id[id], columns, kinds))
        sections.append(_section(name, blocks))
    heading = f"{', '.join(names[1:])} against {names[0]}"
    top = f"<h1>{html.escape(heading)}</h1>\n{_summary(result)}\n"
    style = _STYLE.read_text(encoding="utf-8")
    return document(heading, top + "\n".join(sections), style=style)


def _samples(arm: Sequence[pathlib.Path]) -> dict[str, dict[str, list[_Sample]]]:
    """The completions of an arm's models, by benchmark and problem id."""
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    for model, folder in enumerate(arm):
        texts = collections.defaultdict(list)
        for name, of_name in read_completions(folder).items():
            for drawn in sorted(of_name, key=lambda drawn: drawn.sample):
                texts[name, drawn.id].append(drawn.completion)
        for name, of_name in read_verdicts(folder).items():
            for id, row in of_name.items():
                for judged, text in zip(row, texts[name, id], strict=True):
                    # Classes are numbered within one folder.
                    kind = judged.kind if judged.kind is None else (model, judged.kind)
                    samples[name][id].append(
                        _Sample(
                            "right" if judged.correct else kind,
                            judged.answer,
                            judged.correct,
                            text,
                        )
                    )
    return samples


def _summary(result: Mapping[str, Any]) -> str:
    first, *others = result["arms"]
    rows = []
    for name in result["benchmarks"]:
        parts = [pair["benchmarks"][name] for pair in result["pairs"]]
        accuracy = f"{100 * parts[0]['first']:.1f}"
        rows.append((title(name), first["name"], first["drawn"], accuracy, *[""] * 5))
        rows += [
            ("", arm["name"], arm["drawn"], *second_figures(part))
            for arm, part in zip(others, parts, strict=True)
        ]
    head = ["benchmark", "arm", "drawn", "accuracy, %", "difference", "p", "about"]
    unlike = [
        f"{arm['name']}: {arm['drawn']}"
        for arm, pair in zip(others, result["pairs"], strict=True)
        if not pair["drawn_alike"]
    ]
    note = ""
    if unlike:
        said = "; ".join([f"{first['name']}: {first['drawn']}", *unlike])
        note = f'<p class="warning">Not drawn alike. {html.escape(said)}.</p>'
    return note + table([*head, "lost", "gained"], rows)


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
    name: str, problem: Problem, columns: Sequence[str], kinds: Sequence[str]
) -> str:
    anchor = html.escape(f"{name}/{problem.id}")
    told = f" ({' and '.join(kinds)})" if len(kinds) > 1 else ""
    gold = " or ".join(map(formula, problem.answers))
    return (
        f'<article id="{anchor}"><p class="id"><a href="#{anchor}">'
        f"{html.escape(problem.id)}</a>{told}</p>"
        f'<div class="text">{to_html(problem.problem)}</div>'
        f'<p class="soft">Gold: {gold}</p>'
        f"{beside(columns)}</article>"
    )


def _column(arm: str, samples: Sequence[_Sample], whole: bool) -> str:
    """An arm's answers to a problem, equivalent ones together, most frequent first."""
    right = sum(sample.correct for sample in samples)
    clusters = collections.defaultdict(list)
    for sample in samples:
        clusters[sample.kind].append(sample)
    shown = [
        _cluster(members[0], len(members), whole)
        for members in sorted(clusters.values(), key=len, reverse=True)
    ]
    return (
        f"<h4>{html.escape(arm)}</h4>"
        f'<p class="soft">{right} of {len(samples)} right</p>{"".join(shown)}'
    )


def _cluster(sample: _Sample, count: int, whole: bool) -> str:
    answer = "no answer" if sample.answer is None else formula(sample.answer)
    mark = "right" if sample.correct else "wrong"
    head = f'<span class="{mark}">{count} ×</span> {answer}'
    if not whole:
        return f'<p class="cluster {mark}">{head}</p>'
    text = to_html(sample.completion[:_MOST_CHARACTERS])
    if len(sample.completion) > _MOST_CHARACTERS:
        length = f"{len(sample.completion):,} characters in all"
        text += f' <i class="soft">({length})</i>'
    return (
        f'<details class="cluster {mark}"><summary>{head}</summary>'
        f'<div class="text">{text}</div></details>'
    )
