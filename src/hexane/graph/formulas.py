"""Expressions over values of a graph being built: ``grad * (1 - out * out)`` adds the ops that compute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph.builder import GraphBuilder
from hexane.graph.parts import Value
from hexane.graph.registry import is_known, lookup, opset_number
from hexane.graph.types import DTYPES


class Formula:
    """A value and the builder that goes on from it.

    ``+ - * /`` with terms and numbers, broadcast as in NumPy, take the dtype of the term on the left; every op is a
    method whose first operand is the term (``x.greater(y=0.0)``, ``x.reshape(shape=[4, 2])``).
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: GraphBuilder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.rank

    @property
    def dtype(self) -> str:
        return self.value.dtype

    @property
    def number(self) -> float | None:
        """The number that a constant of one element, or of equal elements, has; None for other values."""
        constant = self.value.constant
        if constant is None or not constant.array.size or constant.array.dtype.kind != "f":
            return None
        first = constant.array.reshape(-1)[0]
        return float(first) if bool((constant.array == first).all()) else None

    def op(self, type: str, **operands: Any) -> Formula:
        """An op of which this term need not be an operand; in the first op set that has it, where the function's
        lacks it. Its first result."""
        return _formula(self.builder, apply(self.builder, type, **operands))

    def __getattr__(self, type: str) -> Callable[..., Formula]:
        if type.startswith("_") or not is_known(type):
            raise AttributeError(type)
        first = lookup(type).params[0].name
        return lambda **operands: self.op(type, **{first: self}, **operands)

    def _with(self, type: str, other: Any, swapped: bool = False) -> Formula:
        if isinstance(other, Formula) and other.dtype != self.dtype:
            other = other.cast(dtype=self.dtype)
        x, y = (other, self) if swapped else (self, other)
        return self.op(type, x=x, y=y)

    def __add__(self, other: Any) -> Formula:
        return self._with("add", other)

    def __sub__(self, other: Any) -> Formula:
        return self._with("sub", other)

    def __mul__(self, other: Any) -> Formula:
        return self._with("mul", other)

    def __truediv__(self, other: Any) -> Formula:
        return self._with("real_div", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Formula:
        return self._with("sub", other, swapped=True)

    def __rtruediv__(self, other: Any) -> Formula:
        return self._with("real_div", other, swapped=True)

    def __neg__(self) -> Formula:
        return self * -1.0

    def where(self, type: str, other: Any) -> Formula:
        """1 where the comparison ``type`` with another term or number holds, else 0, in this term's dtype."""
        return self._with(type, other).cast(dtype=self.dtype)

    def plus(self, epsilon: float) -> Formula:
        """The term plus a number, itself where the number is 0 in the term's dtype."""
        return self + epsilon if DTYPES[self.dtype].carrier.type(epsilon) else self

    def total(self, axes: Sequence[int], keep: bool = False) -> Formula:
        """The sum along axes. That over leading axes comes last, since no engine adds batches: as a product with ones
        where one axis is left, else with batches as channels."""
        gone = sorted({axis % self.rank for axis in axes})
        extents = [1 if axis in gone else extent for axis, extent in enumerate(self.shape)]
        shape = extents if keep else [n for axis, n in enumerate(self.shape) if axis not in gone]
        if 0 in self.shape or self.rank < 2:
            return self.reduce_sum(axes=gone, keep_dims=keep) if gone else self
        lead = next((i for i, axis in enumerate([*gone, -1]) if i != axis), 0)
        lead = lead if lead < self.rank else 1
        inner = [axis for axis in gone if axis >= lead and self.shape[axis] != 1]
        part = self.reduce_sum(axes=inner, keep_dims=True) if inner else self
        count, rest = prod(self.shape[:lead]), extents[lead:]
        if count > 1 and sum(extent > 1 for extent in rest) <= 1:
            ones = Formula(self.builder, self.builder.const(np.ones((1, count)), self.dtype))
            part = ones.matmul(y=part.shaped((count, prod(rest))))
        elif count > 1:
            part = part.shaped((1, count, prod(rest[:-1]), rest[-1])).reduce_sum(axes=[1], keep_dims=True)
        return part.shaped(shape)

    def shaped(self, shape: Sequence[int]) -> Formula:
        """The same elements in another shape."""
        return self if tuple(shape) == self.shape else self.reshape(shape=list(shape))

    def ordered(self, *perm: int) -> Formula:
        """The axes in another order."""
        return self if perm == tuple(range(self.rank)) else self.transpose(perm=list(perm))

    def summed_to(self, shape: Sequence[int]) -> Formula:
        """The sum over the axes along which a tensor of ``shape`` was broadcast to this one, in that shape."""
        lead = self.rank - len(shape)
        aligned = (1,) * lead + tuple(shape)
        axes = [axis for axis, (have, want) in enumerate(zip(self.shape, aligned)) if want == 1 and have != 1]
        return self.total(axes, keep=True).shaped(shape)

    def spread(self, shape: Sequence[int]) -> Formula:
        """The term repeated to a shape of the same rank, along axes where it has one element."""
        reps = [want // have if have else 1 for have, want in zip(self.shape, shape)]
        if not prod(shape):
            return self.zeros(shape)
        return self if max(reps, default=1) == 1 else self.tile(reps=reps)

    def zeros(self, shape: Sequence[int]) -> Formula:
        """A tensor of zeros in this term's dtype."""
        return zeros(self.builder, shape, self.dtype)

    def cut(self, axis: int, start: int, count: int) -> Formula:
        """``count`` elements of an axis from ``start`` on."""
        if (start, count) == (0, self.shape[axis]):
            return self
        begin, size = [0] * self.rank, list(self.shape)
        begin[axis], size[axis] = start, count
        return self.slice_by_size(begin=begin, size=size)

    def apart(self, axis: int, step: int) -> Formula:
        """``step - 1`` zeros behind every element of an axis; written as rows, whose ends any engine pads."""
        n, rest = self.shape[axis], prod(self.shape[axis + 1 :])
        rows = self.shaped((prod(self.shape[:axis]) * n, rest)).padded([(0, 0), (0, (step - 1) * rest)])
        return rows.shaped((*self.shape[:axis], n * step, *self.shape[axis + 1 :]))

    def summed_runs(self, axis: int, count: int) -> Formula:
        """The sums of ``count`` elements side by side on an axis."""
        runs, rest = self.shape[axis] // count, prod(self.shape[axis + 1 :])
        total = self.shaped((prod(self.shape[:axis]) * runs, count, rest)).reduce_sum(axes=[1])
        return total.shaped((*self.shape[:axis], runs, *self.shape[axis + 1 :]))

    def padded(self, widths: Sequence[tuple[int, int]]) -> Formula:
        """Zeros before and after each axis; a negative width takes elements away."""
        begin = [max(-before, 0) for before, _ in widths]
        size = [n - b - max(-after, 0) for n, b, (_, after) in zip(self.shape, begin, widths)]
        part = self if tuple(size) == self.shape else self.slice_by_size(begin=begin, size=size)
        more = [max(width, 0) for pair in widths for width in pair]
        while more[:2] == [0, 0]:
            more = more[2:]
        return part.pad(pad=more, mode="constant", constant_val=0.0) if more else part


def zeros(builder: GraphBuilder, shape: Sequence[int], dtype: str) -> Formula:
    """A tensor of zeros."""
    return _formula(builder, builder.op("fill", shape=list(shape), value=builder.const(0.0, dtype)))


def apply(builder: GraphBuilder, type: str, **operands: Any) -> Any:
    """``GraphBuilder.op`` with terms for values; its results."""
    values: dict[str, Any] = {
        name: tuple(map(_value, operand)) if isinstance(operand, tuple) else _value(operand)
        for name, operand in operands.items()
    }
    return builder.op(type, opset=_opset(type, builder.function.opset), **values)


def _opset(type: str, opset: str) -> str | None:
    """None where a function's op set has the op, else the first that has it."""
    number = opset_number(opset)
    for since in range(number, 19):
        try:
            lookup(type, since)
        except UnsupportedError:
            continue
        return None if since == number else f"ios{since}"
    raise UnsupportedError(f"hexane has no op {type!r}")


def _value(operand: Any) -> Any:
    return operand.value if isinstance(operand, Formula) else operand


def _formula(builder: GraphBuilder, results: Any) -> Formula:
    return Formula(builder, results[0] if isinstance(results, tuple) else results)
