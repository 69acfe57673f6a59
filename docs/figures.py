"""Draws the pictures of README and docs into docs/images, as SVG files.

    python docs/figures.py                              # flow, packing, layout
    python docs/figures.py --run runs/quickstart        # and a learning curve
    python docs/figures.py --plan plan.json             # and the memory of a plan
    python docs/figures.py --learning learning.json     # and the curves of a peer
    python docs/figures.py --arm full runs/a runs/b --arm lora runs/c   # and of arms
    python docs/figures.py --screens runs/quickstart    # and TensorBoard, the report

The last one needs Chromium and writes PNG files. `plan.json` is the output of
`python -m tools.plan ... --json=plan.json`, and `learning.json` that of
`python -m tools.bench learning --out DIR --json=learning.json`.
"""

import argparse
import contextlib
import html
import json
import pathlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence

import numpy as np

from rl.groups.packing import best_fit

IMAGES = pathlib.Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, GREY, INK = "#3b6fb6", "#e08a3c", "#4d9a6a", "#c9ced6", "#30363d"
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


def box(x: float, y: float, width: float, height: float, fill: str, label="") -> str:
    """Returns a rectangle; a label is centred and white."""
    shown = (
        f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4.5:.1f}" fill="#fff"'
        f' text-anchor="middle">{html.escape(label)}</text>'
    )
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' rx="3" fill="{fill}"/>{shown if label else ""}'
    )


def words(x: float, y: float, text: str, anchor: str = "start", size: int = 13) -> str:
    """Returns a line of text as SVG."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{html.escape(text)}</text>"
    )


def arrow(points: Sequence[tuple[float, float]]) -> str:
    """Returns a line through `points` with a head at its end."""
    (x0, y0), (x, y) = points[-2:]
    length = float(np.hypot(x - x0, y - y0))
    u, v = (x - x0) / length, (y - y0) / length
    head = [(x, y), (x - 8 * u + 4 * v, y - 8 * v - 4 * u)]
    head.append((x - 8 * u - 4 * v, y - 8 * v + 4 * u))
    line, tip = (" ".join(f"{a:.1f},{b:.1f}" for a, b in ps) for ps in (points, head))
    return (
        f'<polyline points="{line}" fill="none" stroke="{INK}" stroke-width="1.5"/>'
        f'<polygon points="{tip}" fill="{INK}"/>'
    )


def flow() -> None:
    """Draws a step: from problems to published weights."""
    boxes = [
        ("problems", GREY), ("sampler", BLUE), ("verifier", GREEN), ("filter", GREEN),
        ("packing", GREY), ("update", ORANGE), ("publish", BLUE),
    ]  # fmt: skip
    between = ("prompts", "G completions", "rewards", "groups", "[R, T]", "weights")
    marks, step, wide = [], 132, 78
    for i, (label, fill) in enumerate(boxes):
        x = 12 + i * step
        marks.append(box(x, 40, wide, 36, INK if fill == GREY else fill, label))
        if i < len(between):
            marks.append(arrow([(x + wide + 3, 58), (x + step - 3, 58)]))
            middle = x + (wide + step) / 2
            marks.append(words(middle, 30, between[i], "middle", 11))
    last, sampler = 12 + 6 * step + wide / 2, 12 + step + wide / 2
    marks.append(arrow([(last, 78), (last, 108), (sampler, 108), (sampler, 79)]))
    marks.append(words((last + sampler) / 2, 126, "weights, version + 1", "middle", 11))
    back = 12 + 3 * step + wide / 2
    marks.append(arrow([(back, 40), (back, 12), (sampler, 12), (sampler, 38)]))
    refill = "all right or all wrong: dropped, others sampled"
    marks.append(words(back + 8, 16, refill, size=11))
    save("flow", 12 + 6 * step + wide + 12, 136, marks)


def packing() -> None:
    """Draws the rows that `best_fit` makes of 40 log-normal segments."""
    rng = np.random.default_rng(0)
    drawn = 150 + rng.lognormal(np.log(700), 0.84, 40)
    lengths = np.minimum(drawn, 4096).astype(int)
    own = range(len(lengths))
    rows = best_fit(lengths.tolist(), 4096, own, [0] * len(own))
    scale, marks = 700 / 4096, []
    for r, row in enumerate(rows):
        x = 60.0
        marks.append(words(52, 27 + 24 * r, f"row {r}", "end"))
        marks.append(box(60, 12 + 24 * r, 700, 20, "#eef0f3"))
        for (i,) in row:
            wide = lengths[i] * scale
            marks.append(box(x, 12 + 24 * r, 150 * scale, 20, INK))
            fill = _SHADES[i % len(_SHADES)]
            marks.append(
                box(x + 150 * scale, 12 + 24 * r, wide - 150 * scale, 20, fill)
            )
            x += wide
    bottom = 24 * len(rows) + 30
    padding = 1 - lengths.sum() / (4096 * len(rows))
    marks.append(
        words(
            60,
            bottom,
            f"40 segments (black: prompt of 150 tokens, colour: completion) in rows of"
            f" 4,096 positions; {padding:.1%} padding",
        )
    )
    save("packing", 780, bottom + 12, marks)


def layout() -> None:
    """Draws where the weights are in the update and in the sampler, on 8 devices."""
    marks = [words(12, 22, "update: fsdp 8"), words(12, 112, "sampler: 4 copies x 2")]
    for d in range(8):
        x = 170 + 76 * d
        marks.append(box(x, 6, 70, 26, BLUE, "1/8 of W"))
        marks.append(words(x + 35, 48, f"device {d}", "middle", 11))
        half = ("left half", "right half")[d % 2]
        marks.append(box(x, 96, 70, 26, (BLUE, ORANGE)[d % 2], half))
        if d % 2 == 0:
            marks.append(words(x + 73, 140, f"copy {d // 2}", "middle", 11))
    marks.append(arrow([(470, 54), (470, 92)]))
    publish = "publish: a layer at a time, in bfloat16"
    marks.append(words(480, 78, publish, size=11))
    save("layout", 790, 150, marks)


def axes(last: float, label: str, low: float = 0.0) -> list[str]:
    """Returns the grid of a chart of shares (`low` to 1) over 0 ... `last`."""
    marks = []
    for share in np.linspace(low, 1, 6):
        y = BOTTOM - (BOTTOM - TOP) * (share - low) / (1 - low)
        marks.append(
            f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" stroke="#e4e7eb"/>'
        )
        marks.append(words(LEFT - 8, y + 4, f"{share:.0%}", "end"))
    for i in range(5):
        x = LEFT + (RIGHT - LEFT) * i / 4
        marks.append(words(x, BOTTOM + 20, f"{last * i / 4:.0f}", "middle"))
    marks.append(words((LEFT + RIGHT) / 2, BOTTOM + 40, label, "middle"))
    return marks


def line(
    points: Sequence[tuple[float, float]],
    last: float,
    paint: str,
    *,
    dots: bool,
    low: float = 0.0,
) -> list[str]:
    """Returns a line in a chart of `axes`; with `dots`, also a dot at each point."""
    placed = [
        (
            LEFT + (RIGHT - LEFT) * x / last,
            BOTTOM - (BOTTOM - TOP) * (share - low) / (1 - low),
        )
        for x, share in points
    ]
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    marks = [
        f'<polyline points="{text}" fill="none" stroke="{paint}" stroke-width="2"/>'
    ]
    if dots:
        marks += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{paint}"/>'
                  for x, y in placed]  # fmt: skip
    return marks


def legend(labels: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Returns pairs of label and colour as lines in the lower right corner."""
    marks = []
    for i, (label, paint) in enumerate(labels):
        x, y = RIGHT - width, BOTTOM - 20 * (len(labels) - i)
        marks += [box(x, y - 9, 14, 8, paint), words(x + 20, y, label)]
    return marks


def curve(run: pathlib.Path) -> None:
    """Draws accuracy in training and held-out accuracy of a run over its steps."""
    rows = [json.loads(row) for row in (run / "metrics.jsonl").open()]
    series = [
        ("training, sampled", BLUE, "reward/accuracy"),
        ("held out, sampled", ORANGE, "eval/accuracy"),
        ("held out, greedy", GREEN, "eval/greedy_accuracy"),
    ]
    found = {key: [(r["step"], r[key]) for r in rows if key in r] for *_, key in series}
    last = max(step for points in found.values() for step, _ in points)
    marks = axes(last, "step")
    for _, paint, key in series:
        marks += line(found[key], last, paint, dots=key.startswith("eval"))
    marks += legend([(label, paint) for label, paint, _ in series], 160)
    save("curve", 720, BOTTOM + 52, marks)


def learning(result: pathlib.Path) -> None:
    """Draws accuracy over training seconds of this project and TRL, a line per seed.

    Leaves out the first and the last evaluation, which are of other problems.
    """
    arms = json.loads(result.read_text())["arms"]
    series = [
        ("this project, dynamic sampling", ORANGE, "full"),
        ("this project without it", BLUE, "plain"),
        ("TRL (GRPOTrainer)", GREEN, "trl"),
    ]
    last = max(run["seconds"] for runs in arms.values() for run in runs)
    label = "seconds of training on the same core; a line per seed"
    marks = axes(last, label, low=0.75)
    for _, paint, arm in series:
        for run in arms[arm]:
            curve = [(p["seconds"], p["accuracy"]) for p in run["curve"][1:-1]]
            marks += line(curve, last, paint, dots=False, low=0.75)
    marks += legend([(label, paint) for label, paint, _ in series], 230)
    save("learning", 720, BOTTOM + 52, marks)


def arms(runs: Sequence[Sequence[str]]) -> None:
    """Draws held-out accuracy over steps, with one color per arm and a line per run.

    Args:
      runs: the label of each arm and its workdirs; only three arms are drawn.
    """
    curves, key = [], "eval/accuracy"
    for (_, *folders), paint in zip(runs, (BLUE, ORANGE, GREEN), strict=False):
        for folder in folders:
            rows = map(json.loads, pathlib.Path(folder, "metrics.jsonl").open())
            curves.append(([(r["step"], r[key]) for r in rows if key in r], paint))
    last = max(step for points, _ in curves for step, _ in points)
    marks = axes(last, "step; a line per seed")
    for points, paint in curves:
        marks += line(points, last, paint, dots=True)
    labels = zip((arm[0] for arm in runs), (BLUE, ORANGE, GREEN), strict=False)
    save("arms", 720, BOTTOM + 52, marks + legend(list(labels), 160))


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


def screens(run: pathlib.Path) -> None:
    """Saves screenshots of TensorBoard's first screen and the report page of a run."""
    address = "http://localhost:16006"
    board = subprocess.Popen(
        ["tensorboard", "--logdir", run / "tensorboard", "--port", "16006"]
    )
    try:
        subprocess.run([sys.executable, "-m", "tools.report", run], check=True)
        for _ in range(60):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/data/environment").close()
                break
            time.sleep(1)
        browser = "chromium --headless=new --no-sandbox --hide-scrollbars"
        browser += " --disable-gpu --disable-webgl --virtual-time-budget=60000"
        browser += " --run-all-compositor-stages-before-draw --window-size=1280,900"
        page = (run / "report.html").resolve().as_uri()
        for name, url in (("tensorboard", address), ("report", page)):
            shot = f"--screenshot={IMAGES / name}.png"
            subprocess.run([*browser.split(), shot, url], check=True)
    finally:
        board.terminate()


def main() -> None:
    """Draws the three fixed pictures, and those that the flags ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=pathlib.Path, help="workdir of a run: its curve")
    parser.add_argument("--plan", type=pathlib.Path, help="JSON of a plan: its memory")
    parser.add_argument("--learning", type=pathlib.Path, help="JSON of a comparison")
    parser.add_argument("--arm", nargs="+", action="append", help="label and workdirs")
    parser.add_argument("--screens", type=pathlib.Path, help="workdir of a run")
    args = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    flow()
    packing()
    layout()
    if args.run:
        curve(args.run)
    if args.plan:
        memory(args.plan)
    if args.learning:
        learning(args.learning)
    if args.arm:
        arms(args.arm)
    if args.screens:
        screens(args.screens)


if __name__ == "__main__":
    main()
