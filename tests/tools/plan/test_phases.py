"""What is told of the programs of a run, phase by phase."""

import types

from models.config import Qwen2Config
from tests.models.reference import SMALL
from tools.plan.compiling import Compiled
from tools.plan.hlo import Array
from tools.plan.phases import phases, weight_test
from tools.plan.programs import Resident

MODEL = Qwen2Config.from_hf(
    {
        "model_type": "qwen2",
        **SMALL,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "head_dim": 128,
    }
)


def test_what_servers_read_lies_beside_every_program():
    work = types.SimpleNamespace(target=types.SimpleNamespace(usable=100))
    compiled = [
        Compiled(name="accumulate", arguments=30, outputs=20, aliased=20, temporary=40),
        Compiled(name="layer", arguments=10, outputs=2),
    ]
    resident = Resident(masters=10, moments=20, gradients=10, published=5)
    update, export = phases(work, resident, compiled)
    assert update.bytes == 30 + 40 + 20 + 5 and update.fits
    assert export.bytes == 12 + 20 + 5
    assert update.parts["published"] == export.parts["published"] == 5
    none, _ = phases(work, Resident(masters=10, moments=20, gradients=10), compiled)
    assert none.bytes == 90 and "published" not in none.parts


def test_a_layers_sums_are_no_weight_where_there_is_no_gradient():
    """64 slots' activations are as many as an eighth of a quarter of a key's matrix."""
    array = Array(dtype="bf16", dims=(64, 3584), space=0)
    place = "jit(decode)/while/body/mlp"
    for gradients, kind, weight in (
        (False, "all-reduce", False),
        (False, "all-gather", True),
        (True, "all-reduce", True),
    ):
        test = weight_test(MODEL, (1, 16, 1), 4, gradients=gradients)
        assert test(kind, array, place) is weight
