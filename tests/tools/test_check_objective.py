"""tools.check_objective: our losses hold, and each planted fault is named."""

import json

import jax
import jax.numpy as jnp
import pytest

from rl.update.losses import LOSSES, importance
from tools import check_objective
from tools.check_objective import check_loss


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_ours_holds(name):
    assert [str(f) for f in check_loss(name, {}) if not f.holds] == []


def _grpo(ratio, advantages):
    held = jnp.clip(ratio, 0.8, 1.28)
    loss = -jnp.minimum(ratio * advantages, held * advantages)
    return loss, {"ratio": ratio}


def micro_batch_mean(policy_logprobs, old_logprobs, advantages, loss_mask):
    """Advantages are scaled by what else the micro-batch holds."""
    size = jnp.sum(jnp.abs(advantages)) / jnp.sum(loss_mask)
    return _grpo(importance(policy_logprobs - old_logprobs), advantages / size)


def row_ratio(policy_logprobs, old_logprobs, advantages, loss_mask):
    """A sequence's ratio, where a row holds several."""
    total = jnp.sum(policy_logprobs - old_logprobs, axis=1, keepdims=True)
    mean = total / jnp.maximum(jnp.sum(loss_mask, axis=1, keepdims=True), 1)
    return _grpo(importance(mean * loss_mask), advantages)


def with_the_prompt(policy_logprobs, old_logprobs, advantages, segments):
    """The wrong mask: a completion's mean counts its prompt's positions too."""
    ids = segments.ids
    count = jnp.sum(ids[:, :, None] == ids[:, None, :], axis=2)
    total = segments.sum(policy_logprobs - old_logprobs)
    return _grpo(importance(total / count), advantages)


def unmasked(policy_logprobs, old_logprobs, advantages, loss_weights):
    """Prompts and padding have no advantage, and no sign of one."""
    sign = advantages / jnp.abs(advantages)
    return _grpo(importance(policy_logprobs - old_logprobs), sign)


def detached(policy_logprobs, old_logprobs, advantages):
    ratio = jax.lax.stop_gradient(importance(policy_logprobs - old_logprobs))
    return _grpo(ratio, advantages)


def shifted(policy_logprobs, old_logprobs, advantages):
    """Logits of position t beside the token at t, the usual slip."""
    old = jnp.roll(old_logprobs, 1, axis=1)
    return _grpo(importance(policy_logprobs - old), advantages)


def weighted_twice(policy_logprobs, old_logprobs, advantages, loss_weights):
    loss, metrics = _grpo(importance(policy_logprobs - old_logprobs), advantages)
    return loss * loss_weights, metrics


def weights_ignored(policy_logprobs, old_logprobs, advantages, loss_weights, loss_mask):
    """Undoes the aggregation and takes a mean of its own."""
    loss, metrics = _grpo(importance(policy_logprobs - old_logprobs), advantages)
    own = loss_mask / jnp.sum(loss_mask)
    return loss * own / jnp.where(loss_mask, loss_weights, 1), metrics


def by_rows(policy_logprobs, old_logprobs, advantages):
    loss, metrics = _grpo(importance(policy_logprobs - old_logprobs), advantages)
    return loss / len(loss), metrics


def against_the_sampler(policy_logprobs, sampler_logprobs, advantages):
    return _grpo(importance(policy_logprobs - sampler_logprobs), advantages)


def without_a_limit(policy_logprobs, old_logprobs, advantages):
    return _grpo(jnp.exp(policy_logprobs - old_logprobs), advantages)


def by_position(policy_logprobs, old_logprobs, advantages, segments):
    """A discount by the place in the row, not in the completion."""
    place = jnp.arange(policy_logprobs.shape[1])
    ratio = importance(policy_logprobs - old_logprobs)
    return _grpo(ratio, advantages * 0.99**place)


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (micro_batch_mean, {"micro-batches"}),
        (row_ratio, {"completions", "packing", "shared prompts"}),
        (with_the_prompt, {"shared prompts"}),
        (unmasked, {"finite"}),
        (detached, {"gradient"}),
        (shifted, {"alignment", "first update"}),
        (weighted_twice, {"weights"}),
        (weights_ignored, {"weights", "micro-batches"}),
        (by_rows, {"packing", "mesh"}),
        (against_the_sampler, {"first update"}),
        (without_a_limit, {"large ratios"}),
        (by_position, {"packing"}),
    ],
)
def test_each_fault_is_named(fault, names):
    found = check_loss(f"{__name__}:{fault.__name__}", {})
    broken = {finding.name for finding in found if not finding.holds}
    assert broken >= names
    # A fault of one kind is not taken for one of every kind.
    assert len(broken) < 7


def scalar(policy_logprobs, advantages):
    return -jnp.mean(policy_logprobs * advantages), {}


def test_the_command(tmp_path, capsys):
    out = tmp_path / "out.json"
    assert check_objective.main(["dual_clip", "--arg", "bound=2.5"]) == 0
    assert "dual_clip: all hold" in capsys.readouterr().out
    fault = f"{__name__}:detached"
    assert check_objective.main([fault, "--json", str(out)]) == 1
    assert "BROKEN  gradient: none reaches the policy" in capsys.readouterr().out
    names = [f["name"] for f in json.loads(out.read_text())["findings"]]
    assert len(names) == 13 and "mesh" in names
    assert check_objective.main([f"{__name__}:scalar"]) == 2
    assert "a value for each token" in capsys.readouterr().err
    assert check_objective.main(["dual_clip", "--arg", "bund=3"]) == 2
    assert "function_args.bund=3: unknown key" in capsys.readouterr().err
