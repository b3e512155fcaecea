"""Bounds of a value: what was seen of it, and what the ops that make it say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.registry import has
from hexane.graph.traits import ELEMENTWISE, NEVER_NEGATIVE
from hexane.graph.types import TensorType
from hexane.isa.numbers import LARGEST_HALF
from hexane.restrictions.subject import numbers_of

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value
    from hexane.restrictions.subject import Subject

LARGEST_SUM = 32752.0
"""The largest sum that fp16 and the accumulator both hold."""
LEAST_INFINITY = 3.38e38
"""From here on coremltools takes a constant as an infinity, which fp16 has."""
MOST_BYTES = 1 << 26
"""Constants that are larger are not looked through."""
NOT_KNOWN = "not known: give inputs"
"""What is there of values that nobody has seen."""


def above(subject: Subject, value: Value, limit: float) -> str | None:
    """Numbers above a limit: largest and share where they were seen; None where there are none."""
    if largest(value) <= limit:
        return None
    array = subject.seen(value)
    return NOT_KNOWN if array is None else _share(array, array > limit)


def beyond(subject: Subject, value: Value, limit: float) -> str | None:
    """The same for magnitudes."""
    array = subject.seen(value)
    return NOT_KNOWN if array is None else _share(array, np.abs(array) > limit)


def below(subject: Subject, value: Value, limit: float) -> str | None:
    """The same for magnitudes that are too small, zeros left out."""
    array = subject.seen(value)
    return NOT_KNOWN if array is None else _share(array, (np.abs(array) < limit) & (array != 0))


def beyond_half(value: Value) -> float | None:
    """A finite number beyond fp16 in a constant of floats."""
    if not value.is_constant or not isinstance(value.type, TensorType) or value.dtype not in ("fp32", "fp64"):
        return None
    if value.type.nbytes > MOST_BYTES:
        return None
    data = numbers_of(value)
    return None if data is None else first_beyond_half(data)


def large_constant(op: Op) -> float | None:
    """A constant of an element-wise op beyond fp16: hexane's program has the end of the range in its place."""
    if not has(op, ELEMENTWISE):
        return None
    return next((number for number in map(beyond_half, op.operands()) if number is not None), None)


def first_beyond_half(data: np.ndarray) -> float | None:
    """The first finite number that does not round to fp16."""
    over = data[np.isfinite(data) & (np.abs(data) > LARGEST_HALF + 16)]
    return float(over.reshape(-1)[0]) if over.size else None


def _share(array: np.ndarray, bad: np.ndarray) -> str | None:
    share = np.count_nonzero(bad) / max(array.size, 1)
    return f"{array.min():.5g} to {array.max():.5g}, {share:.3%} of the values" if share else None


_ENDS_AT = {"sigmoid": 1.0, "tanh": 1.0, "softmax": 1.0, "sigmoid_hard": 1.0, "erf": 1.0, "softsign": 1.0, "relu6": 6.0}
_SAME = ("reshape", "transpose", "expand_dims", "squeeze", "slice_by_size", "slice_by_index", "identity", "cast",
         "relu", "reduce_max", "reduce_mean", "max_pool", "avg_pool")  # fmt: skip
STEPS = 8
"""How far up the ops are followed."""


def largest(value: Value, steps: int = STEPS) -> float:
    """No element is larger; infinity where the ops do not say."""
    if value.is_constant:
        return _of_constant(value, np.max)
    op = value.op
    if op is None or not steps:
        return math.inf
    if op.type in _ENDS_AT:
        return _ENDS_AT[op.type]
    if op.type == "clip":
        return _number(op, "beta")
    if op.type in _SAME and "x" in op.inputs:
        return max(largest(op.arg("x"), steps - 1), 0.0 if op.type == "relu" else -math.inf)
    if op.type in ("minimum", "maximum"):
        choose = min if op.type == "minimum" else max
        return choose(largest(op.arg(name), steps - 1) for name in ("x", "y"))
    if op.type == "sub" and _is_own_maximum(op):
        return 0.0
    if op.type in ("mul", "real_div") and _negates(op):
        return 0.0
    return math.inf


def _of_constant(value: Value, reduced: object) -> float:
    data = numbers_of(value)
    return float(reduced(data)) if data is not None and data.size and data.dtype.kind in "fiu" else math.inf  # type: ignore[operator]


def _number(op: Op, name: str) -> float:
    operand = op.arg(name)
    return float(operand) if isinstance(operand, (int, float)) else math.inf


def _is_own_maximum(op: Op) -> bool:
    """x - max(x), as every stable exponential has it."""
    top = op.arg("y").op
    return top is not None and top.type == "reduce_max" and top.arg("x") is op.arg("x")


def _negates(op: Op) -> bool:
    """A negative number times what is never negative."""
    for name, other in (("x", "y"), ("y", "x")):
        number, value = op.arg(name), op.arg(other)
        if number.is_constant and not value.is_constant and has(value.op, NEVER_NEGATIVE):
            return largest(number) <= 0 and (op.type == "mul" or other == "x")
    return False
