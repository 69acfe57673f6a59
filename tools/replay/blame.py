"""Which completion of a micro-batch makes its gradient not finite, and which token.

By halves: tokens are taken out of the loss, the others stay where they are, and the
run's own program says whether what is left still goes wrong.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rl.types import Batch, Hyper
from rl.update.step import Step, TrainState
from rl.workdir.recorder import Drawn, token_hash

# What comes of the parameters, and not from outside.
_SCORED = ("old_logprobs", "reference_logprobs")

Cells = np.ndarray
"""bool `[R, T]`: tokens of a micro-batch that the loss counts."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What goes wrong by itself.

    Attributes:
      drawn: the completion; None where several have to come together.
      completions: how many that are.
      token: of the completion, counted from 0; None where no single one suffices.
      tokens: of the completion.
      token_id: of that token.
      inputs: what of it is not finite before anything is computed, by name.
      batch: of that alone.
    """

    drawn: Drawn | None
    completions: int
    token: int | None
    tokens: int
    token_id: int | None
    inputs: Mapping[str, float]
    batch: Batch

    def __str__(self) -> str:
        if self.drawn is None:
            return f"{self.completions} completions together, and no half of them"
        d = self.drawn
        told = (
            f"completion {d.index} of problem {d.problem!r} (reward {d.reward:g},"
            f" {d.finish_reason}, drawn by version {_range(d.versions)})"
        )
        if self.token is None:
            return f"{told}, and no single token of its {self.tokens}"
        told += f", token {self.token} of {self.tokens}, id {self.token_id}"
        for name, value in self.inputs.items():
            told += f"; its {name} is {value}"
        return told


def _range(versions: tuple[int, int]) -> str:
    return str(versions[0]) if len(set(versions)) == 1 else "{} to {}".format(*versions)


def gradient_is_finite(
    step: Step, state: TrainState, micro: Sequence[Batch], hyper: Hyper
) -> bool:
    """Whether an update of these micro-batches has a finite loss and gradient norm."""
    carry = step.zeros(state.params, micro[0], hyper)
    for batch in micro:
        carry = step.accumulate(carry, state.params, batch, hyper)
    return bool(jax.jit(_finite)(carry))


def _finite(carry: Any) -> jax.Array:
    grads, value, _ = carry
    return jnp.isfinite(optax.tree.norm(grads)) & jnp.isfinite(value)


def find_culprit(
    step: Step, state: TrainState, batch: Batch, hyper: Hyper, drawn: Sequence[Drawn]
) -> Culprit:
    """Looks for the least of a micro-batch that goes wrong by itself.

    Args:
      step, state, hyper: of the update.
      batch: placed and scored; its gradient is not finite.
      drawn: the step's completions.
    """
    host = jax.device_get(batch)

    def only(cells: Cells) -> Batch:
        return _place(_only(host, cells), batch)

    def bad(cells: Cells) -> bool:
        return not gradient_is_finite(step, state, [only(cells)], hyper)

    segments = [
        (host.segment_ids == number) & host.loss_mask & _row(host, row)
        for row in range(len(host.segment_ids))
        for number in np.unique(host.segment_ids[row][host.loss_mask[row]])
    ]
    found = _least(segments, bad)
    if len(found) > 1:
        cells = np.any(found, axis=0)
        return Culprit(
            drawn=None, completions=len(found), token=None, tokens=int(cells.sum()),
            token_id=None, inputs={}, batch=only(cells),
        )  # fmt: skip
    places = np.argwhere(found[0])
    single = [_cell(host, row, column) for row, column in places]
    tokens = _least(single, bad)
    cells = np.any(tokens, axis=0)
    row, column = np.argwhere(cells)[0]
    alone = len(tokens) == 1
    inputs = {
        field.name: float(getattr(host, field.name)[row, column])
        for field in dataclasses.fields(Batch)
        if field.name not in _SCORED
        and not np.isfinite(getattr(host, field.name)[row, column])
    }
    return Culprit(
        drawn=_drawn_at(host, row, column, drawn),
        completions=1,
        token=int(column - places[0, 1]) if alone else None,
        tokens=len(places),
        token_id=int(host.token_ids[row, column]) if alone else None,
        inputs=inputs if alone else {},
        batch=only(cells),
    )


def _least(parts: Sequence[Cells], bad: Callable[[Cells], bool]) -> Sequence[Cells]:
    """Halves what goes wrong for as long as one of the halves still does."""
    while len(parts) > 1:
        middle = len(parts) // 2
        for half in (parts[:middle], parts[middle:]):
            if bad(np.any(half, axis=0)):
                parts = half
                break
        else:
            break
    return parts


def _row(host: Batch, row: int) -> Cells:
    return (np.arange(len(host.segment_ids)) == row)[:, None]


def _cell(host: Batch, row: int, column: int) -> Cells:
    cells = np.zeros_like(host.loss_mask)
    cells[row, column] = True
    return cells


def _only(host: Batch, cells: Cells) -> Batch:
    """The same rows, the other tokens out of the loss with all that is said of them."""
    fields = {f.name: getattr(host, f.name) for f in dataclasses.fields(Batch)}
    said = {name: x for name, x in fields.items() if x.dtype.kind in "fb"}
    zero = {name: np.zeros_like(x) for name, x in said.items()}
    return host.replace(**{n: np.where(cells, x, zero[n]) for n, x in said.items()})


def _place(host: Batch, like: Batch) -> Batch:
    return jax.tree.map(lambda x, y: jax.device_put(x, y.sharding), host, like)


def _drawn_at(
    host: Batch, row: int, column: int, drawn: Sequence[Drawn]
) -> Drawn | None:
    """The completion that a position belongs to, known by its tokens."""
    number, prefix = host.segment_ids[row, column], host.prefix_ids[row, column]
    parts = [
        host.token_ids[row][host.segment_ids[row] == n] for n in (prefix, number) if n
    ]
    name = token_hash(*parts)
    return next((d for d in drawn if d.tokens == name), None)


def mean_gap(step: Step, state: TrainState, placed: Sequence[Sequence[Batch]]) -> float:
    """Mean |policy - sampler log-prob| of a step's tokens, in nats.

    Args:
      step: the run's.
      state: under whose parameters.
      placed: mini-batches of micro-batches, on the devices.
    """
    gaps = []
    for batch in (batch for micro in placed for batch in micro):
        policy = np.asarray(step.score(state.params, batch))
        host = jax.device_get(batch)
        gaps.append(np.abs(policy - host.sampler_logprobs)[host.loss_mask])
    return float(np.concatenate(gaps).mean())
