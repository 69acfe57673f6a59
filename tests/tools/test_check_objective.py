"""tools.check_objective: our losses hold, and each planted fault is named."""

import dataclasses
import functools
import importlib
import json

import jax
import jax.numpy as jnp
import pytest

from configs import base
from rl.update.losses import LOSSES, importance, k3
from rl.update.objective import KL_ESTIMATES, objective_from_config
from rl.update.rejection import geometric, make_rejection
from tools import check_objective
from tools.check_objective import check_loss
from tools.objective.corrections import correction_findings


@pytest.mark.parametrize("name", LOSSES)
def test_every_built_in_loss_has_all_properties(name):
    assert [str(f) for f in check_loss(name, {}) if not f.holds] == []


def _grpo(ratio, advantages):
    held = jnp.clip(ratio, 0.8, 1.28)
    loss = -jnp.minimum(ratio * advantages, held * advantages)
    return loss, {"ratio": ratio}


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
    """Pairs the logits of position t with the token at t, the usual slip."""
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
        (row_ratio, {"completions", "packing", "shared prompts"}),
        (with_the_prompt, {"shared prompts"}),
        (unmasked, {"finite"}),
        (detached, {"gradient"}),
        (shifted, {"alignment", "first update"}),
        (weighted_twice, {"weights"}),
        (weights_ignored, {"weights", "micro-batches"}),
        (by_rows, {"packing", "mesh"}),
        (without_a_limit, {"large ratios"}),
        (by_position, {"packing"}),
    ],
)
def test_each_fault_is_named(fault, names):
    found = check_loss(f"{__name__}:{fault.__name__}", {}, corrections=())
    broken = {finding.name for finding in found if not finding.holds}
    assert broken >= names
    # A fault of one kind is not taken for one of every kind.
    assert len(broken) < 7


def _faulty_rejection(change):
    """Rejects by `change(micro-batch before rejection, micro-batch after it)`."""

    def make(c):
        reject = make_rejection(c)
        return lambda batches: list(map(change, batches, reject(batches)))

    return make


@_faulty_rejection
def _only_weighed(before, kept):
    """Gives rejected tokens weight 0, and leaves them in the mask."""
    return kept.replace(loss_mask=before.loss_mask)


@_faulty_rejection
def _still_divided_by(before, kept):
    """Leaves rejected tokens in the divisor."""
    return kept.replace(loss_weights=before.loss_weights * kept.loss_mask)


def _stale_tokens_only(log_weights, off_policy, completions, cap):
    return geometric(log_weights, off_policy, completions, cap) | ~off_policy


def _with_objective(c, **changes):
    changed = dataclasses.replace(c.objective, **changes)
    return objective_from_config(dataclasses.replace(c, objective=changed))


_without_cap = functools.partial(_with_objective, correction_cap=1e9)
# Which the loss does not weigh.
_unweighed = functools.partial(_with_objective, correction="mask")


def _entropy_lowered(c):
    return _with_objective(c, entropy_bonus=-c.objective.entropy_bonus)


def _unweighed_kl(c):
    """Adds the KL term without importance weights."""
    plain = _with_objective(c, kl_penalty=0.0)
    if not c.objective.kl_penalty:
        return plain
    estimate = KL_ESTIMATES[c.objective.kl_estimate]

    def loss(policy, entropy, batch, hyper):
        total, stats = plain.loss(policy, entropy, batch, hyper)
        kl = estimate(policy, batch.reference_logprobs)
        return total + 0.1 * jnp.sum(batch.loss_weights * kl), stats

    return plain._replace(loss=loss)


_KL = "rl.update.objective.KL_ESTIMATES"
_REJECT = "tools.objective.corrections.make_rejection"
_GEOMETRIC = ("rl.update.rejection.REJECTIONS", "geometric")
_OBJECTIVE = "tools.objective.corrections.objective_from_config"


@pytest.mark.parametrize(
    ("loss", "correction", "where", "fault", "names"),
    [
        ("gspo", "mask", _REJECT, _only_weighed, {"rejected tokens"}),
        ("grpo", "mask", _REJECT, _only_weighed, {"rejected tokens"}),
        ("grpo", "mask", _REJECT, _still_divided_by, {"divisor"}),
        ("grpo", "geometric", _GEOMETRIC, _stale_tokens_only, {"whole completions"}),
        ("grpo", "truncate", _OBJECTIVE, _without_cap, {"importance weights"}),
        ("grpo", "truncate", _OBJECTIVE, _unweighed, {"importance weights"}),
        ("grpo", "truncate", _OBJECTIVE, _unweighed_kl, {"importance weights"}),
        ("grpo", "mask", (_KL, "k3"), lambda p, r: -k3(p, r), {"KL penalty"}),
        ("grpo", "mask", (_KL, "k1"), lambda p, r: p - r, {"KL penalty"}),
        ("grpo", "mask", _OBJECTIVE, _entropy_lowered, {"entropy bonus"}),
    ],
)
def test_each_fault_of_a_correction_is_named(
    loss, correction, where, fault, names, monkeypatch
):
    if isinstance(where, tuple):
        module, _, table = where[0].rpartition(".")
        tables = getattr(importlib.import_module(module), table)
        monkeypatch.setitem(tables, where[1], fault)
    else:
        monkeypatch.setattr(where, fault)
    chosen = dataclasses.replace(base.RunConfig().objective, function=loss)
    c = dataclasses.replace(base.RunConfig(), objective=chosen)
    with jax.enable_x64(True):
        found = correction_findings(c, [correction])
    assert {finding.name for finding in found if not finding.holds} == names


def scalar(policy_logprobs, advantages):
    return -jnp.mean(policy_logprobs * advantages), {}


def test_the_command(tmp_path, capsys):
    out = tmp_path / "out.json"
    arguments = ["dual_clip", "--arg", "bound=2.5", "--correction", "mask"]
    assert check_objective.main(arguments) == 0
    assert "dual_clip: all properties hold" in capsys.readouterr().out
    fault = f"{__name__}:detached"
    arguments = [fault, "--correction", "truncate", "--json", str(out)]
    assert check_objective.main(arguments) == 1
    assert "BROKEN  gradient: is 0 for all tokens" in capsys.readouterr().out
    names = [f["name"] for f in json.loads(out.read_text())["findings"]]
    assert len(names) == 19 and {"mesh", "divisor"} <= {*names}
    assert check_objective.main([f"{__name__}:scalar"]) == 2
    assert "one value per token" in capsys.readouterr().err
    assert check_objective.main(["dual_clip", "--arg", "bund=3"]) == 2
    assert "function_args.bund=3: unknown key" in capsys.readouterr().err
    assert check_objective.main(["grpo", "--arg=bound"]) == 2
    assert "error: --arg=bound: must be KEY=VALUE" in capsys.readouterr().err
