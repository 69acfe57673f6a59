"""The page of a run: finished, running, hostile; its health; several compared."""

import fcntl
import json
import random
import re

import pytest

from configs import quickstart
from configs.schema import config_json
from rl.files import read_rows, replace_json, replace_rows
from tools.report.__main__ import main
from tools.report.health import findings
from tools.report.reading import read_runs
from tools.report.sections import page, smoothed

STEPS = 40
HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"><!-- \u2028 ]]> é 你好"
    "<style>*{display:none}</style><a href='javascript:alert(1)'>x</a>\"'>"
)


def metrics(step, rng, **changes):
    """A step of a healthy run."""
    gain = step / STEPS
    return {
        "step": step, "reward/mean": 2 * gain - 1 + rng.random() / 8,
        "reward/accuracy": gain, "length/all_mean": 24 + rng.random(),
        "length/all_p95": 26, "policy/loss": 0.01, "policy/entropy": 0.3 - gain / 8,
        "policy/clipped_high": 0.01, "policy/clipped_low": 0.02, "policy/skipped": 0,
        "policy/skipped_in_a_row": 0, "policy/sampler_gap_mean": 1e-4,
        "policy/grad_norm": 0.5, "schedule/learning_rate": 1e-4,
        "sampling/informative": 0.8, "sampling/truncated": 0.0,
        "sampling/repeated": 0.0, "sampling/duplicated": 0.5, "sampling/unjudged": 0,
        "sampling/tokens": 6000, "sampling/seconds": 0.25, "packing/tokens": 7000,
        "verifier/judged": 256, "seconds/sample": 0.25, "seconds/update": 0.75,
        "seconds/step": 1.0, "speed/sampling_tokens": 24_000,
        "speed/update_tokens": 9_333,
    } | changes  # fmt: skip


def sample(step, **changes):
    return {
        "step": step, "id": "7+8", "problem": "7+8", "completion": "so \\boxed{15}",
        "gold": "15", "correct": True, "reward": 1.0, "finish_reason": "stop",
        "tokens": 12, "repeated": False, "rule": "text", "suspect": "",
        "shown_as": ["best"],
    } | changes  # fmt: skip


def evaluated(accuracy):
    part = {"accuracy": accuracy, "accuracy_interval": [accuracy - 0.1, 1.0]}
    part |= {"problems": 256}
    by = {"by_source": {"gsm8k": part, "math500": part}, "by_level": {"1": part}}
    return part | {"samples": 4, "greedy_accuracy": accuracy} | by


def make(folder, *, seed=0, end=True, after=0.75, faults=None, **changes):
    """A run's folder; `faults` are changes of its metrics by step."""
    folder.mkdir(parents=True)
    config = quickstart.get_config()
    config.steps, config.seed = STEPS, seed
    for key, value in changes.items():
        config.objective[key] = value
    (folder / "config.json").write_text(config_json(config))
    manifest = {
        "identity": {"hosts": {"devices": 1}, "versions": {"jax": "0.10.2"}},
        "history": [{"after": 0, "changes": []}],
        "start": {"commit": "commit abc123", "devices": "8 x H100"},
    }
    replace_json(folder / "manifest.json", manifest)
    rng, faults = random.Random(seed), faults or {}
    rows = [metrics(s, rng, **faults.get(s, {})) for s in range(1, STEPS + 1)]
    replace_rows(folder / "metrics.jsonl", [{"step": 0, "eval/accuracy": 0.25}, *rows])
    replace_rows(folder / "samples.jsonl", [sample(s) for s in range(1, STEPS + 1)])
    if end:
        summary = {
            "base": evaluated(0.25), "final": evaluated(after), "steps": STEPS,
            "ended": "", "unhealthy": "", "skipped": 0, "wall_seconds": 61.0,
        }  # fmt: skip
        replace_json(folder / "summary.json", summary)
    return folder


def edit_summary(folder, **changes):
    summary = json.loads((folder / "summary.json").read_text())
    replace_json(folder / "summary.json", summary | changes)


def read(folder):
    (run,) = read_runs([folder])
    return run


def listed(folder):
    return [(f.kind, f.steps, f.text) for f in findings(read(folder))]


# -- health --------------------------------------------------------------------------


def test_a_healthy_run_has_no_findings(tmp_path):
    assert listed(make(tmp_path / "run")) == []


FAULTS = {
    "truncated": (
        {s: {"sampling/truncated": 0.95} for s in (3, 4, 5, 9)},
        ("alarm", "3-5, 9", "truncated: 95% of the completions are truncated"),
    ),
    "skipped": (
        {7: {"policy/skipped": 2, "policy/skipped_in_a_row": 2}},
        ("update", "7", "updates skipped: 2 (loss or gradient not finite)"),
    ),
    "null, which a run writes for nan": (
        {8: {"policy/loss": None}},
        ("alarm", "8", "not_finite: metrics are not finite, such as policy/loss"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path, name):
    faults, (kind, steps, text) = FAULTS[name]
    found = listed(make(tmp_path / "run", faults=faults))
    assert [f for f in found if f[:2] == (kind, steps) and f[2].startswith(text)]
    # And nothing else but the alarm of a skipped update.
    kinds = {f[2].partition(":")[0] for f in found} - {"skipped_updates"}
    assert len(kinds) == 1, found


def test_dumps_and_early_ends_are_found(tmp_path):
    folder = make(tmp_path / "run")
    dump = folder / "dumps" / "8"
    dump.mkdir(parents=True)
    replace_json(dump / "dump.json", {"step": 8, "cause": "a NaN"})
    ended = "0 of 4 informative groups"
    edit_summary(folder, ended=ended, unhealthy="its last 3 updates")
    assert listed(folder) == [
        ("dump", "8", "a NaN; see dumps/8"),
        ("end", "40", "ended early: 0 of 4 informative groups"),
        ("end", "40", "ended unhealthy: its last 3 updates"),
    ]


def declined(accuracies, tmp_path):
    """Findings of a run with these held-out accuracies, ten steps apart."""
    folder = make(tmp_path / "run")
    _, *rows = (row for _, row in read_rows(folder / "metrics.jsonl"))
    evaluations = enumerate(accuracies)
    rows += [{"step": 10 * i, "eval/accuracy": found} for i, found in evaluations]
    replace_rows(folder / "metrics.jsonl", rows)
    end = accuracies[-1]
    final = {"accuracy": end, "accuracy_interval": [end - 0.03, end + 0.03]}
    edit_summary(folder, final=final)
    return listed(folder)


@pytest.mark.failure(64)
def test_a_run_that_ends_below_its_start_or_its_best_is_found(tmp_path):
    (found,) = declined([0.387, 0.164], tmp_path / "a")
    text = "held-out accuracy ended at 16.4%, below its best of 38.7% at step 0"
    assert found == ("decline", "10", text)
    (found,) = declined([0.2, 0.5, 0.4], tmp_path / "b")
    text = "held-out accuracy ended at 40.0%, below its best of 50.0% at step 10"
    assert found == ("decline", "20", text)
    assert declined([0.387, 0.37], tmp_path / "c") == []  # within noise


def test_a_killed_run_is_a_finding_and_a_running_one_is_not(tmp_path):
    folder = make(tmp_path / "run", end=False)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert listed(folder) == []
        text = page([read(folder)])
        assert "<td>running</td>" in text and "has not ended" in text
    ((kind, steps, message),) = listed(folder)
    assert (kind, steps) == ("end", "40") and "stopped or killed" in message


# -- reading -------------------------------------------------------------------------


def test_an_incomplete_last_line_is_ignored_and_other_bad_lines_are_errors(tmp_path):
    folder = make(tmp_path / "run")
    for name in ("metrics", "samples"):
        with (folder / f"{name}.jsonl").open("a") as file:
            file.write('{"step": 41, "reward/me')
    run = read(folder)
    assert (run.done, len(run.samples)) == (STEPS, STEPS)
    assert findings(run) == []
    lines = (folder / "samples.jsonl").read_text().splitlines()
    for bad, message in {
        "nonsense": "not JSON",
        '{"step": "3"}': "step='3': must be of type int",
        '{"step": 3, "reward": 1, "problem": "?"}': "completion=None: must be",
    }.items():
        (folder / "samples.jsonl").write_text("\n".join([lines[0], bad, lines[1]]))
        with pytest.raises(ValueError, match=f"samples.jsonl:2: {message}"):
            read(folder)


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", "manifest.json"])
def test_a_run_that_has_just_begun(tmp_path, name):
    folder = make(tmp_path / "run", end=False)
    (folder / name).unlink()
    assert "<h1>run</h1>" in page([read(folder)])
    for path in folder.glob("*.jsonl"):
        path.write_text("")
    assert "No step is done yet" in page([read(folder)])


def test_a_folder_without_a_run_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert "no config.json; give the workdir of a run" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_two_folders_with_the_same_name_are_named_by_their_paths(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
        make(tmp_path / parent / "run")
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    assert [run.name for run in read_runs(folders)] == list(map(str, folders))
    assert len(read_runs([*folders, folders[0]])) == 2


@pytest.mark.parametrize("name", ["config", "manifest", "summary"])
@pytest.mark.parametrize(
    "text", ['{"steps": "x"}', '{"identity": 3, "history": 3}',
             '{"base": 3, "final": {"accuracy": "<b>"}, "objective": [1]}']
)  # fmt: skip
def test_untrusted_files_are_read_as_data(tmp_path, name, text):
    folder = make(tmp_path / "run")
    (folder / f"{name}.json").write_text(text)
    assert "<h1>run</h1>" in page([read(folder)])
    (folder / f"{name}.json").write_text("[]")
    with pytest.raises(ValueError, match=f"{name}.json: must be a JSON object"):
        read(folder)


def test_a_completion_without_a_reason_is_shown(tmp_path):
    folder = make(tmp_path / "run")
    row = sample(1)
    del row["shown_as"]
    replace_rows(folder / "samples.jsonl", [row])
    assert "so \\boxed{15}" in page([read(folder)])


# -- the page ------------------------------------------------------------------------


def hostile(folder):
    """A run in which every text from outside is hostile."""
    make(folder)
    own = {k: HOSTILE for k in ("problem", "completion", "gold", "rule", "suspect")}
    kinds = {"shown_as": [HOSTILE], "components": {HOSTILE: HOSTILE}, "tokens": HOSTILE}
    replace_rows(folder / "samples.jsonl", [sample(1, **own, **kinds), sample(2)])
    config = json.loads((folder / "config.json").read_text())
    config["model"]["path"] = config["alarms"][HOSTILE] = HOSTILE
    config[HOSTILE] = {HOSTILE: HOSTILE}
    replace_json(folder / "config.json", config)
    summary = {"ended": HOSTILE, "unhealthy": HOSTILE, "wall_seconds": 3}
    part = {"accuracy": 0.5, "problems": HOSTILE}
    summary["final"] = part | {"by_source": {HOSTILE: part, "b": part}}
    replace_json(folder / "summary.json", summary)
    dump = folder / "dumps" / "8"
    dump.mkdir(parents=True)
    replace_json(dump / "dump.json", {"cause": HOSTILE})
    return folder


@pytest.mark.parametrize("count", [1, 2])
def test_hostile_texts_stay_texts(tmp_path, count):
    runs = [read(hostile(tmp_path / f"run{i}<img src=x>")) for i in range(count)]
    text = page(runs)
    assert "<script" not in text and "</script" not in text
    assert "<img" not in text and "<a " not in text
    assert text.count("<style") == 1 + count
    # It is there, and as text.
    assert text.count("&lt;img src=x onerror=&#34;") > 15
    (policy,) = re.findall(r'Security-Policy" content="(.*?)"', text)
    assert policy.startswith("default-src 'none'; script-src 'none';")


@pytest.mark.failure(70)
def test_the_page_of_a_run(tmp_path):
    text = page([read(make(tmp_path / "run", eps_high=0.36))])
    assert "commit abc123" in text and "8 x H100" in text
    assert "<td>objective.eps_high</td><td>0.36</td>" in text
    assert "<td>objective.eps_low</td>" not in text  # as in configs/base.py
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert titles[:9] == [
        "accuracy", "reward", "length, tokens", "entropy, nats", "clip fractions",
        "speed, tokens per second", "gradient norm", "sampler gap, nats",
        "learning rate",
    ]  # fmt: skip
    assert "accuracy, step 20: 0.5" in text  # on hover
    assert "<td>gsm8k</td><td>before</td>" in text
    assert '<td>update</td><td class="number">30</td><td>75.0</td>' in text
    assert len(text.encode()) < 5e6 and "://" not in text


def test_a_long_run_stays_under_five_megabytes(tmp_path):
    folder = make(tmp_path / "run")
    rng = random.Random(0)
    replace_rows(folder / "metrics.jsonl", [metrics(s, rng) for s in range(1, 2001)])
    long = "<&> " * 4000
    rows = [sample(step, completion=long) for step in range(1500)]
    replace_rows(folder / "samples.jsonl", rows)
    text = page([read(folder)])
    assert 5e5 < len(text.encode()) < 5e6
    assert "more completions are in samples.jsonl" in text
    assert text.count("<summary>step ") > 50


def test_smoothing_keeps_the_ends_and_the_mean_of_a_line():
    points = [(s, float(s)) for s in range(100)]
    line = smoothed(points)
    assert [s for s, _ in line] == list(range(100))
    assert line[50] == (50, 50.0) and line[0] == (0, 1.0)  # the mean of 0, 1 and 2
    assert smoothed([(3, 7.0)]) == [(3, 7.0)] and smoothed([]) == []


def test_runs_are_compared(tmp_path):
    folders = [make(tmp_path / "a"), make(tmp_path / "b", eps_high=0.2, after=0.5)]
    text = page(read_runs(folders))
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert titles[:2] == ["reward/accuracy", "eval/accuracy"]
    assert "<td>objective.eps_high</td><td>0.28</td><td>0.2</td>" in text
    assert "b, step 20: 0.5" in text and "<h2>b: Before and after</h2>" in text


def test_settings_that_differ_late_are_shown(tmp_path):
    long = "my_" + 60 * "x"
    runs = [read(make(tmp_path / end, function=f"{long}:{end}")) for end in ("a", "b")]
    assert f"{long}:b&#34;</td>" in page(runs)


def test_the_command_prints_the_findings_and_the_file(tmp_path, capsys):
    folder = make(tmp_path / "run", faults=FAULTS["skipped"][0])
    out = folder / "report.html"
    main([str(folder), "--json", str(tmp_path / "found.json")])
    message = capsys.readouterr().out
    line = f"{folder.name}: update: step 7: updates skipped: 2 (loss or gradient"
    assert line in message
    assert message.splitlines()[-1].startswith(f"{out}: 0.")
    found = json.loads((tmp_path / "found.json").read_text())["run"]
    assert {f["kind"] for f in found} == {"alarm", "update"}
