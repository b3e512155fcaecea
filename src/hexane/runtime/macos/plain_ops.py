"""Ops that Apple's compiler does not take as ops that it takes.

Those of the compiler's own passes (``engine.*``) become the MIL ops that they stand for; a pad that continues a map
becomes slices and a concat where the chip has no texture engine (docs/reference/limits.md 2.2).
"""

from __future__ import annotations

import numpy as np

from hexane.chips import Chip
from hexane.errors import UnsupportedError
from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Graph, Op, Value
from hexane.graph.ops.join import pad_widths
from hexane.graph.rewrite import function_of, replace_op
from hexane.graph.types import DTYPES
from hexane.passes.rewriting import is_static

LOG2_E = 1.4426950408889634


def with_plain_ops(graph: Graph, chip: Chip) -> None:
    """Rewrite the graph in place. UnsupportedError for an op that MIL has no form of."""
    for op in list(graph.main.walk()):
        if _is_continued(op) and not chip.generation.texture_engine:
            replace_op(op, _continued(op, GraphBuilder(function=function_of(op), before=op)))
            continue
        if "." not in op.type:
            continue
        if op.type != "engine.table":
            raise UnsupportedError(
                f"{op.describe()} is the compiler's own, and MIL has no form of it",
                hint='compile with dialect="apple", which does without',
            )
        replace_op(op, _table(op, GraphBuilder(function=function_of(op), before=op)))


def _is_continued(op: Op) -> bool:
    """A pad that mirrors or repeats the border, once."""
    if op.type != "pad" or op.arg("mode") == "constant":
        return False
    x = op.inputs["x"]
    widths = pad_widths(len(x.shape), op.arg("pad"))
    return is_static(x) and all(max(pair) <= n for pair, n in zip(widths, x.shape) if op.arg("mode") == "symmetric")


def _continued(op: Op, b: GraphBuilder) -> Value:
    """A map with mirrored or repeated borders, axis by axis: the borders are products of slices with ones and zeros.

    Such a product turns the order round or repeats one element. It is exact but for -0, and for what is not finite.
    """
    value, mode = op.inputs["x"], op.arg("mode")
    for axis, (before, after) in enumerate(pad_widths(len(value.shape), op.arg("pad"))):
        extent = int(value.shape[axis])
        if mode == "replicate":
            left, right = (0, 1), (extent - 1, 1)
        else:
            edge = 0 if mode == "symmetric" else 1
            left, right = (edge, before), (extent - edge - after, after)
        parts = [_border(value, axis, *left, before, b), value, _border(value, axis, *right, after, b)]
        pieces = tuple(part for part in parts if part is not None)
        value = b.concat(values=pieces, axis=axis) if len(pieces) > 1 else value
    return value


def _border(x: Value, axis: int, begin: int, size: int, count: int, b: GraphBuilder) -> Value | None:
    """``count`` elements from ``size`` of an axis: these in the opposite order, or the only one again and again."""
    if not count:
        return None
    rank = len(x.shape)
    begins, sizes = [0] * rank, [int(n) for n in x.shape]
    begins[axis], sizes[axis] = begin, size
    part = b.slice_by_size(x=x, begin=begins, size=sizes)
    carrier = DTYPES[x.dtype].carrier
    kernel = np.eye(size, dtype=carrier)[::-1] if size == count else np.ones((count, size), carrier)
    order = [axis if i == rank - 1 else rank - 1 if i == axis else i for i in range(rank)]
    if axis == rank - 1:
        return b.linear(x=part, weight=kernel)
    return b.transpose(x=b.linear(x=b.transpose(x=part, perm=order), weight=kernel), perm=order)


def _table(op: Op, b: GraphBuilder) -> Value:
    """scale f(x) + shift, in the ops from which the compiler made one table."""
    x, name = op.inputs["x"], op.arg("function")
    factor = float(op.arg("factor"))
    if factor != 1.0:
        x = b.mul(x=x, y=_number(factor, x))
    if name == "hard_swish":
        result = b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=_number(1 / 6, x), beta=_number(0.5, x)))
    elif name == "mish":
        result = b.mul(x=x, y=b.tanh(x=b.softplus(x=x)))
    elif name == "gelu_sigmoid":
        result = b.gelu(x=x, mode="SIGMOID_APPROXIMATION")
    elif name == "gelu":
        result = b.gelu(x=x, mode="EXACT")
    elif name == "log2":
        result = b.mul(x=b.log(x=x, epsilon=_number(0.0, x)), y=_number(LOG2_E, x))
    elif name in ("rsqrt", "reciprocal"):
        result = b.op("inverse" if name == "reciprocal" else name, x=x, epsilon=_number(0.0, x))
    else:
        result = b.op(name, x=x)
    scale, shift = float(op.arg("scale")), float(op.arg("shift"))
    if scale != 1.0:
        inverse = 1 / scale
        if _is_exact(inverse, x) and not _is_exact(scale, x):  # it was divided by a number
            result = b.real_div(x=result, y=_number(inverse, x))
        else:
            result = b.mul(x=result, y=_number(scale, x))
    return b.add(x=result, y=_number(shift, x)) if shift else result


def _number(value: float, like: Value) -> np.generic:
    return np.float32(value) if like.dtype == "fp32" else np.float16(value)


def _is_exact(value: float, like: Value) -> bool:
    return float(_number(value, like)) == value
