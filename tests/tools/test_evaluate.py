import contextlib
import json
import os
import pathlib
import shutil
import signal
import time
from subprocess import DEVNULL

import pytest

from rl.files import read_rows, replace_rows
from rl.problems import arithmetic
from rl.problems.reading import write_problems
from rl.verifier import VerifierPool
from tests.other_processes import start_python
from tests.rollout.vllm import policies
from tests.tools.tiny import make_model, make_sums
from tools.evaluate import main
from tools.evaluation.benchmarks import BENCHMARKS, load_benchmark
from tools.evaluation.pretrained import find_pretrained


def write(folder, completions):
    """Keeps `(benchmark, id, sample, completion)` as an evaluation would."""
    folder.mkdir(parents=True)
    keys = ("benchmark", "id", "sample", "completion")
    rows = (dict(zip(keys, row, strict=True)) for row in completions)
    replace_rows(folder / "completions.jsonl", rows)
    return folder


def rescore(folder, shared_data, capsys):
    out = folder / "out.json"
    arguments = ["--rescore", str(folder), "--data_dir", str(shared_data)]
    assert main([*arguments, "--json", str(out)]) == 0
    capsys.readouterr()
    return json.loads(out.read_text())["benchmarks"]


# The six of which there is a copy.
HERE = [name for name, benchmark in BENCHMARKS.items() if benchmark.sha256]
WRONG = (
    "So it is \\boxed{987654.321}.",
    "The answer is {gold}.",
    "\\boxed{{gold}} Wait. \\boxed{}",
    "\\boxed{{gold}",
    "",
)
SAID = {
    # Any of several accepted answers.
    ("minerva272", "minerva-010"): {"0.01": 1, "0.02": 1, "0.03": 0},
    # meta.error is 0.1 around 4.2, in percent.
    ("olympiadbench675", "olympiadbench-316"): {
        "4.2": 1, "4.3": 1, "4.1\\%": 1, "4.31": 0, "4": 0,
    },
    # In kilometres.
    ("olympiadbench675", "olympiadbench-183"): {
        "\\frac{41}{12}": 1, "\\frac{41}{12} \\text{ km}": 1,
        "\\frac{41}{12} \\text{ m}": 0,
    },
}  # fmt: skip


def test_completions_of_all_problems_are_judged_as_they_should_be(
    tmp_path, shared_data, capsys
):
    """Every accepted answer of every row is right, and what only resembles it wrong."""
    cases = [
        (*key, f"\\boxed{{{answer}}}", bool(right))
        for key, answers in SAID.items()
        for answer, right in answers.items()
    ]
    for name in HERE:
        for p in load_benchmark(name, shared_data):
            for answer in p.answers:
                text = f"Thus \\boxed{{0}}, no: \\boxed{{{answer}}}."
                cases.append((name, p.id, text, True))
            for text in WRONG:
                cases.append((name, p.id, text.replace("{gold}", p.answers[0]), False))
    rows = ((name, id, i, text) for i, (name, id, text, _) in enumerate(cases))
    folder = write(tmp_path / "all", rows)
    result = rescore(folder, shared_data, capsys)
    assert {name: figures["problems"] for name, figures in result.items()} == {
        name: BENCHMARKS[name].rows for name in HERE
    }
    verdicts = read_rows(folder / "verdicts.jsonl")
    found = {v["sample"]: v["correct"] for _, v in verdicts}
    assert [case for i, case in enumerate(cases) if found[i] != case[-1]] == []


def test_rescoring_leaves_every_output(tmp_path, shared_data, capsys):
    folder = write(tmp_path / "a", [("aime2024", "aime24-000", 0, "\\boxed{204}")])
    figures = rescore(folder, shared_data, capsys)["aime2024"]
    assert (figures["accuracy"], figures["problems"], figures["asked"]) == (1.0, 1, 30)
    assert "1 of 30" in (folder / "table.md").read_text()
    assert "aime24-000" in (folder / "report.html").read_text()
    assert json.loads((folder / "results.json").read_text())["verifier"]


def test_copies_with_other_problems_are_never_mixed(model, tmp_path, capsys):
    for answer in ("1", "2"):
        (folder := tmp_path / answer).mkdir()
        row = {"id": "a", "problem": "1+1", "answer": answer}
        replace_rows(folder / "own.jsonl", [row])
        assert main(command(model, folder / "own.jsonl", folder / "out")) == 0
    folders = [str(tmp_path / name / "out") for name in ("1", "2")]
    assert main(["--compare", *folders]) == 2
    assert "have different problems or answers with" in capsys.readouterr().err
    first, second = (f"{folder}/problems/own.jsonl" for folder in folders)
    shutil.copy(second, first)
    assert main(["--rescore", folders[0]]) == 2
    fault = f"own was sampled from other problems or answers; restore {first}"
    assert fault in capsys.readouterr().err


def test_other_numbers_stand_beside_the_known_ones(model, tmp_path, capsys):
    rows = [
        {
            "id": str(i),
            "problem": f"Al sells {i} pens at 3 coins. What does he get?",
            "answer": str(3 * i),
            "solution": f"{i}*3=<<{i}*3={3 * i}>>{3 * i}",
        }
        for i in range(4, 9)
    ]
    path = tmp_path / "own.jsonl"
    replace_rows(path, rows)
    asked = f"{path},perturbed:{path}:2026-11-22"
    assert main(command(model, asked, tmp_path / "a", "--limit", "2")) == 0
    # Those of the same problems, though other files may have a name with an @ too.
    assert "from 0.0 on 2 problems, p 1 |" in capsys.readouterr().out
    other = tmp_path / "own@hard.jsonl"
    other.write_text('{"id": "x", "problem": "1+1", "answer": "2"}\n')
    assert main(command(model, f"{path},{other}", tmp_path / "b")) == 0
    shown = capsys.readouterr().out
    assert "| own@hard |" in shown and "from 0.0" not in shown


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "row, message",
    [
        (("aime2024", "aime24-999", 0, "x"), "aime2024 has no problem 'aime24-999'"),
        (("aime2026", "a", 0, "x"), "benchmark 'aime2026': must be one of aime2024"),
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


@pytest.fixture(scope="module", autouse=True)
def pool():
    """The workers of all evaluations of this file."""
    with VerifierPool(workers=2) as pool, pytest.MonkeyPatch.context() as patch:
        opened = contextlib.nullcontext(pool)
        patch.setattr("rl.reward.rewards.VerifierPool", lambda *_, **__: opened)
        yield


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
    how = dict(env=os.environ | {"XLA_FLAGS": ""}, stdout=DEVNULL, stderr=DEVNULL)
    return start_python("-m", "tools.evaluate", *arguments, **how)


def kept(folder):
    drawn = [row for _, row in read_rows(folder / "completions.jsonl")]
    rows = {(row["id"], row["sample"]): row for row in drawn}
    assert len(rows) == len(drawn), "a completion was kept twice"
    return rows


@pytest.fixture(scope="module")
def uninterrupted(model, sums, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    assert start(command(model, sums, out, *SAMPLED)).wait(300) == 0
    return out


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.failure(35)
def test_killed_and_stopped_and_started_again(model, sums, uninterrupted, tmp_path):
    again = command(model, sums, tmp_path / "cut", *SAMPLED)
    file, kept_before = tmp_path / "cut" / "completions.jsonl", b""
    for how, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)):
        process, enough = start(again), kept_before.count(b"\n") + 30
        deadline = time.monotonic() + 300
        while not file.exists() or file.read_bytes().count(b"\n") < enough:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(how)
        assert process.wait(300) == status
        # What was there stays, byte for byte, but for a row that was cut short.
        now = file.read_bytes()
        assert now.startswith(kept_before) and now.count(b"\n") < 160
        kept_before = now[: now.rfind(b"\n") + 1]
    assert start(again).wait(300) == 0
    assert file.read_bytes().startswith(kept_before)
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
    assert "published" not in shown and "| sums | 6 of 6 | 1 |" in shown
    # Again: nothing is drawn, the table is the same.
    completions = (tmp_path / "out" / "completions.jsonl").read_bytes()
    assert main(arguments) == 0
    assert capsys.readouterr().out == shown
    assert (tmp_path / "out" / "completions.jsonl").read_bytes() == completions
    # With other conditions it is another evaluation.
    assert main([*arguments, "--template", "{problem} "]) == 2
    assert "drawing.template='none', not '{problem} '" in capsys.readouterr().err


@pytest.mark.failure(134)
def test_two_benchmarks_with_one_name_are_refused(sums, tmp_path, capsys):
    (tmp_path / "other").mkdir()
    other = shutil.copy(sums, tmp_path / "other")
    assert main(command("m", f"{sums},{sums},{other}", tmp_path / "out")) == 2
    name = pathlib.Path(sums).stem
    assert f"{other}: {name} occurs twice; rename a file" in capsys.readouterr().err


@pytest.mark.failure(163)
def test_more_tokens_raise_the_context(sums, tmp_path, monkeypatch):
    model = make_model(tmp_path / "model", max_position_embeddings=8192)
    monkeypatch.setattr("tools.evaluation.sampler.open_sampler", None)
    for tokens, context in ((24, 4096), (5000, 6096), (8000, 8192)):
        out = tmp_path / str(tokens)
        asked = ["--model", str(model), "--benchmarks", str(sums), "--out", str(out)]
        with pytest.raises(TypeError):  # nothing is sampled
            main([*asked, "--max_tokens", str(tokens)])
        drawing = json.loads((out / "conditions.json").read_text())["drawing"]
        assert drawing["context"] == context


def test_a_score_beside_its_audit(model, tmp_path, capsys):
    text = "tom has {} nuts and eats 1 of them so how many"
    rows = [
        {"id": str(i), "problem": text.format(i), "answer": str(i - 1)}
        for i in range(1, 5)
    ]
    replace_rows(tmp_path / "nuts.jsonl", rows)
    out = tmp_path / "out"
    arguments = command(model, tmp_path / "nuts.jsonl", out, "--audit")
    assert main(arguments) == 0
    # Random weights know nothing by heart.
    assert "| 0.0 (40%), 0.0 (60%), 0.0 (80%) |" in capsys.readouterr().out
    # A model that does is recognized by its kept completions.
    kept = out / "audit" / "completions.jsonl"
    drawn = [row for _, row in read_rows(kept)]
    assert len(drawn) == 12
    for row in drawn:
        if row["benchmark"] == "nuts@60":
            row["completion"] = " of them so how many are left"
    replace_rows(kept, drawn)
    assert main(["--rescore", str(out)]) == 0
    assert "| 0.0 (40%), 100.0 (60%), 0.0 (80%) |" in capsys.readouterr().out


@pytest.mark.failure(166)
@pytest.mark.failure(40)
def test_a_runs_own_held_out_problems(model, tmp_path, capsys, monkeypatch):
    """As data: nothing that another person's workdir names is imported or called."""
    run = tmp_path / "run"
    shutil.copytree(model, run / "hf")
    sums = arithmetic.problems(split="held_out", held_out=20, seed=0)
    write_problems(run / "held_out.jsonl", sums)
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("trap.py", "run/hf/trap.py"):
        (tmp_path / name).write_text(f"open({str(trap / 'sprung')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = {"eval": "trap:problems", "train": "trap:problems", "eval_args": {}}
    config = {
        "data": names | {"template": "{problem}=?", "fields": {}},
        "reward": {"function": "trap:score"},
        "model": {"maker": "trap:make", "maker_args": {}},
    }
    (run / "config.json").write_text(json.dumps(config))
    tokenizer = run / "hf" / "tokenizer_config.json"
    raw = json.loads(tokenizer.read_text())
    raw["auto_map"] = {"AutoTokenizer": ["trap.Tokenizer", "trap.Tokenizer"]}
    tokenizer.write_text(json.dumps(raw))
    asked = ("--template", "run", "--limit", "3", "--reward", "verifier")
    asked += ("--fields", "problem=ask")  # of other sets
    assert main(command(run, "held_out", tmp_path / "out", *asked)) == 0
    conditions = json.loads((tmp_path / "out" / "conditions.json").read_text())
    assert conditions["drawing"]["template"] == "{problem}=?"
    # The folder holds its problems: it can be judged without the run.
    out = tmp_path / "out.json"
    assert main(["--rescore", str(tmp_path / "out"), "--json", str(out)]) == 0
    figures = json.loads(out.read_text())["benchmarks"]["held_out"]
    assert (figures["problems"], figures["asked"]) == (3, 3)
    assert not list(trap.iterdir())
    capsys.readouterr()
    assert main(command(model, "held_out", tmp_path / "no")) == 2
    assert "no held_out.jsonl; give the workdir of a run" in capsys.readouterr().err
    assert main(command(model, "a.jsonl", tmp_path / "no", "--template", "run")) == 2
    assert "damaged (no 'data'); give a run's workdir as" in capsys.readouterr().err


@pytest.mark.failure(46)
def test_the_reward_of_a_run_is_asked_for_and_not_imported(tmp_path, capsys, sys_path):
    """Judged by the verifier without a word, its accuracy would be another's."""
    (sys_path / "of_the_run.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
        "def score(text, problem):\n    return float(text == problem.meta['wanted'])\n"
    )
    run = tmp_path / "run"
    run.mkdir()
    (run / "held_out.jsonl").touch()
    for own in ({}, {"reward": ""}):
        config = {"reward": {"function": "of_the_run:score"}, "eval": own}
        (run / "config.json").write_text(json.dumps(config))
        asked = ["--model", str(run), "--benchmarks", "held_out", "--out", str(run)]
        assert main(asked) == 2
        told = capsys.readouterr().err
        assert "give --reward 'of_the_run:score', or --reward verifier" in told
    folder = write(tmp_path / "e", [("sums", "s", 0, "yes"), ("sums", "s", 1, "4")])
    (folder / "problems").mkdir()
    row = {"id": "s", "problem": "2+2", "answer": "4", "wanted": "yes"}
    replace_rows(folder / "problems" / "sums.jsonl", [row])
    assert not (sys_path / "of_the_run.ran").exists()
    out = ["--json", str(tmp_path / "out.json"), "--rescore", str(folder)]
    assert main([*out, "--reward", "of_the_run:score"]) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["reward"] == "of_the_run:score"
    assert result["benchmarks"]["sums"]["accuracy"] == 0.5
    assert result["benchmarks"]["sums"]["reward"] == 0.5
    verdicts = read_rows(folder / "verdicts.jsonl")
    assert [(v["correct"], v["reward"]) for _, v in verdicts] == [(True, 1), (False, 0)]
    # The folder's own record is data too.
    assert main(out) == 2
    assert "results.json: the reward 'of_the_run:score'" in capsys.readouterr().err


@pytest.fixture
def sys_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_name_in_a_folder_leads_nowhere_else(tmp_path, capsys):
    for name in ("../../secret", "/etc/secret", "a/b", ""):
        (tmp_path / "secret.jsonl").write_text('{"problem": "1+1", "answer": "2"}\n')
        folder = write(tmp_path / f"out{len(name)}", [(name, "secret-1", 0, "2")])
        assert main(["--rescore", str(folder)]) == 2
        message = f"benchmark {name!r}: must be a plain file name"
        assert message in capsys.readouterr().err


@pytest.mark.failure(33)
def test_a_run_without_an_exported_model_says_so(sums, tmp_path, capsys):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert main(command(tmp_path / "run", sums, tmp_path / "o")) == 2
    assert "this run has exported no model yet" in capsys.readouterr().err


@pytest.mark.failure(184)
@pytest.mark.parametrize(
    "steps, exported, old", [(20, True, True), (30, False, True), (30, True, False)]
)
def test_a_model_that_is_older_than_a_checkpoint_is_a_warning(
    model, tmp_path, capsys, steps, exported, old
):
    (tmp_path / "hf").symlink_to(model)
    for step in ("20", "30"):
        (tmp_path / "checkpoints" / step).mkdir(parents=True)
    summary = {"steps": steps, "exported": exported}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    find_pretrained(tmp_path)
    shown = capsys.readouterr().err
    assert ("hf is older than the checkpoint of step 30" in shown) is old


@pytest.mark.vllm
def test_both_samplers_draw_the_same(model, sums, tmp_path, capsys):
    """Greedy in float32: the same completions token for token, and the same table."""
    policies.needs_vllm()
    for sampler in ("jax", "vllm"):
        more = ("--sampler", sampler, "--vllm_python", policies.PYTHON)
        assert main(command(model, sums, tmp_path / sampler, *more)) == 0
    assert kept(tmp_path / "jax") == kept(tmp_path / "vllm")
    assert len(kept(tmp_path / "jax")) == 40
    files = (tmp_path / sampler / "results.json" for sampler in ("jax", "vllm"))
    jax, vllm = (json.loads(file.read_text())["benchmarks"] for file in files)
    assert jax == vllm


def test_two_runs_are_compared(model, sums, tmp_path, capsys):
    for seed in "12":
        more = ("--limit", "4", "--temperature", "1.0", "--seed", seed)
        assert main(command(model, sums, tmp_path / seed, *more)) == 0
    capsys.readouterr()
    out = tmp_path / "compare.json"
    runs = [str(tmp_path / seed) for seed in "12"]
    page = tmp_path / "page"
    assert main(["--compare", *runs, "--json", str(out), "--out", str(page)]) == 0
    assert "| seed | `1` | `2` |" in capsys.readouterr().out
    pair = json.loads(out.read_text())["pairs"][0]
    assert pair["benchmarks"]["sums"]["problems"] == 4
    assert "| seed | `1` | `2` |" in (page / "compare.md").read_text()
    with pytest.raises(SystemExit):
        main(["--compare", runs[0]])
    assert "give at least two evaluations" in capsys.readouterr().err


@pytest.mark.failure(133)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "more, message",
    [
        (("--template", "qwen"), "template='qwen': must be one of none, qwen_math"),
        (("--samples", "4"), "samples=4: must be 1 at temperature 0"),
        (("--max_tokens", "0"), "max_tokens=0: must be at least 1"),
        (("--context", "97"), "context=97: must be at most 96, the positions"),
        (("--benchmarks", "math501"), "benchmark 'math501': must be one of"),
        (("--dtype", "fp8"), "dtype='fp8': must be one of"),
        (("--model", "/nonexistent"), "/nonexistent: no such model folder"),
        (("--url", "http://h:1"), "--url: has no effect without --sampler vllm"),
        (("--seed", "-1"), "seed=-1: must be at least 0"),
    ],
)
def test_bad_input_is_one_line_before_any_work(
    model, sums, tmp_path, capsys, more, message
):
    assert main(command(model, sums, tmp_path / "out", *more)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
