"""Draws pictures of README and docs into docs/images, as SVG files.

    python docs/figures.py --run runs/quickstart        # a learning curve
    python docs/figures.py --plan plan.json             # the memory of a plan
    python docs/figures.py --learning learning.json     # curves of this project and TRL
    python docs/figures.py --arm full runs/a runs/b --arm lora runs/c   # curves of arms

`plan.json` is the output of `python -m tools.plan ... --json=plan.json`, and
`learning.json` that of `python -m tools.bench learning --out DIR --json=learning.json`.
flow.svg, layout.svg and packing.svg are drawn by hand.
"""

import argparse
import html
import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

IMAGES = pathlib.Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, INK = "#3b6fb6", "#e08a3c", "#4d9a6a", "#30363d"
LEFT, RIGHT, TOP, BOTTOM = 52, 700, 14, 260  # edges of a chart
_SHADES = ("#3b6fb6", "#7fa3d1", "#e08a3c", "#f0bf91", "#4d9a6a", "#97c5a8", "#8f6bb1")


def save(name: str, width: int, height: int, marks: Sequence[str]) -> None:
    """Writes `IMAGES/name.svg`; the white background suits dark pages as well."""
    body = "\n".join(marks)
    (IMAGES / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif" font-size="13"'
        f' fill="{INK}">\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f"{body}\n</svg>\n",
        encoding="utf-8",
    )


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' rx="3" fill="{fill}"/>'
    )


def words(x: float, y: float, text: str, anchor: str = "start") -> str:
    """Returns a line of text as SVG."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="13">'
        f"{html.escape(text)}</text>"
    )


class Arm(NamedTuple):
    """Describes the lines of one color in a chart of shares."""

    label: str
    lines: Sequence[Sequence[tuple[float, float]]]
    dots: bool = False  # whether to mark the points


def chart(
    name: str, arms: Sequence[Arm], label: str, *, width: int, low: float = 0.0
) -> None:
    """Draws shares from `low` to 1; `width` is that of the legend."""
    last = max(x for arm in arms for points in arm.lines for x, _ in points)

    def at(x: float, share: float) -> tuple[float, float]:
        up = (share - low) / (1 - low)
        return LEFT + (RIGHT - LEFT) * x / last, BOTTOM - (BOTTOM - TOP) * up

    marks = []
    for share in np.linspace(low, 1, 6):
        _, y = at(0, share)
        ends = f'x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"'
        marks.append(f'<line {ends} stroke="#e4e7eb"/>')
        marks.append(words(LEFT - 8, y + 4, f"{share:.0%}", "end"))
    for x in np.linspace(0, last, 5):
        marks.append(words(at(x, 0)[0], BOTTOM + 20, f"{x:.0f}", "middle"))
    marks.append(words((LEFT + RIGHT) / 2, BOTTOM + 40, label, "middle"))
    for i, (arm, paint) in enumerate(zip(arms, (BLUE, ORANGE, GREEN), strict=False)):
        for points in arm.lines:
            placed = [at(*point) for point in points]
            text = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            style = f'fill="none" stroke="{paint}" stroke-width="2"'
            marks.append(f'<polyline points="{text}" {style}/>')
            for x, y in placed if arm.dots else ():
                circle = f'cx="{x:.1f}" cy="{y:.1f}" r="3.5"'
                marks.append(f'<circle {circle} fill="{paint}"/>')
        x, y = RIGHT - width, BOTTOM - 20 * (len(arms) - i)
        marks += [box(x, y - 9, 14, 8, paint), words(x + 20, y, arm.label)]
    save(name, 720, BOTTOM + 52, marks)


def metric(run: pathlib.Path, key: str) -> list[tuple[float, float]]:
    rows = map(json.loads, (run / "metrics.jsonl").open())
    return [(row["step"], row[key]) for row in rows if key in row]


def curve(run: pathlib.Path) -> None:
    """Draws accuracy in training and held-out accuracy of a run over its steps."""
    arms = [
        Arm("training, sampled", [metric(run, "reward/accuracy")]),
        Arm("held out, sampled", [metric(run, "eval/accuracy")], dots=True),
        Arm("held out, greedy", [metric(run, "eval/greedy_accuracy")], dots=True),
    ]
    chart("curve", arms, "step", width=160)


def learning(result: pathlib.Path) -> None:
    """Draws accuracy over training seconds of this project and TRL, a line per seed.

    Leaves out the first and the last evaluation, which are of other problems.
    """
    names = {
        "plain": "this project without it",
        "full": "this project, dynamic sampling",
        "trl": "TRL (GRPOTrainer)",
    }
    runs = json.loads(result.read_text())["arms"]
    arms = [
        Arm(name, [[(p["seconds"], p["accuracy"]) for p in run["curve"][1:-1]]
                   for run in runs[key]])
        for key, name in names.items()
    ]  # fmt: skip
    label = "seconds of training on the same core; a line per seed"
    chart("learning", arms, label, width=230, low=0.75)


def arms(runs: Sequence[Sequence[str]]) -> None:
    """Draws held-out accuracy over steps; each of `runs` is a label and workdirs."""
    lines = [
        Arm(label, [metric(pathlib.Path(f), "eval/accuracy") for f in folders], True)
        for label, *folders in runs
    ]
    chart("arms", lines, "step; a line per seed", width=160)


def memory(plan: pathlib.Path) -> None:
    """Draws the memory of each program of a plan, split by array."""
    report = json.loads(plan.read_text())
    usable, programs = report["memory"]["usable_bytes"], report["programs"]
    names = list(dict.fromkeys(n for p in programs.values() for n in p["parts"]))
    scale, marks = 560 / max(p["peak_bytes"] for p in programs.values()), []
    for r, (name, program) in enumerate(programs.items()):
        x, y = 120.0, 12 + 24 * r
        marks.append(words(112, y + 14, name, "end"))
        for part, size in program["parts"].items():
            marks.append(box(x, y, size * scale, 20, _SHADES[names.index(part)]))
            x += size * scale
        peak = f"{program['peak_bytes'] / 2**30:.1f} GiB"
        marks.append(words(x + 6, y + 14, peak))
    bottom = 24 * len(programs) + 30
    for i, name in enumerate(names):
        marks.append(box(120 + 98 * i, bottom - 10, 12, 12, _SHADES[i]))
        marks.append(words(136 + 98 * i, bottom + 1, name))
    title = f"{report['model']} on {report['target']}, {usable / 2**30:.1f} GiB usable"
    marks.append(words(120, bottom + 24, title))
    save("memory", 800, bottom + 36, marks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=pathlib.Path, help="workdir of a run: its curve")
    parser.add_argument("--plan", type=pathlib.Path, help="JSON of a plan: its memory")
    parser.add_argument("--learning", type=pathlib.Path, help="JSON of a comparison")
    parser.add_argument("--arm", nargs="+", action="append", help="label and workdirs")
    args = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    commands = {"run": curve, "plan": memory, "learning": learning, "arm": arms}
    for name, draw in commands.items():
        if value := getattr(args, name):
            draw(value)


if __name__ == "__main__":
    main()
