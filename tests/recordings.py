"""Records what the project does on a CPU, and compares two recordings.

    python -m tests.recordings record DIR [--only runs,verdicts] [--root TREE]
    python -m tests.recordings compare DIR_A DIR_B

`record` writes text files of lines "key<TAB>value" into DIR and works in DIR/work:
runs/NAME.tsv (metrics of short runs, without times), verdicts.tsv (pairs of answers),
curation.tsv (rows kept of 5,000) and evaluation.tsv (scores). TREE is the checkout that
is recorded, by default this one. Config keys that TREE lacks are left out, with a note.
`compare` exits with 1 if any value differs.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

from rollout.vllm.server import free_port

PARTS = ("runs", "verdicts", "curation", "evaluation")
CARRY = {"dynamic_sampling.carry": True}
RUNS = {  # name -> (steps, settings)
    "quickstart": (200, {}),
    "short": (20, {}),
    "carry": (20, CARRY),
    "signal": (20, {"sampling.policy": "signal"}),
    "cispo": (20, {"objective": "CISPO"}),
    "gspo": (20, {"objective": "GSPO"}),
    "two_processes": (20, {}),
}
CONFIG = """
from configs import objectives, quickstart

def get_config():
    c = quickstart.get_config()
    for key, value in {settings!r}.items():
        section, target = c, key.split(".")[-1]
        for part in key.split(".")[:-1]:
            section = section[part] if part in section else {{}}
        if key == "objective":
            wanted = getattr(objectives, value)
            c.objective.update({{k: v for k, v in wanted.items() if k in c.objective}})
        elif target in section:
            section[target] = value
        else:
            print("left out, no such key:", key)
    return c
"""


def _write(path: pathlib.Path, rows: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}\t{json.dumps(value)}\n" for key, value in rows.items()]
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path}: {len(lines)} lines", flush=True)


def _start(root: pathlib.Path, *command, **options) -> subprocess.Popen:
    env = os.environ | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    env |= {"SHARED_DATA": str(_data(root)), "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-m", *map(str, command)]
    return subprocess.Popen(words, cwd=root, env=env, **options)


def _run(root: pathlib.Path, *command) -> None:
    if status := _start(root, *command).wait():
        sys.exit(f"error: {' '.join(map(str, command))}: exit status {status}")


def _data(root: pathlib.Path) -> pathlib.Path:
    default = root.parent / "shared" / "data"
    return pathlib.Path(os.environ.get("SHARED_DATA") or default)


def _rows(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.open(encoding="utf-8") if line.strip()]


def _train(root: pathlib.Path, out: pathlib.Path, name: str) -> pathlib.Path:
    """Trains a run, or resumes it, and returns its folder below `out`."""
    steps, settings = RUNS[name]
    work = out / "work"
    work.mkdir(parents=True, exist_ok=True)
    settings = settings | {"steps": steps, "model.maker_args.cache": f"{work}/bases"}
    if steps < 200:
        settings["eval.samples"] = 2
    config = work / f"{name}.py"
    config.write_text(CONFIG.format(settings=settings))
    command = ["rl.train", f"--config={config}", f"--workdir={work / name}"]
    if name != "two_processes":
        _run(root, *command)
        return work / name
    port = free_port()
    command += [f"--coordinator=127.0.0.1:{port}", "--num_processes=2"]
    command += ["--config.mesh.cpu_devices=1"]
    both = [_start(root, *command, f"--process_id={i}") for i in (0, 1)]
    if any([process.wait() for process in both]):
        sys.exit("error: two_processes: a process failed")
    return work / name


def _is_time(metric: str) -> bool:
    return metric.startswith(("timing/", "speed/")) or "seconds" in metric


def record_runs(root: pathlib.Path, out: pathlib.Path) -> None:
    for name in RUNS:
        rows = {}
        for row in _rows(_train(root, out, name) / "metrics.jsonl"):
            step = row.pop("step")
            for key, value in sorted(row.items()):
                if not _is_time(key):
                    rows[f"{step} {key}"] = value
        _write(out / "runs" / f"{name}.tsv", rows)


def record_verdicts(root: pathlib.Path, out: pathlib.Path) -> None:
    sys.path.insert(0, str(root))
    from rl.verifier import is_equivalent, judge

    rows = {}
    for row in _rows(_data(root) / "verifier_dev.jsonl"):
        if row["mode"] == "response":
            rows[row["id"]] = judge(row["pred"], row["gold"], None).correct
        else:
            rows[row["id"]] = is_equivalent(row["pred"], row["gold"])
    golds: dict[str, str] = {}
    for path in sorted((_data(root) / "train").glob("*.jsonl")):
        golds |= {str(row["answer"]): row["problem"] for row in _rows(path)}
    answers = sorted(golds)
    draw = random.Random(0)
    for i in range(20_000):
        at = draw.randrange(len(answers))
        # itself, one that is spelled alike, or any other
        near = min(len(answers) - 1, at + draw.randint(1, 3))
        other = answers[(at, near, near, draw.randrange(len(answers)))[i % 4]]
        gold = answers[at]
        text = f"Thus the answer is $\\boxed{{{other}}}$."
        correct = judge(text, gold, golds[gold]).correct
        rows[f"{i} {gold!r} {other!r}"] = [is_equivalent(other, gold), correct]
    _write(out / "verdicts.tsv", rows)


def record_curation(root: pathlib.Path, out: pathlib.Path) -> None:
    work = out / "work" / "curation"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    paths = sorted((_data(root) / "raw").glob("*.jsonl"))
    lines = [line for path in paths for line in path.open(encoding="utf-8")]
    kept = sorted(random.Random(0).sample(range(len(lines)), 5_000))
    raw = work / "raw.jsonl"
    raw.write_text("".join(lines[i] for i in kept), encoding="utf-8")
    _run(root, "tools.curate", "--out", work / "out", "--input", raw)
    rows = _rows(work / "out" / "problems.jsonl")
    _write(out / "curation.tsv", {str(row["id"]): row["answer"] for row in rows})


def record_evaluation(root: pathlib.Path, out: pathlib.Path) -> None:
    workdir = _train(root, out, "short")
    folder = out / "work" / "evaluation"
    shutil.rmtree(folder, ignore_errors=True)
    command = ["tools.evaluate", "--model", workdir, "--out", folder]
    command += ["--benchmarks", "held_out", "--limit", 128, "--samples", 4]
    command += ["--template", "run", "--max_tokens", 40, "--context", 48]
    command += ["--temperature", 1, "--top_p", 1, "--seed", 0]
    _run(root, *command, "--dtype", "float32")
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    rows = {}

    def flatten(prefix: str, value) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(f"{prefix}/{key}" if prefix else key, inner)
        elif isinstance(value, int | float):
            rows[prefix] = value

    flatten("", results["benchmarks"])
    for row in _rows(folder / "completions.jsonl"):
        rows[f"completion {row['id']} {row['sample']}"] = row["completion"]
    _write(out / "evaluation.tsv", rows)


def _read(path: pathlib.Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = dict(line.rsplit("\t", 1) for line in lines)
    if path.parent.name != "runs":
        return rows
    return {k: v for k, v in rows.items() if not _is_time(k.partition(" ")[2])}


def compare(a: pathlib.Path, b: pathlib.Path) -> bool:
    """Prints how two recordings differ; returns whether a value does."""
    files = sorted({p.relative_to(d) for d in (a, b) for p in d.glob("**/*.tsv")})
    different = False
    for name in files:
        if not ((a / name).is_file() and (b / name).is_file()):
            print(f"{name}: only in {a if (a / name).is_file() else b}")
            continue
        left, right = _read(a / name), _read(b / name)
        both = [key for key in left if key in right]
        unequal = [key for key in both if left[key] != right[key]]
        print(f"{name}: {len(both)} values in both, {len(unequal)} differ")
        for folder, mine, other in ((a, left, right), (b, right, left)):
            lone = [key for key in mine if key not in other]
            if name.parts[0] == "runs":  # the metrics, not each of their steps
                lone = list(dict.fromkeys(key.split(" ", 1)[1] for key in lone))
            if lone:
                more = f" and {len(lone) - 20} more" if len(lone) > 20 else ""
                print(f"  only in {folder}: {', '.join(lone[:20])}{more}")
        if unequal:
            key = unequal[0]
            print(f"  first: {key}: {left[key]} before, {right[key]} after")
            names = dict.fromkeys(key.split(" ", 1)[-1] for key in unequal)
            print(f"  all: {', '.join(list(names)[:20])}")
        lost = name.name != "evaluation.tsv" and name.parts[0] != "runs"
        different |= bool(unequal) or (lost and left.keys() != right.keys())
    print("the recordings differ" if different else "the recordings agree")
    return different


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.recordings", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("out", type=pathlib.Path)
    record.add_argument("--only", default=",".join(PARTS))
    root = pathlib.Path(__file__).resolve().parents[1]
    record.add_argument("--root", type=pathlib.Path, default=root)
    compared = commands.add_parser("compare")
    compared.add_argument("folders", type=pathlib.Path, nargs=2)
    args = parser.parse_args()
    if args.command == "compare":
        sys.exit(compare(*args.folders))
    for part in args.only.split(","):
        if part not in PARTS:
            parser.error(f"--only {part}: must be one of {', '.join(PARTS)}")
        globals()[f"record_{part}"](args.root.resolve(), args.out.resolve())


if __name__ == "__main__":
    main()
