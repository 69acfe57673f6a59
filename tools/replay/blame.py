"""Which completion of a micro-batch makes its gradient not finite, and which token.

By halves: tokens are taken out of the loss, the others stay where they are, and the
run's own program says whether what is left still goes wrong.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rl.types import Batch, Hyper
from rl.update.step import Carry, Step, TrainState
from rl.workdir.recorder import Drawn, token_hash

# What comes of the parameters, and not from outside.
_SCORED = ("old_logprobs", "reference_logprobs")

Places = np.ndarray
"""int `[n]`: tokens that the loss counts, by their place in `[R, T]` flattened."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What goes wrong by itself.

    Attributes:
      batch: of that alone.
      completions: how many have to come together.
      tokens: of these.
      drawn: the completion, where one suffices.
      token: of the completion, counted from 0; None where no single one suffices.
      token_id: of that token.
      inputs: what of it is not finite before anything is computed, by name.
    """

    batch: Batch
    completions: int
    tokens: int
    drawn: Drawn | None = None
    token: int | None = None
    token_id: int | None = None
    inputs: Mapping[str, float] = dataclasses.field(default_factory=dict)

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
    return bool(_is_finite(gradient(step, state, micro, hyper)))


def gradient(
    step: Step, state: TrainState, micro: Sequence[Batch], hyper: Hyper
) -> Carry:
    """Of an update, as its programs have it before the optimizer's."""
    carry = step.zeros(state.params, micro[0], hyper)
    for batch in micro:
        carry = step.accumulate(carry, state.params, batch, hyper)
    return carry


@jax.jit
def _is_finite(carry: Carry) -> jax.Array:
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

    def only(parts: Sequence[Places]) -> Batch:
        alone = _only(host, np.concatenate(parts))
        return jax.tree.map(lambda x, y: jax.device_put(x, y.sharding), alone, batch)

    def bad(parts: Sequence[Places]) -> bool:
        return not gradient_is_finite(step, state, [only(parts)], hyper)

    rows, length = host.segment_ids.shape
    segments = host.segment_ids + (length + 1) * np.arange(rows)[:, None]
    scored = np.flatnonzero(host.loss_mask)
    ends = np.flatnonzero(np.diff(segments.flat[scored])) + 1
    completions = _least(np.split(scored, ends), bad)
    if len(completions) > 1:
        return Culprit(
            batch=only(completions),
            completions=len(completions),
            tokens=sum(map(len, completions)),
        )
    (completion,) = completions
    tokens = _least(np.split(completion, len(completion)), bad)
    row, column = np.unravel_index(tokens[0][0], host.loss_mask.shape)
    found = Culprit(
        batch=only(tokens),
        completions=1,
        tokens=len(completion),
        drawn=_drawn_at(host, row, column, drawn),
    )
    if len(tokens) > 1:
        return found
    said = {name: array[row, column] for name, array in vars(host).items()}
    return dataclasses.replace(
        found,
        token=int(tokens[0][0] - completion[0]),
        token_id=int(said["token_ids"]),
        inputs={
            name: float(value)
            for name, value in said.items()
            if name not in _SCORED and not np.isfinite(value)
        },
    )


def _least(
    parts: Sequence[Places], bad: Callable[[Sequence[Places]], bool]
) -> Sequence[Places]:
    """Halves what goes wrong for as long as one of the halves still does."""
    while len(parts) > 1:
        middle = len(parts) // 2
        for half in (parts[:middle], parts[middle:]):
            if bad(half):
                parts = half
                break
        else:
            break
    return parts


def _only(host: Batch, places: Places) -> Batch:
    """The same rows, the other tokens out of the loss with all that is said of them."""
    cells = np.zeros_like(host.loss_mask)
    cells.flat[places] = True
    said = {name: x for name, x in vars(host).items() if x.dtype.kind in "fb"}
    return host.replace(
        **{name: np.where(cells, x, np.zeros_like(x)) for name, x in said.items()}
    )


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
