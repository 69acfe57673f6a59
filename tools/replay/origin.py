"""The first tensor of a computation that is not finite, though all that it is of is.

A computation is taken apart into the operations that JAX has traced, backward pass
included, and each is done by itself; a loop over layers goes layer by layer.
"""

import dataclasses
import linecache
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from models.qwen2 import Qwen2

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# What only wraps another computation, and the parameter that holds it.
_WRAPS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_WRAPPERS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where it began.

    Attributes:
      gradient: whether in the backward pass.
      layer: counted from 0; None outside of the layers.
      operation: JAX's name.
      shape: of the tensor.
      nonfinite: of its entries.
      where: `FILE:LINE` of ours.
      code: that line.
    """

    gradient: bool
    layer: int | None
    operation: str
    shape: tuple[int, ...]
    nonfinite: int
    where: str
    code: str

    def __str__(self) -> str:
        kind = "a gradient" if self.gradient else "an activation"
        layer = "outside of the layers" if self.layer is None else f"layer {self.layer}"
        shape = " x ".join(map(str, self.shape)) or "scalar"
        return (
            f"{kind}, {layer}: {self.nonfinite:,} entries of {shape} by"
            f" {self.operation} at {self.where}: {self.code}"
        )


class _Found(Exception):
    def __init__(self, origin: Origin):
        self.origin = origin


def find_origin(function: Callable, *args: Any) -> Origin | None:
    """Runs `function` one operation after the other, to the first that is at fault.

    Returns:
      The first operation whose result is not finite while all its operands are; None
      where there is none.
    """
    closed = jax.make_jaxpr(function)(*args)
    try:
        _run(closed.jaxpr, closed.consts, jax.tree.leaves(args), None)
    except _Found as found:
        return found.origin
    return None


def _run(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], layer: int | None
) -> list[Any]:
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= zip(jaxpr.invars, args, strict=True)
    last = {v: i for i, e in enumerate(jaxpr.eqns) for v in _variables(e.invars)}
    kept = set(_variables(jaxpr.outvars))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else values[atom]

    for i, eqn in enumerate(jaxpr.eqns):
        operands = [read(atom) for atom in eqn.invars]
        results = _do(jaxpr, eqn, operands, layer)
        values |= zip(eqn.outvars, results, strict=True)
        for variable in _variables(eqn.invars):
            if last[variable] == i and variable not in kept:
                del values[variable]  # a large model's activations do not all fit
    return [read(atom) for atom in jaxpr.outvars]


def _variables(atoms) -> list[Any]:
    return list(dict.fromkeys(a for a in atoms if not isinstance(a, Literal)))


def _do(
    jaxpr: Jaxpr, eqn: JaxprEqn, operands: list[Any], layer: int | None
) -> list[Any]:
    name = eqn.primitive.name
    if name == "scan":
        return _scan(eqn, operands, layer)
    if name in _WRAPPERS:
        inner = next(eqn.params[key] for key in _WRAPS if key in eqn.params)
        return _run(*_opened(inner), operands, layer)
    named = zip(eqn.invars, operands, strict=True)
    own = {atom: x for atom, x in named if not isinstance(atom, Literal)}
    alone = jaxpr.replace(
        constvars=[], invars=list(own), outvars=eqn.outvars, eqns=[eqn]
    )
    do = jaxpr_as_fun(ClosedJaxpr(alone, []))
    whole = any(isinstance(x, Jaxpr | ClosedJaxpr) for x in eqn.params.values())
    do = jax.jit(do) if whole else do
    results = do(*own.values())
    bad = [i for i, x in enumerate(results) if _nonfinite(x)]
    if bad and not any(map(_nonfinite, operands)):
        # What is infinite whatever it is of, such as a mask of -inf, is meant so.
        usual = do(*map(_ones, own.values()))
        bad = [i for i in bad if not _nonfinite(usual[i])]
        if bad:
            raise _Found(_origin(eqn, results[bad[0]], layer))
    return results


def _scan(eqn: JaxprEqn, operands: list[Any], layer: int | None) -> list[Any]:
    p = eqn.params
    inner, own_consts = _opened(p["jaxpr"])
    # By their ranks, which every version of JAX states alike: what is scanned over, and
    # what is stacked, has an axis more outside of the loop.
    scanned = _larger(eqn.invars, inner.invars)
    carried = len(eqn.outvars) - _larger(eqn.outvars, inner.outvars)
    cuts = len(operands) - scanned - carried, len(operands) - scanned
    consts, carry, xs = operands[: cuts[0]], operands[slice(*cuts)], operands[cuts[1] :]
    outputs = []
    order = range(p["length"])
    # The outermost loop of the decoder is that over its layers.
    of_layers = layer is None and Qwen2.__name__ in str(eqn.source_info.name_stack)
    for i in reversed(order) if p["reverse"] else order:
        own = i if of_layers else layer
        sliced = [x[i] for x in xs]
        out = _run(inner, own_consts, [*consts, *carry, *sliced], own)
        carry, ys = out[:carried], out[carried:]
        outputs.append(ys)
    if p["reverse"]:
        outputs.reverse()
    return [*carry, *(jnp.stack(ys) for ys in zip(*outputs, strict=True))]


def _opened(jaxpr: Jaxpr | ClosedJaxpr) -> tuple[Jaxpr, Sequence[Any]]:
    """A closed program's own and its constants; an open one has none."""
    if isinstance(jaxpr, ClosedJaxpr):
        return jaxpr.jaxpr, jaxpr.consts
    return jaxpr, ()


def _larger(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    pairs = zip(outer, inner, strict=True)
    return sum(a.aval.ndim > b.aval.ndim for a, b in pairs)


@jax.jit
def _count(x: jax.Array) -> jax.Array:
    return jnp.sum(~jnp.isfinite(x))


def _nonfinite(x: Any) -> int:
    if not jnp.issubdtype(jnp.result_type(x), jnp.inexact):
        return 0
    return int(_count(x))


def _ones(x: Any) -> Any:
    return jnp.ones_like(x) if jnp.issubdtype(jnp.result_type(x), jnp.inexact) else x


def _origin(eqn: JaxprEqn, bad: jax.Array, layer: int | None) -> Origin:
    where, code = "?", ""
    trace = eqn.source_info.traceback
    for frame in trace.frames if trace else ():
        path = pathlib.Path(frame.file_name)
        if path.is_relative_to(_ROOT) and ".venv" not in path.parts:
            where = f"{path.relative_to(_ROOT)}:{frame.line_num}"
            code = linecache.getline(str(path), frame.line_num).strip()
            break
    return Origin(
        gradient="transpose" in str(eqn.source_info.name_stack),
        layer=layer,
        operation=eqn.primitive.name,
        shape=bad.shape,
        nonfinite=_nonfinite(bad),
        where=where,
        code=code,
    )
