"""The command: a small run compiled for a TPU slice and for GPUs that are not here."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from configs import compass_thinker_7b
from configs.reading import read_config
from tests import forked
from tools.plan import speed
from tools.plan.environments import compile_programs, interpreter
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload

ROOT = pathlib.Path(__file__).resolve().parents[3]
MOSAIC, TRITON = "tpu_custom_call", "__gpu$xla.gpu.triton"
KERNEL = {
    "v5e:2x4": MOSAIC,
    "v5p:2x2x2": MOSAIC,
    "v6e:2x4": MOSAIC,
    "h100:8": TRITON,
    "b200:8": TRITON,
}
MODEL = {
    "model_type": "qwen2",
    "vocab_size": 8192,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
CONFIG = """
from configs import base


def get_config():
    c = base.get_config()
    c.model.path = {folder!r}
    c.model.head_chunk = 256
    c.rollout.max_prompt_tokens = 128
    c.rollout.max_response_tokens = 384
    c.rollout.slots = 64
    c.batch.row_lengths = (512,)
    c.batch.micro_tokens = 512 * 16
    return c
"""


def _environment():
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC")}
    return kept | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module", params=sorted(KERNEL))
def planned(request, tmp_path_factory):
    """The target, the folder with what was written, and the config's file."""
    target = request.param
    try:
        interpreter(parse_target(target))
    except ValueError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("plan")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    config = folder / "small.py"
    config.write_text(CONFIG.format(folder=str(folder / "model")))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tools.plan",
            f"--config={config}",
            f"--target={target}",
            f"--json={folder / 'plan.json'}",
            f"--html={folder / 'plan.html'}",
            f"--dump_text={folder / 'text'}",
            "--price=2",
        ],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "It fits." in done.stdout
    return target, folder, config


def test_every_program_of_the_run_is_compiled(planned):
    target, folder, _ = planned
    plan = json.loads((folder / "plan.json").read_text())
    names = {"update", "score", "prefill", "insert", "decode", "publish", "export"}
    assert set(plan["programs"]) == names
    for row in plan["programs"].values():
        assert row["peak_bytes"] > row["temp_bytes"] >= 0
        assert row["compile_seconds"] > 0
        for c in row["collectives"]:
            assert c.keys() >= {"kind", "bytes", "in_loop", "of_weight"}
    assert {p.stem for p in (folder / "text").glob("*.txt")} == names
    # Forward, forward again for the gradient, and two kernels back.
    assert plan["programs"]["update"]["kernel_calls"] == 4
    assert plan["programs"]["score"]["kernel_calls"] == 1
    assert plan["programs"]["prefill"]["kernel_calls"] == 1
    for name in ("update", "score", "prefill"):
        assert KERNEL[target] in (folder / "text" / f"{name}.txt").read_text()


def test_weights_travel_in_the_update_and_not_in_decoding(planned):
    plan = json.loads((planned[1] / "plan.json").read_text())

    def weights(name):
        found = plan["programs"][name]["collectives"]
        return [c for c in found if c["of_weight"] and c["in_loop"]]

    assert weights("update") and weights("score")
    assert weights("decode") == []


def test_operations_are_those_of_the_architecture(planned):
    target, folder, config = planned
    work = make_workload(read_config(str(config)).lock(), parse_target(target))
    plan = json.loads((folder / "plan.json").read_text())
    tokens = work.rows * work.row_length
    expected = speed.update_flops(work, tokens, tokens) / work.trainer.count
    assert plan["programs"]["update"]["flops"] == pytest.approx(expected, rel=0.03)
    expected = speed.forward_flops(work, tokens, tokens) / work.trainer.count
    assert plan["programs"]["score"]["flops"] == pytest.approx(expected, rel=0.03)


def test_a_phase_is_the_sum_of_its_parts(planned):
    plan = json.loads((planned[1] / "plan.json").read_text())
    phases = {phase["name"]: phase for phase in plan["phases"]}
    for phase in phases.values():
        assert phase["bytes"] == sum(phase["parts"].values()) and phase["fits"]
    # 15,337,472 parameters over eight devices; norms and biases are whole on each.
    masters = phases["update: accumulate"]["parts"]["masters"]
    moments = phases["update: accumulate"]["parts"]["moments"]
    assert moments == pytest.approx(2 * masters, abs=8)
    assert "cache" in phases["sample: decode"]["parts"]
    assert "served" not in phases["update: accumulate"]["parts"]
    assert plan["fits"] is True
    assert plan["cost_per_1000_steps"] == pytest.approx(
        2 * 8 * plan["timeline"]["sync"]["seconds"] / 3.6
    )


def test_gradients_of_bfloat16_parameters_stay_in_float32(tmp_path):
    target = parse_target("h100:8")
    try:
        interpreter(target)
    except ValueError as error:
        pytest.skip(str(error))
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    file = tmp_path / "small.py"
    file.write_text(CONFIG.format(folder=str(tmp_path)))
    config = read_config(str(file))
    config.model.param_dtype = "bfloat16"
    resident, _ = compile_programs(
        config.lock(), target, programs=(), cache=tmp_path / "cache"
    )
    assert resident.gradients == 2 * resident.masters > 0


def test_the_page_holds_the_plan_and_needs_no_network(planned):
    plan = json.loads((planned[1] / "plan.json").read_text())
    html = (planned[1] / "plan.html").read_text()
    data = html.split('type="application/json">')[1].split("</script>")[0]
    assert json.loads(data) == plan
    assert "://" not in html and "width=device-width" in html


BAD = [
    (["--target=v9:8"], "no such chip; there are v5e, v5p"),
    (["--target=v5e:4x4", "--config.mesh.tensor=3"], "does not divide 16 devices"),
    (["--target=v5e:4x4", "--lengths=nosuch"], "--lengths=nosuch: neither a file"),
    (
        ["--target=h100:1", "--search"],
        "--target=h100:1: Qwen/Qwen2.5-Math-7B fits in no layout; the smallest, fsdp 1",
    ),
    ([], "give --config=configs/NAME.py and --target=CHIP:SHAPE"),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    config = "--config=configs/compass_thinker_7b.py"
    return forked.starts(
        tmp_path_factory.mktemp("refused"),
        "tools.plan.__main__",
        [[config, *words] for words, _ in BAD],
        needs=("tools.plan.report",),
        cwd=ROOT,
        env=_environment(),
    )


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_cannot_be_is_one_line(refused, number):
    done = refused[number]
    assert done.returncode == 1, done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and BAD[number][1] in last, done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_compilers_make_plan_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("tools.plan.environments.ROOT", tmp_path)
    with pytest.raises(ValueError) as caught:
        interpreter(parse_target("b200:8"))
    assert str(caught.value) == (
        "--target=b200:8: .venv-plan-cuda is not there, which has its compiler;"
        " `make plan` makes it"
    )


@pytest.mark.parametrize("hardware", compass_thinker_7b.HARDWARE)
def test_hardware_sets_what_it_says_and_nothing_else(hardware):
    plain = compass_thinker_7b.get_config().to_dict()
    chosen = compass_thinker_7b.get_config(hardware).to_dict()
    assert chosen["mesh"]["fsdp"] > 1
    for section in ("optimizer", "objective", "schedule", "eval"):
        assert chosen[section] == plain[section]


def test_hardware_that_is_unknown_is_named():
    with pytest.raises(ValueError, match="'v4-8': known are h100-8, h100-4"):
        compass_thinker_7b.get_config("v4-8")


def test_ctrl_c_ends_it_in_a_line_with_the_status_of_the_signal():
    """130, by which a shell's loop over plans ends as well; not an error's 1."""
    script = (
        "from tools.plan import __main__ as plan\n"
        "def make_plan(*_):\n"
        "    raise KeyboardInterrupt\n"
        "plan.make_plan = make_plan\n"
        "plan.app.run(plan.main, flags_parser=plan.parse_flags)\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            "--config=configs/quickstart.py",
            "--target=h100:1",
        ],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; what was compiled is kept\n"
