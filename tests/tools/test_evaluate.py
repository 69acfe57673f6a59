import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from rl.benchmarks import BENCHMARKS, load_benchmark
from tests.rollout import policies
from tests.tools.tiny import make_model, make_sums
from tools.evaluate import main

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write(folder, completions):
    """Keeps `(benchmark, id, sample, completion)` as an evaluation would."""
    folder.mkdir(parents=True)
    keys = ("benchmark", "id", "sample", "completion")
    rows = [json.dumps(dict(zip(keys, row, strict=True))) for row in completions]
    (folder / "completions.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def rescore(folder, shared_data, capsys):
    out = folder / "out.json"
    arguments = ["--rescore", str(folder), "--data_dir", str(shared_data)]
    assert main([*arguments, "--json", str(out)]) == 0
    capsys.readouterr()
    return json.loads(out.read_text())["benchmarks"]


def all_problems(shared_data):
    return [
        (name, problem)
        for name in BENCHMARKS
        for problem in load_benchmark(name, shared_data)
    ]


def test_gold_completions_score_everything(tmp_path, shared_data, capsys):
    """Every accepted answer of every row, one sample each, through all six files."""
    folder = write(
        tmp_path / "gold",
        (
            (name, problem.id, sample, f"Thus \\boxed{{0}}, no: \\boxed{{{answer}}}.")
            for name, problem in all_problems(shared_data)
            for sample, answer in enumerate(problem.answers)
        ),
    )
    result = rescore(folder, shared_data, capsys)
    assert {name: figures["problems"] for name, figures in result.items()} == {
        name: benchmark.rows for name, benchmark in BENCHMARKS.items()
    }
    verdicts = (folder / "verdicts.jsonl").read_text().splitlines()
    wrong = [v["id"] for v in map(json.loads, verdicts) if not v["correct"]]
    assert wrong == []
    assert {figures["accuracy"] for figures in result.values()} == {1.0}


@pytest.mark.parametrize(
    "completion",
    [
        "So it is \\boxed{987654.321}.",
        "The answer is {gold}.",
        "\\boxed{{gold}} Wait. \\boxed{}",
        "\\boxed{{gold}",
        "",
    ],
    ids=["another number", "no box", "an empty last box", "cut off", "nothing"],
)
def test_wrong_completions_score_nothing(tmp_path, shared_data, capsys, completion):
    folder = write(
        tmp_path / "wrong",
        (
            (name, problem.id, 0, completion.replace("{gold}", problem.answers[0]))
            for name, problem in all_problems(shared_data)
        ),
    )
    result = rescore(folder, shared_data, capsys)
    assert len(result) == 6
    assert {figures["accuracy"] for figures in result.values()} == {0.0}


def test_multi_answer_and_tolerance_rows(tmp_path, shared_data, capsys):
    said = {
        # Any of several accepted answers.
        ("minerva272", "minerva-010"): {"0.01": 1, "0.02": 1, "0.03": 0},
        # meta.error is 0.1 around 4.2, in percent.
        ("olympiadbench675", "olympiadbench-316"): {
            "4.2": 1,
            "4.3": 1,
            "4.1\\%": 1,
            "4.31": 0,
            "4": 0,
        },
        # One gold string of four pairs: all of them, in any order.
        ("olympiadbench675", "olympiadbench-027"): {
            "(9,3),(6,3),(54,5),(9,5)": 1,
            "(6,3),(9,3),(9,5)": 0,
            "(6,3),(9,3),(9,5),(54,5),(1,1)": 0,
            "(3,6),(9,3),(9,5),(54,5)": 0,
        },
        # In kilometres.
        ("olympiadbench675", "olympiadbench-183"): {
            "\\frac{41}{12}": 1,
            "\\frac{41}{12} \\text{ km}": 1,
            "\\frac{41}{12} \\text{ m}": 0,
        },
    }
    rows = [
        (key, sample, answer, bool(right))
        for key, answers in said.items()
        for sample, (answer, right) in enumerate(answers.items())
    ]
    folder = write(
        tmp_path / "said",
        ((*key, sample, f"\\boxed{{{answer}}}") for key, sample, answer, _ in rows),
    )
    result = rescore(folder, shared_data, capsys)
    lines = (folder / "verdicts.jsonl").read_text().splitlines()
    found = {(v["id"], v["sample"]): v["correct"] for v in map(json.loads, lines)}
    assert found == {(key[1], sample): right for key, sample, _, right in rows}
    assert result["minerva272"]["accuracy"] == pytest.approx(2 / 3)


def test_rescoring_leaves_every_output(tmp_path, shared_data, capsys):
    folder = write(tmp_path / "a", [("aime2024", "aime24-000", 0, "\\boxed{204}")])
    figures = rescore(folder, shared_data, capsys)["aime2024"]
    assert (figures["accuracy"], figures["problems"], figures["asked"]) == (1.0, 1, 30)
    assert "1 of 30" in (folder / "table.md").read_text()
    assert "aime24-000" in (folder / "report.html").read_text()
    assert json.loads((folder / "results.json").read_text())["verifier"]


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "row, message",
    [
        (("aime2024", "aime24-999", 0, "x"), "aime2024 has no problem 'aime24-999'"),
        (("aime2025", "a", 0, "x"), "benchmark 'aime2025': neither one of aime2024"),
    ],
)
def test_completions_of_unknown_problems(tmp_path, shared_data, capsys, row, message):
    folder = write(tmp_path / "a", [row])
    assert main(["--rescore", str(folder), "--data_dir", str(shared_data)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (folder / "results.json").exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    return make_sums(tmp_path_factory.mktemp("data") / "sums.jsonl")


def command(model, sums, out, *more):
    return [
        *("--model", str(model), "--benchmarks", str(sums), "--out", str(out)),
        *("--context", "96", "--max_tokens", "24", "--slots", "8", *more),
    ]


SAMPLED = ("--samples", "4", "--temperature", "1.0", "--chunk", "16")


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "tools.evaluate", *arguments],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def kept(folder):
    lines = (folder / "completions.jsonl").read_text().splitlines()
    rows = {(r["id"], r["sample"]): r for r in map(json.loads, lines)}
    assert len(rows) == len(lines), "a completion was kept twice"
    return rows


@pytest.fixture(scope="module")
def uninterrupted(model, sums, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    assert start(command(model, sums, out, *SAMPLED)).wait(180) == 0
    return out


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.failure(35)
def test_killed_and_started_again(model, sums, uninterrupted, tmp_path, how):
    again = command(model, sums, tmp_path / "cut", *SAMPLED)
    process, file = start(again), tmp_path / "cut" / "completions.jsonl"
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < 40:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(how)
    code = process.wait(60)
    assert code == (143 if how == signal.SIGTERM else -signal.SIGKILL)
    before = file.read_bytes()
    assert 40 <= before.count(b"\n") < 160
    assert start(again).wait(180) == 0
    # What was there stays, byte for byte, but for a row that was cut short.
    assert file.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert kept(tmp_path / "cut") == kept(uninterrupted)
    table = (tmp_path / "cut" / "table.md").read_text()
    assert table == (uninterrupted / "table.md").read_text()


def test_one_command_from_a_model_to_a_report(model, sums, tmp_path, capsys):
    arguments = command(model, sums, tmp_path / "out", "--limit", "6")
    assert main([*arguments, "--json", str(tmp_path / "r.json")]) == 0
    shown = capsys.readouterr().out
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["benchmarks"]["sums"]["problems"] == 6
    drawing = result["conditions"]["drawing"]
    assert drawing["template"] == "none" and drawing["temperature"] == 0.0
    assert drawing["sampler"] == "jax" and drawing["dtype"] == "float32"
    assert drawing["stop_token_ids"] == [0] and len(drawing["checkpoint"]) == 64
    assert "| **" not in shown and "| sums | 6 of 6 | 1 |" in shown
    # Again: nothing is drawn, the table is the same.
    completions = (tmp_path / "out" / "completions.jsonl").read_bytes()
    assert main(arguments) == 0
    assert capsys.readouterr().out == shown
    assert (tmp_path / "out" / "completions.jsonl").read_bytes() == completions
    # With other conditions it is another evaluation.
    assert main([*arguments, "--template", "{problem} "]) == 2
    assert "drawing.template='none', now '{problem} '" in capsys.readouterr().err


def test_a_runs_own_held_out_problems(model, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "hf").symlink_to(model)
    arguments = {"split": "held_out", "held_out": 20, "seed": 0}
    data = {"eval": "rl.arithmetic:problems", "eval_args": arguments, "fields": {}}
    config = {"data": data | {"template": "{problem}=?"}}
    (run / "config.json").write_text(json.dumps(config))
    asked = ("--template", "run", "--limit", "3")
    assert main(command(run, "held_out", tmp_path / "out", *asked)) == 0
    conditions = json.loads((tmp_path / "out" / "conditions.json").read_text())
    assert conditions["drawing"]["template"] == "{problem}=?"
    # The folder holds its problems: it can be judged without the run.
    out = tmp_path / "out.json"
    assert main(["--rescore", str(tmp_path / "out"), "--json", str(out)]) == 0
    figures = json.loads(out.read_text())["benchmarks"]["held_out"]
    assert (figures["problems"], figures["asked"]) == (3, 3)
    assert main(command(model, "held_out", tmp_path / "no")) == 2
    assert "no run that holds problems out" in capsys.readouterr().err


@pytest.mark.failure(33)
def test_a_run_without_an_exported_model_says_so(tmp_path, capsys):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert main(["--model", str(tmp_path / "run"), "--out", str(tmp_path / "o")]) == 2
    assert "this run has exported no model yet" in capsys.readouterr().err


@pytest.mark.vllm
def test_both_samplers_draw_the_same(model, sums, tmp_path, capsys):
    """Greedy in float32: the same completions token for token, and the same table."""
    policies.needs_vllm()
    for sampler in ("jax", "vllm"):
        more = ("--sampler", sampler, "--vllm_python", policies.PYTHON)
        assert main(command(model, sums, tmp_path / sampler, *more)) == 0
    assert kept(tmp_path / "jax") == kept(tmp_path / "vllm")
    assert len(kept(tmp_path / "jax")) == 40
    results = [
        json.loads((tmp_path / sampler / "results.json").read_text())["benchmarks"]
        for sampler in ("jax", "vllm")
    ]
    assert results[0] == results[1]


def test_two_runs_are_compared(model, sums, tmp_path, capsys):
    for seed in "12":
        more = ("--limit", "4", "--temperature", "1.0", "--seed", seed)
        assert main(command(model, sums, tmp_path / seed, *more)) == 0
    capsys.readouterr()
    out = tmp_path / "compare.json"
    runs = [str(tmp_path / seed) for seed in "12"]
    assert main(["--compare", *runs, "--json", str(out)]) == 0
    assert "| seed | `1` | `2` |" in capsys.readouterr().out
    assert json.loads(out.read_text())["benchmarks"]["sums"]["problems"] == 4


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "more, message",
    [
        (("--template", "qwen"), "template='qwen': neither one of none, qwen_math"),
        (("--samples", "4"), "samples=4 at temperature 0"),
        (("--context", "97"), "context=97 exceeds the model's 96 positions"),
        (("--benchmarks", "math501"), "benchmark 'math501': neither one of"),
        (("--dtype", "fp8"), "dtype='fp8': not one of"),
        (("--model", "/nonexistent"), "/nonexistent: no such model folder"),
    ],
)
def test_bad_input_is_one_line_before_any_work(
    model, sums, tmp_path, capsys, more, message
):
    assert main(command(model, sums, tmp_path / "out", *more)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
