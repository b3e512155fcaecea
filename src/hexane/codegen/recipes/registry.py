"""Recipes by the ops that they take, and the helpers that every recipe needs to look at operands.

A recipe is declared by a decorator on the function that makes its tasks::

    @recipe("add", "sub")
    def elementwise(ops, context): ...

``match`` sees the first op and the context, and returns the run of ops that the recipe takes, or None; without one, the
recipe takes the op alone. Recipes are tried in order of ``rank``, then of declaration; the first that does not raise
``UnsupportedError`` wins. The docstring's first line is what reports say of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.errors import Reason, UnsupportedError
from hexane.graph.ir import Op, Value
from hexane.graph.types import STRINGS
from hexane.lowering.fusion import fused_ops

Match = Callable[["Op", Context], "tuple[Op, ...] | None"]
Lower = Callable[["Sequence[Op]", Context], Fragment]


@dataclass(frozen=True)
class Recipe:
    name: str
    heads: tuple[str, ...]
    match: Match
    lower: Lower
    rank: int
    shrinks: bool = False  # also takes a shorter run of the ops that match

    @property
    def doc(self) -> str:
        return (self.lower.__doc__ or "").partition("\n")[0]


_BY_HEAD: dict[str, list[Recipe]] = {}


def _alone(op: Op, _: Context) -> tuple[Op, ...]:
    return (op,)


def fused(op: Op, context: Context) -> tuple[Op, ...]:
    """An op and what its task can do behind the sums, for ``match``."""
    return fused_ops(op, context.on)


def recipe(*heads: str, match: Match = _alone, rank: int = 10, shrinks: bool = False) -> Callable[[Lower], Lower]:
    """Declare a recipe for ops of these types; lower ranks are tried first."""

    def declare(lower: Lower) -> Lower:
        entry = Recipe(lower.__name__, heads, match, lower, rank, shrinks)
        for head in heads:
            _BY_HEAD.setdefault(head, []).append(entry)
            _BY_HEAD[head].sort(key=lambda r: r.rank)
        return lower

    return declare


def recipes_for(head: str) -> Sequence[Recipe]:
    return _BY_HEAD.get(head, ())


def all_recipes() -> list[Recipe]:
    return list(dict.fromkeys(r for rows in _BY_HEAD.values() for r in rows))


# -- looking at operands ---------------------------------------------------------------------------------------------


def constant(value: Value) -> np.ndarray | None:
    """The values of a constant operand as fp16, None for a tensor that is computed."""
    if not value.is_constant:
        return None
    return np.asarray(value.data)


def scalar(value: Value) -> float | None:
    """The value of a constant that is the same everywhere (also of a whole tensor of equal values)."""
    data = constant(value)
    if data is None or data.size == 0:
        return None
    first = data.reshape(-1)[0]
    return float(first) if data.size == 1 else None


def fp16(value: float) -> float:
    """The number rounded to fp16; too large ones are infinite."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def need_fp16(*values: Value) -> None:
    for value in values:
        if value.dtype != "fp16":
            kind = "text" if value.dtype in STRINGS else value.dtype
            raise UnsupportedError(f"{value.name} is {kind}; the engine computes in fp16", code=Reason.ELEMENT_TYPE)


def x_and_result(op: Op, context: Context) -> tuple[Tensor, Tensor]:
    """An op's x, of fp16, and its result as tensors in DRAM."""
    need_fp16(op.inputs["x"])
    return context.tensor(op.inputs["x"]), context.tensor(op.output)
