"""Defines the surrogate losses of tokens, before weighting and averaging.

A loss is a pure function. It receives the arguments that its signature names:

    policy_logprobs     log-probabilities under the current parameters, differentiable
    old_logprobs        log-probabilities under the parameters at the start of the step
    sampler_logprobs    log-probabilities that the sampler reported
    reference_logprobs  log-probabilities under the reference model
    entropy             entropy of the policy in nats, differentiable
    advantages          advantage of each token, usually equal within a completion
    loss_weights        averaging weights, with which the caller multiplies the loss
    loss_mask           bool, true for completion tokens that are not rejected
    segments            a `Segments`, for sums and means over completions
    eps_low, eps_high   scalars, the clipping bounds

Arrays are `[R, T]`, rows by positions. Log-probabilities, entropy and weights are 0
wherever `loss_mask` is false. `objective.function_args` sets other keyword arguments.
A loss returns a pair:

    loss     `[R, T]`: surrogate of each token, or of the token's whole completion
    metrics  `{name: [R, T]}`: booleans are logged as a share of the tokens, numbers as
             their mean and maximum

`objective.aggregation` selects how losses are averaged over tokens.
`python -m tools.check_objective NAME` checks a loss.
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
Bound = jax.Array | float
Result = tuple[Tokens, dict[str, jax.Array]]
Loss = Callable[..., Result]


class Segments(flax.struct.PyTreeNode):
    """Maps the tokens of packed rows to their completions.

    Sums, means and lengths ignore the tokens outside the loss mask. A group may be
    split over several micro-batches, so a sum over its tokens here may be incomplete.
    """

    ids: Int[jax.Array, "R T"]  # number of the segment within its row; 0 is padding
    mask: Bool[jax.Array, "R T"]
    groups: Int[jax.Array, "R T"]  # number of the group within the mini-batch

    def sum(self, values: Tokens) -> Tokens:
        """Returns for each token the sum over its completion; 0 outside the mask."""

        def of_row(values, ids):
            return jax.ops.segment_sum(values, ids, len(ids) + 1)[ids]

        sums = jax.vmap(of_row)(jnp.where(self.mask, values, 0), self.ids)
        return jnp.where(self.mask, sums, 0)

    def mean(self, values: Tokens) -> Tokens:
        """Returns for each token the mean over its completion; 0 outside the mask."""
        return self.sum(values) / jnp.maximum(self.lengths, 1)

    @property
    def lengths(self) -> Tokens:
        """Returns for each token the length of its completion; 0 outside the mask."""
        return self.sum(self.mask.astype(jnp.float32))


def grpo(
    policy_logprobs: Tokens, old_logprobs: Tokens, advantages: Tokens, *,
    eps_low: Bound, eps_high: Bound,
) -> Result:  # fmt: skip
    """Computes GRPO's clipped surrogate with DAPO's two bounds ("clip-higher").

    The loss is `-min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A)` with
    `rho = exp(policy - old)`.

    Source: Compass-Thinker-7B (arXiv 2508.08909) section 3; DAPO (arXiv 2503.14476)
    eq. 8. The first paper prints the ratio of whole responses inside a sum over tokens.
    This function uses the ratio of each token, as DAPO and verl do.
    """
    ratio = importance(policy_logprobs - old_logprobs)
    return clipped(ratio, advantages, eps_low=eps_low, eps_high=eps_high)


def dual_clip(
    policy_logprobs: Tokens, old_logprobs: Tokens, advantages: Tokens, *,
    eps_low: Bound, eps_high: Bound, bound: Positive = 3.0,
) -> Result:  # fmt: skip
    """Computes the loss of `grpo`, but at most `bound * |A|` where A < 0.

    Source: dual-clip PPO (arXiv 1912.09729), eq. 5.
    """
    ratio = importance(policy_logprobs - old_logprobs)
    loss, metrics = clipped(ratio, advantages, eps_low=eps_low, eps_high=eps_high)
    most = bound * jnp.abs(advantages)
    loss = jnp.where((advantages < 0) & (loss > most), most, loss)
    return loss, metrics | {"dual_clipped": (advantages < 0) & (ratio > bound)}


def cispo(
    policy_logprobs: Tokens, old_logprobs: Tokens, advantages: Tokens, *,
    eps_low: Bound, eps_high: Bound,
) -> Result:  # fmt: skip
    """Computes the CISPO loss, in which every token keeps a gradient.

    It is `-sg(clip(rho, 1 - eps_low, 1 + eps_high)) A log pi` with
    `rho = exp(policy - old)`, where sg stops the gradient. The paper has no lower
    bound, which corresponds to `eps_low=1`.

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
    policy_logprobs: Tokens, old_logprobs: Tokens, advantages: Tokens,
    segments: Segments, *, eps_low: Bound, eps_high: Bound,
) -> Result:  # fmt: skip
    """Computes the GSPO loss, with one ratio per completion.

    It is `-min(s A, clip(s, 1 - eps_low, 1 + eps_high) A)` with
    `s = exp(mean(policy - old))`, where the mean is over the completion's tokens. The
    paper weights completions equally (`aggregation="sequence"`), with `eps_low=3e-4`
    and `eps_high=4e-4`.

    Source: arXiv 2507.18071, eq. 5 and 7.
    """
    ratio = importance(segments.mean(policy_logprobs - old_logprobs))
    return clipped(ratio, advantages, eps_low=eps_low, eps_high=eps_high)


def dppo(
    policy_logprobs: Tokens, old_logprobs: Tokens, sampler_logprobs: Tokens,
    advantages: Tokens, *, eps_low: Bound, eps_high: Bound, bound: Positive = 20.0,
) -> Result:  # fmt: skip
    """Computes the DPPO loss, which masks tokens by the change of their probability.

    It is `-min(rho, bound) A` with `rho = exp(policy - old)`. The loss of a token is 0
    if A > 0 and `pi - mu > eps_high`, or if A < 0 and `mu - pi > eps_low`. Here pi and
    mu are the token's probabilities under the policy and under the sampler.

    Source: DPPO with binary total variation (arXiv 2602.04879).
    """
    ratio = importance(policy_logprobs - old_logprobs)
    moved = jnp.exp(jax.lax.stop_gradient(policy_logprobs)) - jnp.exp(sampler_logprobs)
    high = (advantages > 0) & (moved > eps_high)
    low = (advantages < 0) & (moved < -eps_low)
    loss = jnp.where(high | low, 0, -jnp.minimum(ratio, bound) * advantages)
    return loss, {"ratio": ratio, "clipped_low": low, "clipped_high": high}


LOSSES: Mapping[str, Loss] = {
    f.__name__: f for f in (grpo, dual_clip, cispo, gspo, dppo)
}


def importance(log_ratio: Tokens) -> Tokens:
    """Returns `exp(log_ratio)` with the exponent clamped to [-20, 20]."""
    return jnp.exp(_held(log_ratio))


def clipped(
    ratio: Tokens, advantages: Tokens, *, eps_low: Bound, eps_high: Bound
) -> Result:
    """Computes PPO's clipped surrogate (arXiv 1707.06347, eq. 7) and its metrics.

    A ratio exactly on a bound keeps its full gradient. `jnp.minimum` and `jnp.clip`
    would each halve that gradient.
    """
    low = (advantages < 0) & (ratio < 1 - eps_low)
    high = (advantages > 0) & (ratio > 1 + eps_high)
    held = jnp.where(low, 1 - eps_low, jnp.where(high, 1 + eps_high, ratio))
    metrics = {"ratio": ratio, "clipped_low": low, "clipped_high": high}
    return -held * advantages, metrics


def k1(policy_logprobs: Tokens, reference_logprobs: Tokens) -> Tokens:
    """Estimates KL(policy || reference) per token, with an unbiased gradient.

    The value is `x = policy - reference`. The gradient is that of `x^2 / 2`, which is
    the policy gradient for a reward penalty x. The gradient of x itself has mean zero.

    Source: arXiv 2510.01555 ("k1 in reward" has the gradient of "k2 as loss").
    """
    x = _held(policy_logprobs - reference_logprobs)
    half_square = x**2 / 2
    return jax.lax.stop_gradient(x - half_square) + half_square


def k3(policy_logprobs: Tokens, reference_logprobs: Tokens) -> Tokens:
    """Computes GRPO's non-negative estimate of KL(policy || reference) per token.

    The estimate is `exp(-x) - 1 + x` with `x = policy - reference`. Its expected
    gradient is the gradient of KL(reference || policy). To first order in x, this
    equals the gradient of KL(policy || reference).

    Source: arXiv 2402.03300, eq. 4.
    """
    x = _held(policy_logprobs - reference_logprobs)
    return jnp.exp(-x) - 1 + x


def _held(log_ratio: Tokens) -> Tokens:
    return jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO)


# Argument names that the signature of a loss may contain.
ARRAYS = tuple(
    "policy_logprobs old_logprobs sampler_logprobs reference_logprobs entropy"
    " advantages loss_weights loss_mask segments".split()
)
SCALARS = ("eps_low", "eps_high")


def load_loss(
    function: str, arguments: Mapping[str, Any]
) -> tuple[Loss, frozenset[str]]:
    """Loads a loss and binds `arguments`, which are `objective.function_args`.

    Also returns the names in `ARRAYS` and `SCALARS` that are arguments of the loss.
    Raises ValueError if the loss cannot be loaded, or `arguments` are not valid.
    """
    key = "config.objective.function"
    loss = load_named(function, LOSSES, key=key)
    parameters = inspect.signature(loss).parameters
    given = frozenset(parameters) & {*ARRAYS, *SCALARS}
    if taken := given & {*arguments}:
        name = min(taken)
        raise ValueError(
            f"{key}_args.{name}={arguments[name]!r}: is passed to every loss and cannot"
            " be set; remove it"
        )
    check("objective.function_args", arguments, loss)
    for name, p in parameters.items():
        variadic = p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if p.default is p.empty and not variadic and name not in {*given, *arguments}:
            raise ValueError(
                f"{key}={function!r}: its argument {name!r} has no value; set"
                f" {key}_args.{name}, or rename it to one of"
                f" {', '.join((*ARRAYS, *SCALARS))}"
            )
    return functools.partial(loss, **arguments), given
