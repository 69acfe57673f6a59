"""Holds a loss to what packing, micro-batches and a mesh ask of it.

    python -m tools.check_objective NAME [--arg KEY=VALUE ...] [--json OUT]

NAME is a loss of ours (grpo, gspo ..., see rl/update/losses.py) or module:function. The
loss is run as in training, on a few completions laid out in rows in many ways, in
float64 and on eight virtual CPU devices; no model is needed. What does not hold is said
in a line, and the exit status is then 1.
"""

import argparse
import ast
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from configs import base
from configs.reading import user_path
from rl.files import replace_json
from rl.groups.packing import pack
from rl.groups.weights import weigh
from rl.processes.devices import start_cpu_devices
from rl.types import Batch, Hyper, Segment
from rl.update.hyper import make_hyper
from rl.update.losses import LOSSES
from rl.update.objective import Objective, objective_from_config
from sharding.mesh import make_mesh
from sharding.rules import laid_out, place

TOLERANCE = 1e-10
_DEVICES = 8
# Prompt, and tokens of each completion, by group.
_SHAPES = ((4, (3, 7)), (2, (1, 5, 2)), (5, (9, 4)), (3, (6, 2)))
_LONG, _SHORT, _ROWS = 48, 14, 4
# Compiling takes most of the time here.
_QUICK = {"xla_backend_optimization_level": 0}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One property: whether it holds, and in a line what was found."""

    name: str
    holds: bool
    said: str

    def __str__(self) -> str:
        return f"{'holds ' if self.holds else 'BROKEN'}  {self.name}: {self.said}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "name", metavar="NAME", help=f"{', '.join(LOSSES)}, or module:function"
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="as in objective.function_args",
    )
    parser.add_argument("--json", type=user_path, metavar="OUT", help="write here")
    arguments = parser.parse_args(argv)
    try:
        findings = check_loss(arguments.name, _parsed(arguments.arg))
    except ValueError as error:
        print(f"check_objective: {error}", file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    broken = [finding.name for finding in findings if not finding.holds]
    print(
        f"{arguments.name}: {', '.join(broken) + ' broken' if broken else 'all hold'}"
    )
    if arguments.json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        replace_json(arguments.json, {"name": arguments.name, "findings": rows})
    return int(bool(broken))


def _parsed(pairs: Sequence[str]) -> dict[str, Any]:
    arguments = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        try:
            arguments[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            arguments[key] = text
    return arguments


def check_loss(name: str, arguments: Mapping[str, Any]) -> list[Finding]:
    """What holds of a loss, and what does not.

    Args:
      name: as `objective.function`.
      arguments: as `objective.function_args`.

    Raises:
      ValueError: it is no loss; one line that says why.
    """
    start_cpu_devices(_DEVICES, rows=_DEVICES)
    c = base.RunConfig()
    chosen = dataclasses.replace(c.objective, function=name, function_args=arguments)
    objective = objective_from_config(dataclasses.replace(c, objective=chosen))
    with jax.enable_x64(True):
        return list(_findings(_Trial(objective)))


def _findings(trial: "_Trial") -> Iterator[Finding]:
    (together,) = _layout()
    plain = trial.run([together])
    yield (finite := _finite("finite", plain))
    if not finite.holds:
        return  # nothing else can be told apart from it
    yield _reaches(plain)
    fourfold = trial.run([together], weight=4.0)
    yield _same("weights", {"policy": 4 * plain["policy"]}, fourfold)
    yield from _reach(trial.reach(together), trial.owner)
    short = _layout(length=_SHORT, rows=2 * _DEVICES)
    mesh = make_mesh(data=2, fsdp=2, tensor=2, devices=jax.devices()[:_DEVICES])
    for property, found in {
        "packing": trial.run(short),
        "shared prompts": trial.run(_layout(share_prompts=True)),
        "micro-batches": trial.run([_alone(together, row) for row in range(_ROWS)]),
        "row order": trial.run([jax.tree.map(lambda x: x[::-1], together)]),
        "mesh": trial.run(short, laid_out(mesh, "batch")),
        "masked positions": trial.run([together], apart=200.0),
    }.items():
        yield _same(property, plain, found)
    far = {k: v.copy() for k, v in trial.values.items()}
    far["policy"][[4, 20]] += 200.0, -200.0
    overflowing = trial.run([together], values=far, dtype=np.float32)
    yield _finite("large ratios", overflowing)
    # Old log-probabilities are the policy's own then, whatever was reported.
    policy, old = trial.values["policy"], trial.values["old"]
    reported = trial.values | {"old": old - 50, "sampler": policy - 0.3}
    first = trial.run([together], values=reported, first=True)
    if "metric ratio" in first:
        yield _same("first update", {"metric ratio": first["metric tokens"]}, first)
    else:
        yield Finding("first update", True, "no metric 'ratio', which would be 1")


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


def _layout(*, length=_LONG, rows=_ROWS, share_prompts=False) -> list[Batch]:
    """The completions in micro-batches of `rows` rows of `length` tokens."""
    packed = pack(
        _segments(),
        row_lengths=(length,),
        micro_tokens=length * rows,
        row_multiple=rows,
        share_prompts=share_prompts,
    )
    return weigh(packed, aggregation="sequence", constant=1)


def _alone(batch: Batch, row: int) -> Batch:
    """One row, the others padding."""
    keep = np.arange(_ROWS)[:, None] == row
    return jax.tree.map(lambda x: np.where(keep, x, np.zeros_like(x)), batch)


class _Trial:
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
        found = {
            "loss": 0.0,
            "policy": np.zeros(len(self.owner)),
            "entropy": np.zeros(len(self.owner)),
        }
        for batch in batches:
            scored = batch.loss_mask
            token = _tokens(batch)[scored]
            weighed = batch.replace(loss_weights=weight * batch.loss_weights)
            laid = self._laid(weighed, values or self.values, apart, dtype)
            if rows is not None:
                laid = place(laid, rows)
            (loss, stats), slopes = jax.device_get(self._program(*laid, _hyper(first)))
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
                return self._loss(policy, entropy, weighed, _hyper(False))[0]

            # The loss is linear in the weights: its slope is each token's own part.
            return jax.grad(loss)(batch.loss_weights)

        by_case = jax.jit(
            lambda cases: jax.lax.map(losses, cases), compiler_options=_QUICK
        )
        plain, *others = jax.device_get(by_case(stacked))
        changed = np.empty((len(others), size), bool)
        different = np.abs(np.subtract(others, plain)) > 1e-12
        changed[:, _tokens(batch)[scored]] = different[:, scored]
        names = np.array([name for name, _ in cases[1:]])
        return {name: changed[names == name] for name in self.values}

    def _laid(self, batch: Batch, values, apart, dtype) -> tuple[Any, Any, Batch]:
        """The loss's arguments: every value at its token."""

        def at(name, elsewhere):
            laid = np.where(batch.loss_mask, values[name][_tokens(batch)], elsewhere)
            return laid.astype(dtype)

        rows = batch.replace(
            advantages=batch.advantages.astype(dtype),
            loss_weights=batch.loss_weights.astype(dtype),
            old_logprobs=at("old", -apart),
            sampler_logprobs=at("sampler", apart),
            reference_logprobs=at("reference", -apart),
        )
        return at("policy", apart), at("entropy", 0), rows


def _tokens(batch: Batch) -> np.ndarray:
    """The number of the token at each position; 0 where none counts."""
    return np.where(batch.loss_mask, batch.sampler_logprobs, 0).astype(int)


def _hyper(first: bool) -> Hyper:
    return make_hyper(
        learning_rate=1, eps_low=0.2, eps_high=0.28, temperature=1.0, first_update=first
    )


# What is wrong where a property does not hold.
_WHY = {
    "finite": "where no token counts all arrays hold 0, which is divided by or has its"
    " logarithm taken",
    "gradient": "policy_logprobs is detached, or not used",
    "weights": "four times the weights do not make four times that: loss_weights is"
    " applied to the result, and belongs in no average of its own",
    "completions": "sums and means go by `segments`, not by rows or micro-batches",
    "alignment": "its policy_logprobs does not: shifted",
    "packing": "it depends on rows, their number or their length",
    "shared prompts": "it counts prompts' positions, which completions may share",
    "micro-batches": "it depends on what else is in the micro-batch",
    "row order": "it depends on where in the batch a row stands",
    "mesh": "it depends on how rows are split over devices",
    "masked positions": "it reads positions that do not count",
    "large ratios": "log-ratios of +-200 overflow in float32: hold the exponent, as"
    " `rl.update.losses.importance` does",
    "first update": "it is to be 1, as that of policy_logprobs to old_logprobs is,"
    " token by token",
}


def _finding(name: str, fault: str, well: str) -> Finding:
    """The fault and what is wrong; or, where there is none, what holds."""
    return Finding(name, not fault, f"{fault}: {_WHY[name]}" if fault else well)


def _finite(name: str, found: Mapping[str, Any]) -> Finding:
    bad = [key for key, value in found.items() if not np.isfinite(value).all()]
    fault = f"{_TOLD.get(bad[0], bad[0])} is not finite" if bad else ""
    return _finding(name, fault, "loss, gradient and metrics are finite")


def _same(name: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Finding:
    off = {key: _distance(found[key], value) for key, value in wanted.items()}
    worst = max(off, key=off.get)
    differs = f"{_TOLD.get(worst, worst)} differs by {off[worst]:.1e}"
    return _finding(name, differs if off[worst] > TOLERANCE else "", differs)


_TOLD = {"policy": "the gradient", "entropy": "the gradient by the entropy"}


def _distance(a: Any, b: Any) -> float:
    """The largest difference beside the size of `b`; infinite where one is NaN."""
    difference, size = np.max(np.abs(np.subtract(a, b))), np.max(np.abs(b))
    return float(difference / max(size, 1.0)) if np.isfinite(difference) else np.inf


def _reaches(plain: Mapping[str, Any]) -> Finding:
    reached, total = np.count_nonzero(plain["policy"]), plain["policy"].size
    fault = "" if reached else "none reaches the policy"
    return _finding("gradient", fault, f"reaches {reached} of {total} tokens")


def _reach(acts: Mapping[str, np.ndarray], owner: np.ndarray) -> Iterator[Finding]:
    strangers = owner[:, None] != owner
    leaks = {name: int((on & strangers).sum()) for name, on in acts.items()}
    named = ", ".join(name for name, count in leaks.items() if count)
    fault = (
        f"{named} of one act on the loss of others ({sum(leaks.values())} pairs of"
        " tokens)"
    )
    yield _finding(
        "completions", fault if named else "", "none acts on the loss of another"
    )
    # A ratio takes both log-probabilities of one token.
    reach = acts["policy"] | np.eye(len(owner), dtype=bool)
    shifted = [name for name, on in acts.items() if (on & ~strangers & ~reach).any()]
    if acts["policy"].any() and not acts["policy"].diagonal().any():
        shifted.append("policy")
    fault = f"{', '.join(shifted)} of a token acts on the loss of another token"
    yield _finding(
        "alignment", fault if shifted else "", "all arrays speak of the same token"
    )


if __name__ == "__main__":
    sys.exit(main())
