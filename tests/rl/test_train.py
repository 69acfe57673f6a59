"""The command itself: what it writes, how it ends, and that it resumes bit for bit."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy
import transformers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from configs import quickstart
from rl.checksums import steps_in
from tests import forked, other_processes
from tests.metrics_page import documented
from tests.other_processes import ROOT, dotted, environment, python, start_python
from tools.report.health import findings
from tools.report.reading import read_runs
from tools.report.sections import page

STEPS = 12

# The base is right often enough that a step leaves groups over to the next one.
SMALL = {
    "steps": STEPS,
    "model.maker_args": dict(steps=400, batch=32, layers=2, held_out=40),
    # Every start reads and encodes them all.
    "data.train_args.held_out": 4000,
    "data.eval_args.held_out": 40,
    "rollout": dict(group_size=8, slots=32, max_response_tokens=32),
    "batch": dict(prompts_per_step=4, prompts_per_update=2),
    "eval.samples": 2,
    # A busy machine must not lose a step.
    "checkpoint": dict(every_steps=2, grace_seconds=600),
    "dynamic_sampling.max_rounds": 40,
    "mesh.cpu_devices": 2,
}
SMALL = dotted(SMALL)

# The quickstart's own base.
ABLE = dotted({"model.maker_args": dict(steps=600, batch=64, layers=3)})


def command(workdir, cache, *, config="configs/quickstart.py", **changes):
    settings = {**SMALL, "model.maker_args.cache": str(cache), **changes}
    # Of all commands that the suite starts.
    settings["compiled"] = os.environ["JAX_COMPILATION_CACHE_DIR"]
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    train = [sys.executable, "-m", "rl.train"]
    return [*train, f"--config={config}", f"--workdir={workdir}", *flags]


def made_base(cache):
    """The base of SMALL, which a run has made."""
    section = "model.maker_args."
    own = {k.removeprefix(section): v for k, v in SMALL.items() if section in k}
    # Not at the top: workers of rewards import this module, but no tokenizer.
    from rl.problems.arithmetic import make_base

    arguments = quickstart.get_config().model.maker_args.to_dict() | own
    return make_base(**{**arguments, "cache": str(cache)})


def run(arguments, *, check=True):
    done = python(*arguments[1:], env=environment())
    if check and done.returncode:
        raise AssertionError(done.stdout[-2000:] + done.stderr[-2000:])
    return done


def starts(folder, commands):
    """Runs commands without a terminal, see `tests.forked`."""
    after = [arguments[arguments.index("rl.train") + 1 :] for arguments in commands]
    needs = ("rl.setup", "rl.loop", "tensorboard")
    return forked.starts(
        folder, "rl.train", after, needs=needs, cwd=ROOT, env=environment()
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """A small run to its end."""
    workdir = tmp_path_factory.mktemp("run") / "work"
    return workdir, run(command(workdir, cache))


def _rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# What depends on the machine and the moment; saves run while steps do.
TIMINGS = ("seconds/", "speed/", "timing/", "sampling/seconds", "checkpoint/")


def _metrics(workdir):
    return [
        {k: v for k, v in row.items() if not k.startswith(TIMINGS)}
        for row in _rows(workdir / "metrics.jsonl")
    ]


def _weights(workdir):
    return safetensors.numpy.load_file(workdir / "hf" / "model.safetensors")


def _assert_same_run(a, b):
    left, right = _weights(a), _weights(b)
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)
    assert _metrics(a) == _metrics(b)
    assert _rows(a / "samples.jsonl") == _rows(b / "samples.jsonl")


def test_nothing_compiles_after_the_first_steps(finished):
    rows = _rows(finished[0] / "metrics.jsonl")
    compiled = [r["timing/compiled_programs"] for r in rows if "reward/mean" in r]
    assert compiled[0] > 0
    assert compiled[2:] == [0] * (STEPS - 2)


def test_the_page_of_figures_names_what_a_run_writes(finished):
    written = {name for row in _rows(finished[0] / "metrics.jsonl") for name in row}
    assert len(written) > 60
    pattern = documented()
    assert {name for name in written - {"step"} if not pattern.fullmatch(name)} == set()
    assert not pattern.fullmatch("policy/entropies")


def test_a_run_leaves_what_it_promises(finished, cache):
    workdir, done = finished
    names = {p.name for p in workdir.iterdir()}
    expected = "config.json metrics.jsonl samples.jsonl summary.json tensorboard"
    assert names >= {*expected.split(), "checkpoints", "hf"}
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["steps"] == STEPS and summary["updates"] == 2 * STEPS
    for part in ("base", "final"):
        assert 0 <= summary[part]["accuracy"] <= 1
        assert 0 <= summary[part]["greedy_accuracy"] <= 1
        assert summary[part]["problems"] == 40
    assert f"step {STEPS}/{STEPS}" in done.stdout and "left" in done.stdout
    assert done.stdout.count("columns: reward (mean), acc ") == 1
    assert f"\nnext:\n  python -m tools.report {workdir}\n" in done.stdout
    model = transformers.AutoModelForCausalLM.from_pretrained(workdir / "hf")
    assert model.config.model_type == "qwen2"
    tokenizer = transformers.AutoTokenizer.from_pretrained(workdir / "hf")
    assert tokenizer.decode(tokenizer.encode("12+34?\n")) == "12+34?\n"
    # Asked as in training, by a chat, and described by a card.
    chat = [{"role": "user", "content": "12+34"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "12+34?\n"
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id]
    card = (workdir / "hf" / "README.md").read_text()
    assert f"This is step {STEPS} of {STEPS}." in card
    assert "- base: avg@2" in card and "- final: avg@2" in card
    base = made_base(cache) / "model.safetensors"
    before, after = safetensors.numpy.load_file(base), _weights(workdir)
    assert all((before[k] != after[k]).mean() > 0.5 for k in before)


KEPT = ("metrics.jsonl", "samples.jsonl", "config.json", "manifest.json")


def _bytes(workdir):
    return {name: (workdir / name).read_bytes() for name in KEPT}


def test_a_finished_run_says_so_and_is_not_repeated(finished, early):
    workdir, again = early["the same"]
    assert again.returncode == 0 and "finished already" in again.stdout
    assert _bytes(workdir) == _bytes(finished[0])


def test_tensorboard_opens_the_run(finished):
    workdir, _ = finished
    board = EventAccumulator(str(workdir / "tensorboard"))
    board.Reload()
    names = {name for row in _rows(workdir / "metrics.jsonl") for name in row}
    names.remove("step")
    assert names <= set(board.Tags()["scalars"]) and len(names) > 40
    updates = [(e.step, e.value) for e in board.Scalars("schedule/updates")]
    assert updates == [(s, 2.0 * s) for s in range(1, STEPS + 1)]
    rows = _rows(workdir / "metrics.jsonl")
    rows = {row["step"]: row for row in rows if "reward/mean" in row}
    for event in board.Scalars("reward/mean"):
        assert event.value == pytest.approx(rows[event.step]["reward/mean"], rel=1e-6)
    # float32: the same program scored the tokens, but for rounding.
    assert all(row["policy/old_gap_max"] < 1e-5 for row in rows.values())
    for event in board.Scalars("policy/sampler_gap_max"):
        # Groups left over from the step before were drawn by an older policy.
        assert event.value < 1e-4 or rows[event.step]["sampling/carried"]
    text = board.Tensors("samples")[-1].tensor_proto.string_val[0].decode()
    assert text.startswith("| prompt | completion |") and "boxed" in text


def test_its_report_finds_nothing_wrong(finished):
    (run,) = read_runs(finished[:1])
    assert findings(run) == [] and run.done == STEPS
    assert run.samples[0]["rule"]
    text = page([run])
    assert "No problems found" in text and "<td>level 4</td>" in text


def _begin(arguments):
    return start_python(*arguments[1:], env=environment(), stderr=subprocess.STDOUT)


def kill_at(arguments, step):
    """Runs until the line of a step, and kills it there."""
    process = _begin(arguments)
    read_until(process, f"step {step}/")
    process.kill()
    process.wait()


def read_until(process, start):
    """What a run says up to a line that begins like this."""
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(start):
            return "".join(said)
    raise AssertionError("".join(said)[-4000:])


def _kill_in_the_middle(arguments, rng, of):
    """Somewhere inside a step, once the workdir `of` has a complete checkpoint."""
    process = _begin(arguments)
    seconds = float(re.search(r"([\d.]+) s/step", read_until(process, "step "))[1])
    while not steps_in(of / "checkpoints"):
        assert process.poll() is None, process.stdout.read()[-4000:]
        time.sleep(0.01)
    # No longer than a step: a fast machine would come to the run's end.
    time.sleep(rng.random() * min(seconds, 0.5))
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, cache):
    """A run that is killed, then stopped by a signal, and then ends.

    Returns:
      Its workdir, the status and the output of the start that was stopped, how another
      start ended meanwhile, and the output of the last. The copy "fewer" is the workdir
      after the signal.
    """
    workdir = tmp_path_factory.mktemp("interrupted") / "work"
    _kill_in_the_middle(command(workdir, cache), random.Random(0), of=workdir)
    # What a stop leaves is saved for its sake alone.
    seldom = command(workdir, cache, **{"checkpoint.every_steps": 100})
    process = _begin(seldom)
    said = read_until(process, "step ")
    process.send_signal(signal.SIGSTOP)
    second = run(seldom, check=False)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    said += process.communicate()[0]
    shutil.copytree(workdir, workdir.with_name("fewer"))
    last = run(command(workdir, cache)).stdout
    return workdir, process.returncode, said, second, last


@pytest.mark.failure(30)
def test_killed_and_stopped_it_ends_bit_for_bit_the_same(finished, interrupted):
    _assert_same_run(finished[0], interrupted[0])
    # Groups that were left over went through the checkpoints too.
    assert any(row.get("sampling/carried") for row in _metrics(finished[0]))


@pytest.mark.failure(35)
def test_a_stop_signal_saves_and_the_next_start_resumes(interrupted, early):
    _, status, said, _, following = interrupted
    assert status == 128 + signal.SIGTERM, said
    assert "saved after step " in said and "Traceback" not in said
    last = re.findall(r"^step (\d+)/", said, re.M)[-1]
    assert int(last) > 1 and f"resuming after step {last}\n" in following
    # Asked for fewer steps than it has done, the run is evaluated as it is.
    # Its result would otherwise be the evaluation of the base.
    assert f"evaluation after step {last}: " in early["fewer steps"][1].stdout


@pytest.mark.failure(34)
def test_a_second_run_in_one_workdir_is_refused(interrupted):
    second = interrupted[3]
    assert second.returncode == 1
    assert "another process writes to this folder" in second.stderr


@pytest.mark.failure(30)
@pytest.mark.slow
@pytest.mark.ci
def test_killed_at_random_it_ends_bit_for_bit_the_same(finished, cache, tmp_path):
    """More kills, at named moments too, are those of tests/soak.py."""
    rng, again = random.Random(2), tmp_path / "again"
    arguments = command(again, cache)
    for _ in range(2):
        _kill_in_the_middle(arguments, rng, of=again)
    done = run(arguments)
    assert "resuming after step" in done.stdout
    _assert_same_run(finished[0], again)


# A rate at which the first update leaves the finite numbers, and no alarm that ends it.
FAR = {
    "schedule.learning_rate": 1e30,
    "reward.function": "tests.rl.examples:parity",
    "dynamic_sampling.filter": False,
    "alarms.stop_on": (),
    "steps": 3,
    "data.eval": "",
}


@pytest.fixture(scope="module")
def unhealthy(tmp_path_factory, cache):
    """Such a run."""
    workdir = tmp_path_factory.mktemp("unhealthy") / "work"
    return workdir, run(command(workdir, cache, **FAR), check=False)


def _error(done, status=1):
    """The one line in which a run ended."""
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.failure(37)
@pytest.mark.failure(50)
@pytest.mark.parametrize(
    "which,message",
    [
        ("another seed", "holds another run: config.seed: 0 -> 1; give --accept_ch"),
        ("finished, another rate", "holds another run: config.schedule.learning_r"),
        ("no checkpoints", ", but there is none."),
    ],
)
def test_another_run_is_refused_and_kept(finished, early, which, message):
    workdir, done = early[which]
    assert message in _error(done)
    assert _bytes(workdir) == _bytes(finished[0])


@pytest.mark.failure(147)
def test_a_failed_save_is_not_logged_by_orbax():
    code = (
        "import logging\nfrom rl import train\n"
        "train.flags.FLAGS(['train'])\n"
        "try:\n    train.main(['train'])\n"
        "finally:\n    print(logging.getLogger('absl').isEnabledFor(logging.ERROR))"
    )
    done = python("-c", code)
    assert done.stdout == "False\n" and "error: give --config=" in done.stderr


@pytest.mark.failure(38)
def test_a_base_that_is_not_finite_is_named_and_not_trained(early):
    workdir, done = early["a base with a NaN"]
    base = workdir.with_name("base")
    assert _error(done).startswith(f"error: {base}: layers/up is not finite in 1 of ")
    assert _error(done).endswith(" entries")
    assert not (workdir / "hf").exists()


@pytest.mark.failure(38)
def test_a_run_that_is_not_finite_exports_nothing(unhealthy, early):
    workdir, done = unhealthy
    message = "ended unhealthy: last updates not finite"
    assert message in _error(done, 3)
    assert "skipped updates in a row: 1, because they were not fin" in done.stdout
    assert not (workdir / "hf").exists()
    # Started again it says so again, whatever an earlier end has left.
    workdir, again = early["unhealthy"]
    assert message in _error(again, 3)
    assert f"no model was exported; {workdir}/hf has an earlier" in again.stdout


def _files(folder):
    """All that is there, but for what Python itself compiles on import."""
    return {
        (str(path.relative_to(folder)), path.is_file() and path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


@pytest.fixture
def checkout(tmp_path):
    """A fresh one: others may write into this."""
    shutil.copytree(
        ROOT,
        tmp_path / "checkout",
        ignore=shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "tests"),
    )
    return tmp_path / "checkout"


@pytest.mark.failure(172)
def test_a_dry_run_writes_nothing(tmp_path, checkout):
    """Nor in the home folder or that of temporary files, when it has ended."""
    homes = {"HOME": tmp_path / "home", "TMPDIR": tmp_path / "tmp"}
    for folder in homes.values():
        folder.mkdir()
    before = _files(tmp_path)
    assert ("checkout/configs/base.py" in dict(before)) and len(before) > 150
    flags = "--workdir=w", "--config.rollout.group_size=9", "--dry_run"
    env = environment(PYTHONPATH=str(checkout))
    env |= {name: str(path) for name, path in homes.items()}
    command = "-m", "rl.train", "--config=configs/quickstart.py", *flags
    done = python(*command, cwd=checkout, env=env)
    assert done.returncode == 0, done.stderr
    assert "\n  rollout.group_size = 9\n" in done.stdout
    assert done.stdout.startswith("devices              cpu: ")
    assert "512 rows, 512 used\n" in done.stdout
    assert 'first prompt         "0+0?\\n"\n' in done.stdout
    assert 'as tokens            5: "0" "+" "0" "?" "\\n"\n' in done.stdout
    assert 'stop tokens          "<|endoftext|>"\n' in done.stdout
    assert r"rewards              \boxed{0} 1; \boxed{1} -1" in done.stdout
    assert done.stdout.count("\n") < 80
    assert "updates per step     2" in done.stdout
    assert " MB each, the newest " in done.stdout
    assert "; saving takes less than 1 s at 1 GB/s" in done.stdout
    assert "trained on per step  288 completions, at most " in done.stdout
    # 8 rounds, each of twice the problems of a step.
    assert "sampled per step     at most 4,608 completions" in done.stdout
    assert "rl.problems.arithmetic:make_base (187,712 parameters)" in done.stdout
    (writes,) = re.findall(r"^writes +w/: (.*), \S+/$", done.stdout, re.M)
    assert {"held_out.jsonl", "assets/", "profile/", "hf/"} < set(writes.split())
    assert _files(tmp_path) == before


@pytest.mark.failure(160)
def test_a_dry_run_says_where_the_run_begins(tmp_path):
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    program = (
        "import pathlib; from rl import train;"
        " train.flags.FLAGS(['train', '--dry_run']);"
        " train.validate = lambda c: None; train.dry_run = lambda *of: 'page';"
        f" begun = pathlib.Path('{tmp_path}');"
        " [train._lead(None, workdir, None, None) for workdir in (begun, begun / 'a')]"
    )
    done = python("-c", program, env=environment())
    expected = ["page", "begins after step 7", "page", "begins a new run"]
    assert done.stdout.splitlines() == expected, done.stderr


def test_help_lists_the_flags_and_the_keys(early):
    _, done = early["help"]
    assert "--workdir: Folder of the run." in done.stdout
    assert "    timeout: Positive = 5.0" in done.stdout
    assert "    group_size: Annotated[int, Range(2)] = 16" in done.stdout


def test_a_config_with_its_reward_and_data_beside_it(tmp_path):
    """They are found from another folder, and `~` is the home folder."""
    mine = tmp_path / "home" / "mine"
    mine.mkdir(parents=True)
    (mine / "my_reward.py").write_text(
        "def score(text, problem):\n    return float(problem.answers[0] in text)\n"
    )
    (mine / "my_data.py").write_text(
        "from rl.types import Problem\n\n\n"
        "def problems(n):\n"
        "    return [Problem(id=str(i), problem=f'{i}+1', answers=(str(i + 1),))"
        " for i in range(n)]\n"
    )
    other_processes.make_config(
        mine / "my_config.py",
        "c.data.train, c.data.train_args = 'my_data:problems', {'n': 20}",
        "c.reward.function, c.compiled = 'my_reward:score', '~/compiled'",
    )
    command = "-m", "rl.train", "--config=~/mine/my_config.py", "--workdir=~/w"
    env = environment(HOME=str(tmp_path / "home"))
    done = python(*command, "--dry_run", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "my_data:problems: 20 rows, 20 used" in done.stdout
    assert "\\boxed{1} 1; \\boxed{2} 0" in done.stdout
    assert f'  compiled = "{tmp_path}/home/compiled"' in done.stdout
    assert f"{tmp_path}/home/w/: config.json" in done.stdout
    files = {"my_config.py", "my_data.py", "my_reward.py"}
    assert {path.name for path in mine.iterdir()} == files


BAD = [
        ({"model.maker": "", "model.path": "no/such/model"}, "no/such/model: no such"),
        ({"data.train": "missing.jsonl"}, "missing.jsonl: no such file"),
        ({"model.maker_args.hiden_size": 4},
         "config.model.maker_args.hiden_size: unknown key 'hiden_size'"),
        ({"rollout.group_size": "many"}, "many"),
        ({"data.eval": "{a: x}"}, "config.data.eval='{a: x}': must be files, a"
         " function, or a dict of these by name, written as in Python: {'NAME': "),
        ({"optimizer.group_size": 9}, "error: config.optimizer.group_size: unknown key"
         " 'group_size'; use config.rollout.group_size"),
        ({"rollout.top_p": 0.9}, "error: config.rollout.top_p: unknown key 'top_p'"),
        ({"data.fields.problem": "a"}, "error: config.data.fields.problem: unknown key"
         """ 'problem'; write --config.data.fields="{'problem': 'VALUE'}\""""),
]  # fmt: skip


# What stages are trained with, and settings that do not fit, with them or without.
STAGES = (
    {"name": "short", "levels": {"3": 1.0}, "steps": 3, "group_size": 4,
     "max_response_tokens": 28, "learning_rate": 5e-5, "temperature": 0.7},
    {"name": "all", "levels": {"2": 0.25, "4": 0.5, "5": 0.25}, "eps_high": 0.3,
     "temperature": 0.9},
)  # fmt: skip
UNFIT = [
        ({"rollout.max_response_tokens": 200, "batch.row_lengths": (256,)},
         "max_prompt_tokens=8 + config.rollout.max_response_tokens=200 exceed the"
         " model's max_position_embeddings=128"),
        ({"batch.prompts_per_update": 3}, "prompts_per_step=4: must be a multiple"),
        ({"batch.row_lengths": (16,)}, "the longest must be at least"),
        ({"batch.micro_tokens": 64}, "micro_tokens=64: must be at least"),
        ({"reward.overlong_factor": 1.0}, "config.reward.overlong_buffer=512: must be"
         " less than max_response_tokens=32"),
        ({"data.template": "qwen"}, "template='qwen'"),
        ({"reward.function": "nowhere:f"}, "reward.function='nowhere:f': cannot be"
         " imported (ModuleNotFoundError: No module named 'nowhere')"),
        ({"curriculum.stages": STAGES, "rollout.max_response_tokens": 20},
         "stages[0].max_response_tokens=28: must be at most"),
        ({"curriculum.stages": STAGES, "data.train_args.held_out": 5050}, "no problem"),
        ({"curriculum.stages": STAGES, "rollout.max_prompt_tokens": 5, "data.eval": ""},
         "prompts that are unreadable or exceed config.rollout.max_prompt_tokens=5"),
]  # fmt: skip


@pytest.mark.failure(33)
@pytest.mark.failure(26)
@pytest.mark.parametrize("changes, message", UNFIT)
def test_settings_that_do_not_fit_are_one_line(changes, message):
    # As in `made_base`.
    from configs.base import from_config
    from rl.run_spec import validate

    config = quickstart.get_config()
    config.update_from_flattened_dict({**SMALL, **changes})
    with pytest.raises(ValueError) as caught:
        validate(from_config(config))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_device_without_memory_left_is_one_line(checkout):
    """In a trainer that has not imported torch."""
    program = (
        "import pathlib, sys, jax.numpy as jnp; from rl import train;"
        " train.flags.FLAGS(['train', '--dry_run']);"
        " train.start_devices = lambda *of: None;"
        " train.from_config = lambda _: None;"
        " train._lead = lambda *_: jnp.zeros(2**46);"
        " stop = train.stopping.StopSignals('');"
        " status = train._command(pathlib.Path('x'), stop);"
        " assert 'torch' not in sys.modules; sys.exit(status)"
    )
    done = python("-c", program, cwd=checkout, env=environment())
    said = done.stderr
    assert done.returncode == 1
    assert said.startswith("error: a device is out of memory; lower config.batch.micr")
    assert "RESOURCE_EXHAUSTED: Out of memory" in said and said.count("\n") == 1


def _without_config(text):
    manifest = json.loads(text)
    manifest["identity"]["config"] = []
    return json.dumps(manifest)


# A file of a finished workdir, what becomes of its text, and what is said of it.
DAMAGED = [
    ("summary.json", lambda text: text[:40], "damaged ("),
    ("summary.json", lambda text: '{"steps": 99}', "damaged (no 'base'); delete it"),
    ("summary.json", lambda text: "[]", "damaged ("),
    ("metrics.jsonl", lambda text: "\x00" + text, "1: not JSON ("),
    ("metrics.jsonl", lambda text: '{"checkpoint/step": 0.5}\n' + text,
     "1: checkpoint/step=0.5: must be of type int or be None"),
    ("metrics.jsonl", lambda text: '{"checkpoint/step": null}\n' + text,
     "1: step=None: must be of type int"),
    ("manifest.json", lambda text: text[:-20], "damaged ("),
    ("manifest.json", _without_config,
     "damaged (identity: a section is not an object)"),
    ("manifest.json", lambda text: text.replace('"after": 0', '"after": null'),
     "damaged (history: an entry of `after` is not a whole number)"),
]  # fmt: skip


@pytest.fixture(scope="module")
def early(tmp_path_factory, finished, interrupted, unhealthy, cache):
    """Starts that end before a step, by name; the workdir and the end of each."""
    folder = tmp_path_factory.mktemp("early")
    longer = {"steps": STEPS + 2}
    changes = {
        "the same": {},
        "another seed": {**longer, "seed": 1},
        "finished, another rate": {"schedule.learning_rate": 1e-3},
        "no checkpoints": longer,
    }
    changes |= {f"damaged {i}": longer for i in range(len(DAMAGED))}
    for name in changes:
        shutil.copytree(finished[0], folder / name)
    for i, (file, damage, _) in enumerate(DAMAGED):
        path = folder / f"damaged {i}" / file
        path.write_text(damage(path.read_text()))
    shutil.rmtree(folder / "no checkpoints" / "checkpoints")
    changes["fewer steps"] = {"steps": 1}
    shutil.copytree(interrupted[0].with_name("fewer"), folder / "fewer steps")
    changes["unhealthy"] = FAR
    shutil.copytree(unhealthy[0], folder / "unhealthy")
    (folder / "unhealthy" / "hf").mkdir()
    base = shutil.copytree(made_base(cache), folder / "base")
    weights = dict(safetensors.numpy.load_file(base / "model.safetensors"))
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name] = weights[name].copy()
    weights[name][3, 5] = np.nan
    safetensors.numpy.save_file(weights, base / "model.safetensors")
    changes["a base with a NaN"] = {"model.maker": "", "model.path": base}
    changes |= {f"bad input {i}": bad for i, (bad, _) in enumerate(BAD)}
    commands = [command(folder / name, cache, **c) for name, c in changes.items()]
    commands.append(command("gs://bucket/run", cache))
    ends = starts(folder, [*commands, ["rl.train", "--help"]])
    names = [*changes, "bucket", "help"]
    return {name: (folder / name, end) for name, end in zip(names, ends, strict=True)}


@pytest.mark.failure(122)
@pytest.mark.failure(33)
@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input_is_one_clear_line(early, number):
    (workdir, done), (_, message) = early[f"bad input {number}"], BAD[number]
    assert _error(done).startswith("error: ") and message in _error(done)
    assert not workdir.exists()


@pytest.mark.failure(33)
@pytest.mark.parametrize("number", range(len(DAMAGED)))
def test_a_damaged_file_of_a_workdir_is_one_line_that_names_it(early, number):
    (workdir, done), (file, _, message) = early[f"damaged {number}"], DAMAGED[number]
    assert _error(done).startswith(f"error: {workdir / file}:")
    assert message in _error(done)


def test_a_bucket_is_no_workdir(early):
    assert _error(early["bucket"][1]) == (
        "error: flag --workdir=gs://bucket/run: gs://bucket/run: is an address, not a"
        " path of a file system; give a local or mounted path"
    )
