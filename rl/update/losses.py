"""Surrogate losses: what each token adds to the objective, before weights.

A loss is a pure function of the arguments that its signature names; others are not
computed:

    policy_logprobs     by the current parameters; has a gradient
    old_logprobs        by the parameters at the start of the step
    sampler_logprobs    as the sampler reported them
    reference_logprobs  by the reference, which is loaded only if this is named
    entropy             of the policy in nats; has a gradient, computed only where used
    advantages          of the tokens' completions
    loss_weights        by `objective.aggregation`; applied to the result, not here
    loss_mask           bool, the completions' tokens
    segments            a `Segments`: sums, means and lengths of whole completions
    eps_low, eps_high   scalars, which a stage may change

Each array is `[R, T]`, rows by positions, and 0 wherever `loss_mask` is false. Other
keyword arguments come from `objective.function_args`. It returns

    loss     `[R, T]`: a surrogate of each token, or of each token's whole completion
    metrics  `{name: [R, T]}`: booleans are logged as a share of the tokens, numbers as
             their mean and maximum

`objective.aggregation` averages over tokens. `python -m tools.check_objective NAME`
checks a loss.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from configs.schema import Positive, check
from rl.problems.functions import load_named

MAX_LOG_RATIO = 20.0

Tokens = Float[jax.Array, "R T"]
Loss = Callable[..., tuple[Tokens, dict[str, jax.Array]]]


class Segments(flax.struct.PyTreeNode):
    """The completions that tokens belong to; a row holds several.

    Attributes:
      ids: number of the token's segment in its row; 0 is padding.
      mask: the completions' tokens; nothing else counts.
      groups: number of the completion's group in the mini-batch, whose completions may
        be in several micro-batches.
    """

    ids: Int[jax.Array, "R T"]
    mask: Bool[jax.Array, "R T"]
    groups: Int[jax.Array, "R T"]

    def sum(self, values: Tokens) -> Tokens:
        """Return for each token the sum over its completion; 0 elsewhere."""

        def of_row(values, ids):
            return jax.ops.segment_sum(values, ids, len(ids) + 1)[ids]

        sums = jax.vmap(of_row)(jnp.where(self.mask, values, 0), self.ids)
        return jnp.where(self.mask, sums, 0)

    def mean(self, values: Tokens) -> Tokens:
        """Return for each token the mean over its completion; 0 elsewhere."""
        return self.sum(values) / jnp.maximum(self.lengths, 1)

    @property
    def lengths(self) -> Tokens:
        """Return for each token the length of its completion; 0 elsewhere."""
        return self.sum(self.mask.astype(jnp.float32))


def grpo(
    policy_logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
) -> tuple[Tokens, dict[str, jax.Array]]:
    """GRPO's clipped surrogate with DAPO's two bounds ("clip-higher").

    `-min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A)`, `rho = exp(policy - old)`.

    Source: Compass-Thinker-7B (arXiv 2508.08909) section 3; DAPO (arXiv 2503.14476)
    eq. 8. The paper prints the ratio of whole responses inside a sum over tokens; like
    DAPO and verl we take the token's own.
    """
    ratio = importance(policy_logprobs - old_logprobs)
    return clipped(ratio, advantages, eps_low=eps_low, eps_high=eps_high)


def dual_clip(
    policy_logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
    bound: Positive = 3.0,
) -> tuple[Tokens, dict[str, jax.Array]]:
    """`grpo`, and where A < 0 at most `bound |A|`.

    Source: arXiv 1912.09729, eq. 5.
    """
    ratio = importance(policy_logprobs - old_logprobs)
    loss, metrics = clipped(ratio, advantages, eps_low=eps_low, eps_high=eps_high)
    most = bound * jnp.abs(advantages)
    loss = jnp.where((advantages < 0) & (loss > most), most, loss)
    return loss, metrics | {"dual_clipped": (advantages < 0) & (ratio > bound)}


def cispo(
    policy_logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
) -> tuple[Tokens, dict[str, jax.Array]]:
    """CISPO: the weight is clipped, not the surrogate, so that no token is left out.

    `-sg(clip(rho, 1 - eps_low, 1 + eps_high)) A log pi`. The paper sets no lower bound,
    `eps_low=1`.

    Source: MiniMax-M1 (arXiv 2506.13585) eq. 4 and 5.
    """
    ratio = jax.lax.stop_gradient(importance(policy_logprobs - old_logprobs))
    weight = jnp.clip(ratio, 1 - eps_low, 1 + eps_high)
    return -weight * advantages * policy_logprobs, {
        "ratio": ratio,
        "clipped_low": ratio < weight,
        "clipped_high": ratio > weight,
    }


def gspo(
    policy_logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    segments: Segments,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
) -> tuple[Tokens, dict[str, jax.Array]]:
    """GSPO: one ratio for a whole completion, the geometric mean of its tokens'.

    `-min(s A, clip(s, 1 - eps_low, 1 + eps_high) A)`, `s = exp(mean(policy - old))`.
    With `aggregation="sequence"` each completion counts once, as in the paper, whose
    bounds are `eps_low=3e-4` and `eps_high=4e-4`.

    Source: arXiv 2507.18071, eq. 5 and 7.
    """
    ratio = importance(segments.mean(policy_logprobs - old_logprobs))
    return clipped(ratio, advantages, eps_low=eps_low, eps_high=eps_high)


def dppo(
    policy_logprobs: Tokens,
    old_logprobs: Tokens,
    sampler_logprobs: Tokens,
    advantages: Tokens,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
    bound: Positive = 20.0,
) -> tuple[Tokens, dict[str, jax.Array]]:
    """DPPO: a token is left out where its probability, not its ratio, has gone too far.

    `-min(rho, bound) A` without the tokens with A > 0 and `pi - mu > eps_high`, or
    A < 0 and `mu - pi > eps_low`, where pi and mu are the token's probability by the
    policy and by the sampler.

    Source: the binary total variation of arXiv 2602.04879.
    """
    ratio = importance(policy_logprobs - old_logprobs)
    moved = jnp.exp(jax.lax.stop_gradient(policy_logprobs)) - jnp.exp(sampler_logprobs)
    high = (advantages > 0) & (moved > eps_high)
    low = (advantages < 0) & (moved < -eps_low)
    loss = jnp.where(high | low, 0, -jnp.minimum(ratio, bound) * advantages)
    return loss, {"ratio": ratio, "clipped_low": low, "clipped_high": high}


LOSSES: Mapping[str, Loss] = {
    "grpo": grpo,
    "dual_clip": dual_clip,
    "cispo": cispo,
    "gspo": gspo,
    "dppo": dppo,
}


def importance(log_ratio: Tokens) -> Tokens:
    """Return `exp(log_ratio)`, the exponent clamped to +-20."""
    return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def clipped(
    ratio: Tokens,
    advantages: Tokens,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
) -> tuple[Tokens, dict[str, jax.Array]]:
    """Return PPO's surrogate of any ratio (arXiv 1707.06347, eq. 7), and its metrics.

    A ratio on a bound is not clipped; `jnp.minimum` and `jnp.clip` would each halve its
    gradient.
    """
    low = (advantages < 0) & (ratio < 1 - eps_low)
    high = (advantages > 0) & (ratio > 1 + eps_high)
    held = jnp.where(low, 1 - eps_low, jnp.where(high, 1 + eps_high, ratio))
    return -held * advantages, {
        "ratio": ratio,
        "clipped_low": low,
        "clipped_high": high,
    }


def k1(policy_logprobs: Tokens, reference_logprobs: Tokens) -> Tokens:
    """Return an estimate of KL(policy || reference) with an unbiased gradient.

    The value is `x = policy - reference`, the gradient that of `x^2 / 2`: what a
    penalty of x in the reward would give. Plain x has a gradient of mean zero.

    Source: arXiv 2510.01555 ("k1 in reward" has the gradient of "k2 as loss").
    """
    x = _held(policy_logprobs - reference_logprobs)
    half_square = x**2 / 2
    return jax.lax.stop_gradient(x - half_square) + half_square


def k3(policy_logprobs: Tokens, reference_logprobs: Tokens) -> Tokens:
    """Return GRPO's estimate of KL(policy || reference), `exp(-x) - 1 + x`, never < 0.

    With `x = policy - reference`. Its gradient is a first-order approximation.

    Source: arXiv 2402.03300, eq. 4.
    """
    x = _held(policy_logprobs - reference_logprobs)
    return jnp.exp(-x) - 1 + x


def _held(log_ratio: Tokens) -> Tokens:
    return jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO)


# What a loss may name.
ARRAYS = (
    "policy_logprobs",
    "old_logprobs",
    "sampler_logprobs",
    "reference_logprobs",
    "entropy",
    "advantages",
    "loss_weights",
    "loss_mask",
    "segments",
)
SCALARS = ("eps_low", "eps_high")


def load_loss(
    function: str, arguments: Mapping[str, Any]
) -> tuple[Loss, frozenset[str]]:
    """Return the loss that a config names, its arguments filled in.

    Args:
      function: one of `LOSSES`, or a user's "module:function".
      arguments: what it takes in addition to `ARRAYS` and `SCALARS`.

    Returns:
      A function of the arrays and scalars that it names, by keyword, and these names.

    Raises:
      ValueError: one line that names the key and what is wrong.
    """
    key = "config.objective.function"
    loss = load_named(function, LOSSES, key=key)
    parameters = inspect.signature(loss).parameters
    given = frozenset(parameters) & {*ARRAYS, *SCALARS}
    if taken := given & {*arguments}:
        name = min(taken)
        raise ValueError(
            f"{key}_args.{name}: is passed to every loss and cannot be set"
        )
    check("objective.function_args", arguments, loss)
    for name, parameter in parameters.items():
        if name not in given and name not in arguments and not _optional(parameter):
            raise ValueError(
                f"{key}={function!r}: takes {name!r}, which is none of"
                f" {', '.join((*ARRAYS, *SCALARS))}, and not in {key}_args"
            )

    return functools.partial(loss, **arguments), given


def _optional(parameter: inspect.Parameter) -> bool:
    variadic = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is not parameter.empty or parameter.kind in variadic
