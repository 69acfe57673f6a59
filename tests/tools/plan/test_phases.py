"""What is told of the programs of a run, phase by phase."""

from models.config import Qwen2Config
from tests.models.reference import SMALL
from tools.plan.hlo import Array
from tools.plan.phases import weight_test

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
