"""A loss scale for each sum of products: one for all is held down by the largest sum, while small ones vanish.

A backward pass is linear in its seed. So an operand that depends on the seed may be multiplied by 2^k before a sum, and
the sum's result by 2^-k behind it: the same value, but its products are not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hexane.graph.builder import GraphBuilder, builder_before
from hexane.graph.ir import Graph, Op, Value
from hexane.graph.rewrite import replace_uses
from hexane.lowering.fusion import SUMS


def sums_behind(graph: Graph, seed: str) -> dict[str, tuple[Op, str]]:
    """The sums of products that depend on an input, by the name of their result, with the parameter that does."""
    depends = {value for value in graph.main.inputs if value.name == seed}
    sums = {}
    for op in graph.main.ops:
        params = [p for p, operand in op.inputs.items() if isinstance(operand, Value) and operand in depends]
        listed = any(operand in depends for operand in op.operands())
        if listed:
            depends.update(op.outputs)
        if params and op.type in SUMS:
            sums[op.output.name] = op, params[0]
    return sums


def scaled(graph: Graph, seed: str, bits: Mapping[str, int]) -> Graph:
    """A copy of a backward pass whose sums have scales of their own: exponents of two by the name of the result."""
    copy = graph.clone()
    for name, (op, param) in sums_behind(copy, seed).items():
        power = bits.get(name, 0)
        if not power:
            continue
        before = builder_before(op)
        operand = op.arg(param)
        op.replace_operand(operand, before.mul(x=operand, y=_power(operand, power)))
        ops = list(copy.main.ops)
        after = ops[ops.index(op) + 1 :]
        b = builder_before(after[0]) if after else GraphBuilder(function=copy.main)
        result = b.mul(x=op.output, y=_power(op.output, -power))
        assert result.op is not None
        replace_uses(op.output, result)
        result.op.replace_operand(result, op.output)
    return copy


def _power(value: Value, exponent: int) -> np.ndarray:
    return np.asarray(2.0**exponent, np.float16 if value.dtype == "fp16" else np.float32)
