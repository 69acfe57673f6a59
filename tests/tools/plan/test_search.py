"""Estimates against compiled figures, and the layouts chosen by them."""

import sys
import types

import optax
import pytest

from tests.tools.plan.paper import paper_config
from tools.plan import search
from tools.plan.compiling import Compiled
from tools.plan.programs import Resident
from tools.plan.search import estimate
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload

GIB = 2**30


@pytest.fixture(autouse=True)
def few_layouts(monkeypatch):
    """Every size of a micro-batch has its layouts; two sizes show the same."""
    monkeypatch.setattr(search, "_ROWS", (1, 4))


def test_gradients_are_counted_in_float32_for_every_param_dtype():
    target = parse_target("h100:8")
    wide, narrow = (
        estimate(make_workload(paper_config(model__param_dtype=dtype), target)).peak
        for dtype in ("float32", "bfloat16")
    )
    masters = 7_615_616_512 * 4 / 8
    # Masters halve, gradients do not; the gradient of a micro-batch halves too.
    assert wide - narrow < 0.95 * masters


def test_moments_are_those_of_the_optimizer(monkeypatch):
    made = types.SimpleNamespace(lion=lambda: optax.lion(1.0))
    monkeypatch.setitem(sys.modules, "made", made)

    def peak(**optimizer):
        config = paper_config(**optimizer)
        return estimate(make_workload(config, parse_target("h100:8"))).peak

    adamw, lion = peak(), peak(optimizer__function="made:lion")
    bfloat16 = peak(optimizer__moments_dtype="bfloat16")
    parameters = 7_615_616_512 / 8
    assert adamw - bfloat16 == pytest.approx(2 * 2 * parameters, rel=1e-3)
    # One moment, not two.
    assert adamw - lion == pytest.approx(4 * parameters, rel=1e-3)


# Model, target, fsdp x tensor, rows of a micro-batch, remat, and what the compiler then
# reserves of each device with all that stays, GiB (docs/scaling.md).
COMPILED = [
    ("Qwen/Qwen2.5-0.5B", "h100:1", 1, 1, 8, "full", 11.77),
    ("Qwen/Qwen2.5-Math-1.5B", "h100:1", 1, 1, 4, "dots", 49.48),
    ("Qwen/Qwen2.5-Math-7B", "h100:8", 8, 1, 8, "full", 20.61),
    ("Qwen/Qwen2.5-Math-7B", "h100:8", 8, 1, 32, "full", 25.44),
    ("Qwen/Qwen2.5-Math-7B", "h100:8", 8, 1, 32, "dots", 64.10),
    ("Qwen/Qwen2.5-Math-7B", "h100:8", 4, 2, 8, "full", 21.34),
    ("Qwen/Qwen2.5-Math-7B", "h100:4", 4, 1, 16, "full", 43.97),
    ("Qwen/Qwen2.5-14B", "h200:2x8", 16, 1, 16, "full", 21.41),
    ("Qwen/Qwen2.5-Math-72B", "h200:4x8", 32, 1, 32, "full", 53.24),
    ("Qwen/Qwen2.5-Math-7B", "v5e:4x4", 16, 1, 16, "full", 14.07),
]


@pytest.mark.parametrize("case", COMPILED, ids=lambda case: "-".join(map(str, case)))
def test_an_estimate_is_within_a_tenth_of_the_compilers_peak(case):
    path, target, fsdp, tensor, rows, remat, gib = case
    changes = dict(model__path=path, model__remat=remat, mesh__fsdp=fsdp)
    changes |= dict(mesh__tensor=tensor, batch__micro_tokens=rows * 4096)
    work = make_workload(paper_config(**changes), parse_target(target))
    assert work.rows == rows
    assert estimate(work).peak / GIB == pytest.approx(gib, rel=0.1)


@pytest.fixture
def compiler(monkeypatch):
    """Replaces the compiler: every program needs `size` bytes. Lists compiled runs."""
    compiled = []

    def install(size):
        def compile_programs(work, *, only):
            compiled.append(work)
            names = ("score", "accumulate")
            return Resident({}), [Compiled(name=n, temporary=size) for n in names]

        monkeypatch.setattr(search, "compile_programs", compile_programs)
        monkeypatch.setattr(search, "use_compiler", lambda target: None)
        return compiled

    return install


def test_the_fastest_run_that_fits_is_chosen(compiler):
    compiled = compiler(10 * GIB)
    target = parse_target("h100:8")
    chosen = search.best(paper_config(), target)
    assert compiled == [chosen]
    assert chosen.mesh_shape[1] * chosen.mesh_shape[2] == 8
    usual = make_workload(paper_config(), target)
    assert estimate(chosen).seconds <= estimate(usual).seconds


def test_a_model_that_fits_nowhere_is_named_and_not_compiled(compiler):
    compiled = compiler(1000 * GIB)
    with pytest.raises(ValueError, match="7 compiled; the smallest"):
        search.best(paper_config(), parse_target("h100:8"))
    assert len(compiled) > 1
    compiled.clear()
    model = "Qwen/Qwen2.5-Math-72B"
    with pytest.raises(ValueError) as caught:
        search.best(paper_config(model__path=model), parse_target("v5e:4x4"))
    message = str(caught.value)
    assert message.startswith(f"--target=v5e:4x4: {model} does not fit: ")
    assert " estimated and 0 compiled; the smallest, fsdp " in message
    assert compiled == []


def test_a_target_without_a_valid_layout_is_an_error_with_the_reason():
    message = "^--search --target=h100:3: no layout .* 3584"
    with pytest.raises(ValueError, match=message):
        search.best(paper_config(), parse_target("h100:3"))


def test_a_layout_without_memory_for_the_sampler_is_skipped(
    compiler, monkeypatch, capsys
):
    compiled = compiler(10 * GIB)
    compiles = search.compile_programs

    def first_refused(work, **how):
        answer = compiles(work, **how)
        if len(compiled) == 1:
            raise ValueError("config.rollout.slots=256: takes 9.0 GiB")
        return answer

    monkeypatch.setattr(search, "compile_programs", first_refused)
    chosen = search.best(paper_config(), parse_target("h100:8"))
    assert len(compiled) == 2 and chosen == compiled[1] != compiled[0]
    assert "is rejected; config.rollout.slots=256: takes" in capsys.readouterr().err
