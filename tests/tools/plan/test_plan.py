"""The command: runs compiled for a TPU slice and for GPUs that are not here."""

import json
import os
import pathlib

import pytest

from configs import compass_thinker_7b
from rl.update.head import GPU_BLOCK
from tests import forked
from tests.other_processes import ROOT, environment, make_config, python
from tools.plan import compiling
from tools.plan.targets import parse_target

TARGETS = ("b200:8", "h100:1", "h100:8", "v5e:4x4", "v5p:2x2x2")
MODEL = {
    "model_type": "qwen2", "vocab_size": 8192, "hidden_size": 512,
    "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 4096,
    "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip
CONFIG = (
    "c.model.head_chunk, c.rollout.slots = 256, 64",
    "c.rollout.max_prompt_tokens, c.rollout.max_response_tokens = 128, 384",
    "c.batch.row_lengths, c.batch.micro_tokens = (512,), 512 * 16",
)


def _plan(folder, target, *arguments):
    platform = parse_target(target).chip.platform
    prefix = os.environ.get("COMPASS_PLAN") or ROOT / ".venv-plan"
    if not pathlib.Path(f"{prefix}-{platform}/.done").exists():
        pytest.skip(f"`make plan` has not installed the compiler for {platform}")
    flags = f"--target={target}", f"--json={folder / 'plan.json'}"
    done = python("-m", "tools.plan", *flags, *arguments, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "plan.json").read_text()), done.stdout


@pytest.fixture(scope="module", params=TARGETS)
def planned(request, tmp_path_factory):
    """The target, and its plan."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    model = f"c.model.path = {str(folder / 'model')!r}"
    config = make_config(folder / "small.py", model, *CONFIG, of="base")
    plan, stdout = _plan(folder, request.param, f"--config={config}")
    assert stdout.endswith("It fits.\n")
    return request.param, plan


@pytest.mark.slow  # compiles for five targets
@pytest.mark.ci
def test_every_program_of_the_run_is_compiled(planned):
    _, plan = planned
    programs = plan["programs"]
    # Forward, forward again for the gradient, and two kernels back.
    kernels = {"prefill": 1, "score": 1, "accumulate": 4}
    others = ("insert", "decode", "apply", "publish_table", "publish_layers")
    assert set(programs) == {*kernels, *others, "export_table", "export_layer"}
    for row in programs.values():
        assert row["peak_bytes"] == sum(row["parts"].values()) and row["fits"]
        assert row["hbm_bytes"] > 0 and row["compile_seconds"] > 0
        assert max(row["seconds"].values()) > 0
    for name, count in kernels.items():
        assert programs[name]["kernel_calls"] == count
    parts = programs["accumulate"]["parts"]
    assert parts["moments"] == pytest.approx(2 * parts["masters"], abs=8)
    assert "served" not in parts and "cache" in programs["decode"]["parts"]


@pytest.mark.slow  # compiles for five targets
@pytest.mark.ci
def test_weights_travel_in_the_update_and_not_in_decoding(planned):
    target, plan = planned
    sent = {
        name: sum(c["sent"] for c in row["collectives"])
        for name, row in plan["programs"].items()
    }
    if target == "h100:1":
        assert set(sent.values()) == {0}
        return
    layers = 2 * 2 * (2 * 512 * 128 * (8 + 4) + 3 * 512 * 1024)  # in bfloat16
    assert sent["accumulate"] > 3 * layers / 2 and sent["score"] > layers / 2
    assert sent["decode"] < layers / 16


# Tokens of a micro-batch, width, MLP, layers, vocabulary, parameters.
T, D, F, L, V, N = 32768, 896, 4864, 24, 151936, 494_032_768


def _update_by_hand() -> float:
    """Bytes of a micro-batch of eight rows of 4,096, remat full; docs/scaling.md."""
    x, y = 2 * T * D, 2 * T * F
    forward = 24.1 * x + 6 * y
    again = 19 * x + 5 * y
    backward = 43 * x + 13 * y
    logits, chunks, blocks = 4 * T * V, T / 1024, -(-V // GPU_BLOCK)
    words = 2 * V * D * chunks
    head_forward = 2 * logits + words
    # Logits written and read; their gradient in bfloat16 written once and read twice.
    head_backward = 3.5 * logits + 2 * words + 4 * words + 8 * blocks * T * D
    parameters = 28 * N  # summed, zeroed, cast twice, written by layers
    return L * (forward + again + backward) + head_forward + head_backward + parameters


@pytest.mark.slow
def test_bytes_of_a_real_update_and_decode_are_those_counted_by_hand(tmp_path):
    config = "--config=configs/qwen2_5_0_5b.py:h100-1", "--config.model.remat=full"
    plan, _ = _plan(tmp_path, "h100:1", *config, "--context=1000")
    programs = plan["programs"]
    measured = programs["accumulate"]["hbm_bytes"]
    assert measured == pytest.approx(_update_by_hand(), rel=0.1)
    # Eight tokens of 256 slots: weights, keys and values, logits written and read.
    weights, cache = 2 * (N - 24 * 2 * D), 256 * 1000 * 2 * 2 * 24 * 2 * 64
    by_hand = 8 * (weights + cache + 2 * 4 * 256 * V)
    assert programs["decode"]["hbm_bytes"] == pytest.approx(by_hand, rel=0.1)


BAD = [
    (["--target=v5e:4x4", "--config.mesh.tensor=3"],
     "must divide the number of devices, 16"),
    (["--target=h100:1", "--search"],
     "--target=h100:1: Qwen/Qwen2.5-Math-7B does not fit: "),
    ([], "give --config=configs/NAME.py and --target=CHIP:SHAPE"),
]  # fmt: skip


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    commands = [["--config=configs/compass_thinker_7b.py", *words] for words, _ in BAD]
    how = dict(needs=("tools.plan.report",), cwd=ROOT, env=environment())
    folder = tmp_path_factory.mktemp("refused")
    return forked.starts(folder, "tools.plan.__main__", commands, **how)


@pytest.mark.parametrize("number", range(len(BAD)))
def test_an_impossible_plan_is_one_line(refused, number):
    done = refused[number]
    assert done.returncode == (2 if BAD[number][0] else 1), done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and BAD[number][1] in last, done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_compiler_names_make_plan(monkeypatch, tmp_path):
    monkeypatch.setenv("COMPASS_PLAN", str(tmp_path / "none"))
    monkeypatch.setattr(compiling, "_versions", lambda *names: [])
    with pytest.raises(ValueError) as caught:
        compiling.use_compiler(parse_target("b200:8"))
    assert str(caught.value) == (
        "--target=b200:8: its compiler is not installed in"
        f" {tmp_path / 'none-cuda'}; run `make plan`"
    )


def test_hardware_sets_the_layout_and_nothing_else():
    plain = compass_thinker_7b.get_config().to_dict()
    for hardware in compass_thinker_7b.HARDWARE:
        chosen = compass_thinker_7b.get_config(hardware).to_dict()
        sections = ["optimizer", "objective", "eval"]
        if hardware.endswith("-lora"):
            assert chosen["model"]["lora"]["rank"] == 32
            assert chosen["schedule"]["learning_rate"] == 1e-5
            assert chosen["curriculum"]["stages"][2]["learning_rate"] == 5e-6
        else:
            assert chosen["mesh"]["fsdp"] > 1
            sections += ["schedule", "curriculum"]
        for section in sections:
            assert chosen[section] == plain[section]
    with pytest.raises(ValueError, match="'v4-8': must be one of h100-8, h100-4"):
        compass_thinker_7b.get_config("v4-8")


def test_ctrl_c_ends_with_one_line_and_the_signals_status():
    """130, which also ends a shell's loop over plans."""
    script = (
        "import signal\n"
        "from tools.plan import __main__ as plan\n"
        "plan.use_compiler = lambda target: signal.raise_signal(signal.SIGINT)\n"
        "plan.app.run(plan.main, flags_parser=plan.parse_flags)\n"
    )
    flags = "--config=configs/quickstart.py", "--target=h100:1"
    done = python("-c", script, *flags, env=environment())
    assert done.returncode == 130
    assert done.stderr.endswith("plan: stopped; compiled programs are cached\n")
