"""Ops of the compiler's own passes (``engine.*``) as the MIL ops that they stand for: Apple's knows no others."""

from __future__ import annotations

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Graph, Op, Value
from hexane.graph.rewrite import function_of, replace_op

LOG2_E = 1.4426950408889634


def with_plain_ops(graph: Graph) -> None:
    """Rewrite the graph in place. UnsupportedError for an op that MIL has no form of."""
    for op in list(graph.main.walk()):
        if "." not in op.type:
            continue
        if op.type != "engine.table":
            raise UnsupportedError(
                f"{op.describe()} is the compiler's own, and MIL has no form of it",
                hint='compile with dialect="apple", which does without',
            )
        replace_op(op, _table(op, GraphBuilder(function=function_of(op), before=op)))


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
