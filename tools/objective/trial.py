"""Packs a few completions into rows in many ways, and runs an objective on them.

Each completion token has an index, counted over all completions: its position in
`OWNER`, `GROUP` and all other arrays `[tokens]`. Prompt tokens have none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from rl.groups.packing import pack_segments, weigh
from rl.types import Batch, Segment
from rl.update.objective import Objective
from sharding.rules import put_sharded
from tools.bench.work import SCALARS

# For each group, the token counts of the prompt and of each completion.
_SHAPES = ((4, (3, 7)), (2, (1, 5, 2)), (5, (9, 4)), (3, (6, 2)))
LONG, SHORT = 48, 14
_LENGTHS = [length for _, lengths in _SHAPES for length in lengths]
_GROUPS = [group for group, (_, lengths) in enumerate(_SHAPES) for _ in lengths]
# For each completion token, the index of its completion, and of its group.
OWNER = np.repeat(np.arange(len(_LENGTHS)), _LENGTHS)
GROUP = np.take(_GROUPS, OWNER)
# Compilation takes most of the time; this shortens it.
_QUICK = {"xla_backend_optimization_level": 0}
Values = Mapping[str, np.ndarray]  # arrays [tokens] by name


def layout(*, length=LONG, rows=4, share_prompts=False) -> list[Batch]:
    """Packs the completions into micro-batches of `rows` rows of `length` tokens.

    A token's id is its index plus 1; prompt tokens have the id 0.
    """
    rng, first, segments = np.random.default_rng(0), 1, []
    for group, (prompt, lengths) in enumerate(_SHAPES):
        for count in lengths:
            ids = np.arange(first - prompt, first + count, dtype=np.int32)
            segments.append(
                Segment(
                    group=group,
                    token_ids=np.where(ids < first, 0, ids),
                    prompt_length=prompt,
                    sampler_logprobs=np.zeros(count),
                    off_policy=np.zeros(count, bool),
                    stale=np.zeros(count, bool),
                    advantage=float(rng.normal()),
                )
            )
            first += count
    packed = pack_segments(
        segments,
        row_lengths=(length,),
        micro_tokens=length * rows,
        row_multiple=rows,
        share_prompts=share_prompts,
    )
    return weigh(packed, aggregation="sequence", constant=1)


def token_numbers(batch: Batch) -> np.ndarray:
    """Returns the index of the token at each position `[R, T]`; -1 if it has none."""
    return np.asarray(batch.token_ids) - 1


def make_values() -> dict[str, np.ndarray]:
    """Returns random log-probabilities and entropies `[tokens]`, by name.

    Ratios of probabilities are near 1, so the built-in losses clip none.
    """
    rng, size = np.random.default_rng(1), len(OWNER)
    old = rng.normal(-2, 0.5, size)
    return {
        "policy": old + rng.normal(0, 0.02, size),
        "entropy": rng.uniform(0.5, 2, size),
        "old": old,
        "sampler": old + rng.normal(0, 0.02, size),
        "reference": old + rng.normal(0, 0.02, size),
    }


def lay(
    batch: Batch, values: Values, *, apart: float = 0.0, dtype: type = np.float64
) -> tuple[np.ndarray, np.ndarray, Batch]:
    """Copies the values of tokens to their positions in a micro-batch of `layout`.

    Without "off_policy" in `values`, all tokens are on-policy. Outside completions,
    log-probabilities are `apart` or `-apart`, and the entropy is 0. Returns the
    policy's log-probabilities and entropy, both `[R, T]`, and the batch.
    """
    number = token_numbers(batch)

    def at(name: str, elsewhere: float) -> np.ndarray:
        return np.where(number >= 0, values[name][number], elsewhere).astype(dtype)

    off_policy = values.get("off_policy", np.zeros(len(OWNER), bool))
    laid = batch.replace(
        advantages=batch.advantages.astype(dtype),
        loss_weights=batch.loss_weights.astype(dtype),
        old_logprobs=at("old", -apart),
        sampler_logprobs=at("sampler", apart),
        reference_logprobs=at("reference", -apart),
        off_policy=(number >= 0) & off_policy[number],
    )
    return at("policy", apart), at("entropy", 0), laid


class Trial:
    """Runs an objective on the completions of `layout`."""

    def __init__(self, objective: Objective):
        def loss(policy, entropy, weights, batch, hyper):
            batch = batch.replace(loss_weights=weights)
            return objective.loss(policy, entropy, batch, hyper)

        self._loss = loss
        self._program = jax.jit(
            jax.value_and_grad(loss, (0, 1, 2), has_aux=True), compiler_options=_QUICK
        )

    def run(
        self,
        batches: Sequence[Batch],
        values: Values,
        *,
        rows: NamedSharding | None = None,
        apart: float = 0.0,
        weight: float = 1.0,
        first: bool = False,
        dtype: type = np.float64,
    ) -> dict[str, Any]:
        """Runs the objective on micro-batches of a layout and adds up the results.

        Args:
          values, apart, dtype: see `lay`.
          rows: how rows are split over devices; None uses one device.
          weight: factor of all `loss_weights`.
          first: whether this is the first update of a step.

        Returns:
          A dict with these keys:
            loss: the sum of the losses of the micro-batches.
            policy, entropy: its gradients with respect to the policy's
              log-probabilities and the entropy, `[tokens]`.
            part: its gradient with respect to `loss_weights`, `[tokens]`. This is each
              token's loss before weighting.
            metric NAME: the sum of the metric NAME.
            outside: the number of nonzero entries of both gradients, policy and
              entropy, at positions where `loss_weights` is 0.
        """
        names = "policy", "entropy", "part"
        found: dict[str, Any] = {name: np.zeros(len(OWNER)) for name in names}
        found |= {"loss": 0.0, "outside": 0}
        for batch in batches:
            laid: Any = lay(batch, values, apart=apart, dtype=dtype)
            if rows is not None:
                laid = put_sharded(laid, rows)
            policy, entropy, placed = laid
            hyper = SCALARS.replace(first_update=np.bool_(first))
            weights = weight * placed.loss_weights
            result = self._program(policy, entropy, weights, placed, hyper)
            (loss, stats), slopes = jax.device_get(result)
            found["loss"] += loss
            scored, number = batch.loss_mask, token_numbers(batch)
            for name, slope in zip(names, slopes, strict=True):
                np.add.at(found[name], number[scored], slope[scored])
            for slope in slopes[:2]:
                found["outside"] += np.count_nonzero(slope[batch.loss_weights == 0])
            for name, value in stats["sum"].items():
                key = f"metric {name}"
                found[key] = found.get(key, 0.0) + value
        return found

    def reach(self, batch: Batch, values: Values) -> dict[str, np.ndarray]:
        """Finds the values that affect the loss of each token.

        Returns a bool array `[u, t]` for each name in `values`: whether the value of
        token u affects the loss of token t. `batch` must contain all completions.
        """
        size, scored = len(OWNER), batch.loss_mask
        cases = [("", values)]
        for name, value in values.items():
            moved = value + 1e-3 * np.eye(size)
            cases += [(name, {**values, name: row}) for row in moved]
        laid = [lay(batch, values) for _, values in cases]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *laid)

        def parts(case):
            policy, entropy, batch = case
            # The loss is linear in the weights, so this gradient is each token's part.
            slope = jax.grad(self._loss, 2, has_aux=True)
            return slope(policy, entropy, batch.loss_weights, batch, SCALARS)[0]

        by_case = jax.jit(
            lambda cases: jax.lax.map(parts, cases), compiler_options=_QUICK
        )
        plain, *others = jax.device_get(by_case(stacked))
        changed = np.empty((len(others), size), bool)
        different = np.abs(np.subtract(others, plain)) > 1e-12
        changed[:, token_numbers(batch)[scored]] = different[:, scored]
        names = np.array([name for name, _ in cases[1:]])
        return {name: changed[names == name] for name in values}
