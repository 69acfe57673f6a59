"""Completions laid out in rows in many ways, and an objective run on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from rl.groups.packing import pack
from rl.groups.weights import weigh
from rl.types import Batch, Hyper, Segment, make_hyper
from rl.update.objective import Objective
from sharding.rules import place

# Prompt, and tokens of each completion, by group.
_SHAPES = ((4, (3, 7)), (2, (1, 5, 2)), (5, (9, 4)), (3, (6, 2)))
LONG, SHORT, ROWS = 48, 14, 4
# Compiling takes most of the time here.
_QUICK = {"xla_backend_optimization_level": 0}


def _segments() -> list[Segment]:
    rng = np.random.default_rng(0)
    segments, start = [], 0
    for group, (prompt, lengths) in enumerate(_SHAPES):
        for length in lengths:
            segments.append(
                Segment(
                    group=group,
                    token_ids=rng.integers(1, 90, prompt + length).astype(np.int32),
                    prompt_length=prompt,
                    # The tokens' numbers, by which they are found again in rows.
                    sampler_logprobs=np.arange(start, start + length, dtype=float),
                    off_policy=np.zeros(length, bool),
                    stale=np.zeros(length, bool),
                    advantage=float(rng.normal()),
                )
            )
            start += length
    return segments


def layout(*, length=LONG, rows=ROWS, share_prompts=False) -> list[Batch]:
    """The completions in micro-batches of `rows` rows of `length` tokens."""
    packed = pack(
        _segments(),
        row_lengths=(length,),
        micro_tokens=length * rows,
        row_multiple=rows,
        share_prompts=share_prompts,
    )
    return weigh(packed, aggregation="sequence", constant=1)


def alone(batch: Batch, row: int) -> Batch:
    """One row, the others padding."""
    keep = np.arange(ROWS)[:, None] == row
    return jax.tree.map(lambda x: np.where(keep, x, np.zeros_like(x)), batch)


class Trial:
    """Runs an objective on completions with log-probabilities of every kind."""

    def __init__(self, objective: Objective):
        self._loss = objective.loss
        self._program = jax.jit(
            jax.value_and_grad(objective.loss, (0, 1), has_aux=True),
            compiler_options=_QUICK,
        )
        lengths = [len(s.off_policy) for s in _segments()]
        self.owner = np.repeat(np.arange(len(lengths)), lengths)
        rng, size = np.random.default_rng(1), len(self.owner)
        # Ratios near 1, where neither bound is met.
        old = rng.normal(-2, 0.5, size)
        self.values = {
            "policy": old + rng.normal(0, 0.02, size),
            "entropy": rng.uniform(0.5, 2, size),
            "old": old,
            "sampler": old + rng.normal(0, 0.02, size),
            "reference": old + rng.normal(0, 0.02, size),
        }

    def run(
        self,
        batches: Sequence[Batch],
        rows: NamedSharding | None = None,
        *,
        values: Mapping[str, np.ndarray] | None = None,
        apart: float = 0.0,
        weight: float = 1.0,
        first: bool = False,
        dtype: type = np.float64,
    ) -> dict[str, Any]:
        """The loss, its gradient by token, and metrics, over all micro-batches.

        Args:
          batches: of a layout.
          rows: how rows are split over devices.
          values: by token; the trial's own by default.
          apart: by which log-probabilities differ from each other where none counts.
          weight: times the weights of tokens.
          first: whether this is a step's first update.
          dtype: of all numbers.
        """
        found: dict[str, Any] = {
            "loss": 0.0,
            "policy": np.zeros(len(self.owner)),
            "entropy": np.zeros(len(self.owner)),
        }
        for batch in batches:
            scored = batch.loss_mask
            token = token_numbers(batch)[scored]
            weighed = batch.replace(loss_weights=weight * batch.loss_weights)
            laid = self._laid(weighed, values or self.values, apart, dtype)
            if rows is not None:
                laid = place(laid, rows)
            (loss, stats), slopes = jax.device_get(self._program(*laid, hyper(first)))
            found["loss"] += loss
            for name, slope in zip(("policy", "entropy"), slopes, strict=True):
                np.add.at(found[name], token, slope[scored])
            for name, value in stats["sum"].items():
                key = f"metric {name}"
                found[key] = found.get(key, 0.0) + value
        return found

    def reach(self, batch: Batch) -> dict[str, np.ndarray]:
        """By an array's name: whose loss, `[t]`, an entry of it, `[u]`, acts on."""
        size, scored = len(self.owner), batch.loss_mask
        cases = [("", self.values)]
        for name, value in self.values.items():
            moved = value + 1e-3 * np.eye(size)
            cases += [(name, {**self.values, name: row}) for row in moved]
        laid = [self._laid(batch, values, 0.0, np.float64) for _, values in cases]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *laid)

        def losses(case):
            policy, entropy, batch = case

            def loss(weights):
                weighed = batch.replace(loss_weights=weights)
                return self._loss(policy, entropy, weighed, hyper(False))[0]

            # The loss is linear in the weights: its slope is each token's own part.
            return jax.grad(loss)(batch.loss_weights)

        by_case = jax.jit(
            lambda cases: jax.lax.map(losses, cases), compiler_options=_QUICK
        )
        plain, *others = jax.device_get(by_case(stacked))
        changed = np.empty((len(others), size), bool)
        different = np.abs(np.subtract(others, plain)) > 1e-12
        changed[:, token_numbers(batch)[scored]] = different[:, scored]
        names = np.array([name for name, _ in cases[1:]])
        return {name: changed[names == name] for name in self.values}

    def _laid(self, batch: Batch, values, apart, dtype) -> tuple[Any, Any, Batch]:
        """The loss's arguments: every value at its token."""

        def at(name, elsewhere):
            laid = np.where(
                batch.loss_mask, values[name][token_numbers(batch)], elsewhere
            )
            return laid.astype(dtype)

        rows = batch.replace(
            advantages=batch.advantages.astype(dtype),
            loss_weights=batch.loss_weights.astype(dtype),
            old_logprobs=at("old", -apart),
            sampler_logprobs=at("sampler", apart),
            reference_logprobs=at("reference", -apart),
        )
        return at("policy", apart), at("entropy", 0), rows


def token_numbers(batch: Batch) -> np.ndarray:
    """The number of the token at each position; 0 where none counts."""
    return np.where(batch.loss_mask, batch.sampler_logprobs, 0).astype(int)


def hyper(first: bool) -> Hyper:
    return make_hyper(
        learning_rate=1, eps_low=0.2, eps_high=0.28, temperature=1.0, first_update=first
    )
