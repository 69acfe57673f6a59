"""What a run says of itself, read back by TensorBoard's own reader and by sinks."""

import gzip
import html
import importlib.machinery
import json
import sys
import time
import types

import jax
import jax.numpy as jnp
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.hparams import metadata as hparams

from configs.base import RunConfig
from rl.groups.curriculum import Draw
from rl.groups.stats import RolloutStats
from rl.metric_loggers import Board, load_sinks
from rl.metrics import MetricsWriter, Stopwatch, console_line
from rl.update.objective import MEASURED, update_metrics
from rl.workdir.examples import example_rows, suspicion
from rl.workdir.trace import Trace
from tests.rl.examples import make_group


def opened(workdir, *, keep=-1, **options):
    return MetricsWriter(workdir, keep=keep, evaluated=keep, **options)


def read(workdir):
    board = EventAccumulator(str(workdir / "tensorboard"))
    board.Reload()
    return board


def points(board, tag):
    return [(e.step, e.value) for e in board.Scalars(tag)]


def write(workdir, rows, **options):
    writer = opened(workdir, **options)
    for step, values in rows:
        writer.scalars(step, values)
    writer.close()


def test_a_resumed_run_goes_on_with_its_charts(tmp_path):
    rows = [(s, {"a/moves": s / 4, "a/lost": s}) for s in (1, 2, 3)]
    write(tmp_path, [*rows, (3, {"eval/once": 0.5})])
    # Step 3 was lost.
    write(tmp_path, [(3, {"a/moves": 0.5})], keep=2)
    board = read(tmp_path)
    assert points(board, "a/moves") == [(1, 0.25), (2, 0.5), (3, 0.5)]
    assert points(board, "a/lost") == [(1, 1), (2, 2)]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]


@pytest.mark.failure(105)
def test_charts_do_not_need_a_clock_that_only_goes_forward(tmp_path, monkeypatch):
    write(tmp_path, [(s, {"a/moves": s / 4}) for s in (1, 2, 3)])
    # Of another writer in the same folder.
    (tmp_path / "tensorboard" / "events.out.tfevents.x.host").write_bytes(b"")
    for hours in (1, 2):  # the clock is set back before each start
        now = time.time_ns() - hours * 3600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        write(tmp_path, [(3, {"a/moves": float(hours)})], keep=2)
    board = read(tmp_path)
    assert points(board, "a/moves") == [(1, 0.25), (2, 0.5), (3, 2.0)]


def test_what_matters_stands_in_front(tmp_path):
    row = {"reward/accuracy": 0.125, "policy/entropy": 1.0, "alarms/a": 1}
    write(tmp_path, [(1, row), (2, {**row, "reward/accuracy": 0.25})])
    board = read(tmp_path)
    tags = sorted(board.Tags()["scalars"])
    assert tags[:2] == ["Front/policy entropy", "Front/reward accuracy"]
    assert points(board, "Front/reward accuracy") == points(board, "reward/accuracy")


def test_the_line_of_a_step_fits_a_terminal():
    metrics = {
        "reward/mean": -0.123, "reward/accuracy": 0.412, "policy/kl_old_policy": 1.2e-3,
        "policy/clipped_high": 0.01, "policy/clipped_low": 0.003,
        "length/all_mean": 3071.6, "seconds/step": 123.4, "policy/entropy": 0.5,
    }  # fmt: skip
    assert console_line(12, 200, metrics, 190) == (
        "step 12/200  reward -0.12  acc 41.2%  clip 1.3%  KL 0.0012  len 3072"
        "  123 s/step  3 min 10 s left"
    )
    assert len(console_line(20_000, 20_000, metrics, 400_000)) <= 100
    few = {"seconds/step": 1.25}
    assert console_line(1, 2, few, 1) == "step 1/2  1.2 s/step  1.0 s left"
    assert console_line(1, 2, few, None) == "step 1/2  1.2 s/step  compiled"


@pytest.mark.failure(220)
def test_tensorboard_shows_texts_as_they_are(tmp_path):
    text = r"\(x_1*y_1\) \[2*3*4\] **a** __init__ `x` \| a|b <b>1</b> &lt; ~~c~~"
    row = {"prompt": text, "completion": text, "gold": "1", "reward": 1.0}
    board = Board(tmp_path, config={}, keep=-1, front=set())
    board.samples(1, [row])
    board.close()
    (found,) = read(tmp_path).Tensors("samples")
    page = markdown_to_safe_html(found.tensor_proto.string_val[0])
    cell = page.split("<td>")[1].partition("</td>")[0]
    assert html.unescape(cell) == text


def test_hyperparameters(tmp_path):
    config = {"objective.eps_high": 0.28, "batch.row_lengths": [32, 64], "on": True}
    write(tmp_path, [], config=config)
    board = read(tmp_path)
    content = board.summary_metadata[hparams.SESSION_START_INFO_TAG].plugin_data.content
    found = hparams.parse_session_start_info_plugin_data(content).hparams
    assert found["objective.eps_high"].number_value == 0.28
    assert found["batch.row_lengths"].string_value == "[32, 64]"
    assert found["on"].bool_value is True


# -- sinks ---------------------------------------------------------------------------


class Kept:
    """A sink that keeps what it receives."""

    opened = []

    def __init__(self, workdir, *, config, keep):
        self.received, self.config, self.keep = [], config, keep
        Kept.opened.append(self)

    def scalars(self, step, values):
        self.received.append((step, dict(values)))

    def samples(self, step, rows):
        self.received.append((step, [row["completion"] for row in rows]))

    def close(self):
        self.received.append("closed")


class Broken(Kept):
    def scalars(self, step, values):
        raise RuntimeError("the service\nis gone")


ROW = dict(problem="1+1", prompt="1+1?", completion="2", gold="2", reward=1.0)


@pytest.mark.failure(85)
def test_sinks_are_told_and_none_of_them_ends_a_run(tmp_path, capsys):
    Kept.opened.clear()
    names = [f"{__name__}:Broken", f"{__name__}:Kept"]
    sinks = load_sinks(sinks=names)
    how = dict(config={"seed": 3}, sinks=sinks)
    writer = opened(tmp_path, **how)
    writer.scalars(1, {"reward/mean": 0.5, "policy/loss": float("nan")})
    writer.samples(1, [ROW])
    writer.close()
    of_nan = (tmp_path / "metrics.jsonl").read_text()
    write(tmp_path, [(1, {"reward/mean": 0.75})], keep=0, **how)
    broken, kept, _, again = Kept.opened
    assert json.loads(of_nan) == {"step": 1, "reward/mean": 0.5, "policy/loss": None}
    assert kept.config == {"seed": 3} and (kept.keep, again.keep) == (-1, 0)
    assert kept.received == [(1, {"reward/mean": 0.5}), (1, ["2"]), "closed"]
    assert again.received == [(1, {"reward/mean": 0.75}), "closed"]
    assert broken.received == []
    said = capsys.readouterr().out.splitlines()
    line = (
        f"WARNING: metric logger '{__name__}:Broken' failed and is not called"
        " again: the service is gone"
    )
    assert said == [line, line]  # once for each opening


def test_files_are_closed_though_a_stop_ends_the_close_of_a_sink(tmp_path):
    class Slow(Kept):
        def close(self):
            raise KeyboardInterrupt

    writer = opened(tmp_path, sinks={"slow": Slow})
    with pytest.raises(KeyboardInterrupt):
        writer.close()
    for write in (writer.scalars, writer.samples):
        with pytest.raises(ValueError, match="closed file"):
            write(1, {})


def test_a_sink_that_cannot_be_loaded_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert load_sinks(sinks=()) == {}
    for name, message in (
        ("csv", "config.log.sinks='csv': must be one of wandb, or 'module:function'"),
        ("nosuch:sink", "config.log.sinks='nosuch:sink': cannot be imported"),
        ("wandb", "wandb is not installed; run pip install wandb$"),
    ):
        with pytest.raises(ValueError, match=message):
            load_sinks(sinks=(name,))


@pytest.mark.failure(74)
def test_a_run_on_wandb_resumes_under_its_id(tmp_path, monkeypatch):
    """Replaces the package, and keeps the arguments of its calls."""
    calls = []
    run = types.SimpleNamespace(
        define_metric=lambda *a, **k: calls.append(("define", a, k)),
        log=lambda values: calls.append(("log", values)),
        finish=lambda: calls.append(("finish",)),
    )

    def init(**options):
        calls.append(("init", options["id"], options["resume"], options["config"]))
        return run

    stand_in = types.ModuleType("wandb")
    stand_in.init, stand_in.Table = init, lambda columns, data: data
    stand_in.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    sinks = load_sinks(sinks=("wandb",))
    write(tmp_path, [(1, {"a": 1.0})], sinks=sinks, config={"seed": 3})
    write(tmp_path, [(2, {"a": 2.0})], sinks=sinks, keep=1)
    begun = [call for call in calls if call[0] == "init"]
    run_id = (tmp_path / "wandb_id").read_text()
    assert len(run_id) == 8
    assert begun == [("init", run_id, "allow", own) for own in ({"seed": 3}, {})]
    assert ("define", ("*",), {"step_metric": "step"}) in calls
    logged = [call[1] for call in calls if call[0] == "log"]
    assert logged == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}]
    assert calls[-1] == ("finish",)


# -- what is kept of a step ----------------------------------------------------------


def decode(ids):
    return " ".join(map(str, ids))


def stats_of(*groups):
    stats = RolloutStats(RunConfig())
    for group in groups:
        size = len(group.completions)
        stats.add(Draw(group.problem, 0, 1.0, 0.5), group, size=size)
    return stats


def test_examples_are_the_best_the_worst_and_what_is_odd():
    plain = make_group([True, False, False], lengths=[5, 3, 4])
    other = make_group([False, False, True], lengths=[2, 6, 2], seed=1)
    cut = other.completions[1]
    object.__setattr__(cut, "finish_reason", "length")
    rows = example_rows(stats_of(plain, other), decode, decode, samples=4, after="")
    assert [row["shown_as"] for row in rows] == [["best"], ["worst"], ["truncated"], []]
    assert [row["reward"] for row in rows] == [1.0, -1.0, -1.0, -1.0]
    assert rows[2]["tokens"] == 6 and rows[2]["finish_reason"] == "length"
    assert rows[3]["completion"] == decode(other.completions[0].token_ids)
    assert rows[3]["prompt"] == decode(other.prompt_ids)
    (row,) = example_rows(stats_of(plain, other), decode, decode, samples=1, after="")
    assert row["shown_as"] == ["best"]
    assert example_rows(stats_of(plain), decode, decode, samples=0, after="") == []
    assert example_rows(stats_of(), decode, decode, samples=4, after="") == []


@pytest.mark.parametrize(
    ("completion", "changes", "after", "said"),
    [
        (r"so \boxed{3}", {}, "", ""),
        (r"so \boxed{142}", {}, "", ""),
        ("it is 1.42", {}, "", ""),
        ("it is 142.", {}, "", ""),
        (r"so \boxed{42 apples}", {}, "", "wrong, though the answer contains the gold"),
        ("it is 42.", {}, "", "no answer found, though it ends with the gold"),
        (r"\boxed{7}", {"rule": "open"}, "", "wrong, since nothing was proved within"),
        (r"\boxed{42}", {"correct": True}, "", ""),
        (r"\boxed{42}", {"correct": True, "finish_reason": "length"}, "",
         "was cut off"),
        (r"\boxed{42}", {"correct": True, "repeated": True}, "", "it is repetitive"),
        (r"so \boxed{42 apples}</think> no", {}, "</think>", ""),
        ("it is 42.</think> no", {}, "</think>", ""),
        ("it is 42.", {}, "</think>", ""),
        (r"no</think> so \boxed{42 apples}", {}, "</think>", "wrong, though the answ"),
        ("no</think> it is 42.", {}, "</think>", "no answer found, though it ends"),
    ],
)  # fmt: skip
def test_a_verdict_worth_a_second_look(completion, changes, after, said):
    row = {
        "completion": completion, "gold": "42", "correct": False, "repeated": False,
        "finish_reason": "stop", "rule": "different",
    }  # fmt: skip
    found = suspicion(row | changes, after=after)
    assert said in found and bool(said) == bool(found)


# -- traces --------------------------------------------------------------------------


def test_a_trace_holds_the_steps_asked_for_and_their_phases(tmp_path):
    double = jax.jit(lambda x: 2 * x)
    with Trace(tmp_path, steps=(2, 3)) as trace:
        for step in (1, 2, 3, 4):
            trace.begin(step)
            with Stopwatch().phase(f"phase of {step}"):
                double(jnp.ones(8)).block_until_ready()
    (file,) = (tmp_path / "profile").rglob("*.trace.json.gz")
    events = json.loads(gzip.open(file).read())["traceEvents"]
    names = {event.get("name") for event in events}
    phases = {f"phase of {s}" for s in range(1, 5)}
    assert phases & names == {"phase of 2", "phase of 3"}
    steps = [e["args"]["step_num"] for e in events if e.get("name") == "step"]
    assert sorted(map(int, steps)) == [2, 3]


def test_a_run_that_ends_within_a_trace_leaves_it_whole(tmp_path):
    with pytest.raises(RuntimeError, match="over"), Trace(tmp_path, steps=(1, 9)) as t:
        t.begin(1)
        raise RuntimeError("over")
    assert len(list((tmp_path / "profile").rglob("*.xplane.pb"))) == 1
    with Trace(tmp_path / "none", steps=()) as t:
        t.begin(1)
    assert not (tmp_path / "none").exists()


def test_a_step_of_one_update_has_no_old_log_probabilities_to_compare():
    """Nothing scored them: against the zeros in their place the gap would be 3 nats."""
    stats = {
        "sum": dict.fromkeys(MEASURED, 0.0) | {"tokens": 4.0, "old_gap": 12.0},
        "max": {"old_gap": 5.0, "sampler_gap": 0.0, "correction": 0.0},
        **{"loss": 0.0, "grad_norm": 1.0, "skipped": 0, "skipped_in_a_row": 0},
    }
    two = update_metrics([stats, stats])
    assert (two["policy/old_gap_mean"], two["policy/old_gap_max"]) == (3.0, 5.0)
    assert not any("old_gap" in name for name in update_metrics([stats]))
