"""Values that fp16 cannot hold and that matter: too small before a logarithm, too large as sums of whole numbers."""

from __future__ import annotations

from math import prod

import numpy as np

from hexane.graph.ir import Function, Op, Value
from hexane.passes.rewriting import operand_and_constant

TINY = 2.0**-25
"""fp16 has nothing between this and zero."""

CARRIERS = (
    "square", "sqrt", "abs", "pow", "mul", "reduce_sum", "reduce_sum_square", "reduce_mean", "reduce_l2_norm",
    "transpose", "reshape", "squeeze", "expand_dims",
)  # fmt: skip
"""Ops through which a power comes about from amplitudes: they would lose the small ones as well."""


def vanishing_ops(function: Function) -> set[Op]:
    """The ops of every log(power + tiny) with a floor that fp16 cannot hold: power, sum and logarithm."""
    ops: set[Op] = set()
    for op in function.ops:
        if op.type != "log" or op.output.dtype != "fp32":
            continue
        floor = op.inputs["x"].op
        if floor is None or floor.type not in ("add", "maximum") or not _is_tiny(floor):
            continue
        ops |= {op, floor}
        pair = operand_and_constant(floor)
        assert pair is not None
        _collect(pair[0], ops)
    return ops


FEW = 1 << 14
"""Elements of a scale or bias per channel: more are data, which stay in fp16."""

SCALING = frozenset("mul real_div inverse sub add maximum minimum floor round cast reshape squeeze expand_dims".split())


def integer_sum_ops(function: Function) -> set[Op]:
    """The ops that turn sums of whole numbers back into floats: the cast, the factor's product, and what makes it.

    Sums of 8-bit products reach millions, and their factors 1e-6: neither fits fp16, their product does.
    """
    ops: set[Op] = set()
    visited: set[Op] = set()
    for op in function.ops:
        if op.type != "cast" or op.output.dtype != "fp32" or op.inputs["x"].dtype not in ("int32", "int64"):
            continue
        products = [user for user in op.output.users if user.type == "mul"]
        if op.inputs["x"].is_constant or not products or len(products) != len(op.output.users):
            continue
        ops |= {op, *products}
        waiting = [value for user in products for value in user.operands()] + list(_whole_numbers(op))
        while waiting:
            maker = waiting.pop().op
            if maker is None or maker in visited or maker.type not in SCALING or not _is_small(maker):
                continue
            visited.add(maker)
            if "fp32" in (maker.output.dtype, *(value.dtype for value in maker.operands())):
                ops.add(maker)  # arithmetic on whole numbers needs no keeping, what they are made from does
            waiting += [value for value in maker.operands() if not value.is_constant]
    return ops


def _whole_numbers(op: Op) -> list[Value]:
    """The whole numbers that are added up before a cast: the sums themselves, and a bias in units of their factor."""
    whole_numbers, waiting = [], [op.inputs["x"]]
    while waiting:
        maker = waiting.pop().op
        if maker is None or maker.type not in ("add", "sub", "reshape", "expand_dims", "squeeze"):
            continue
        values = [value for value in maker.operands() if not value.is_constant and value.dtype in ("int32", "int64")]
        whole_numbers += values
        waiting += values
    return whole_numbers


def _is_small(op: Op) -> bool:
    shape = op.output.shape
    return all(isinstance(extent, int) for extent in shape) and prod(shape) <= FEW and op.output.dtype != "fp64"


def _is_tiny(op: Op) -> bool:
    pair = operand_and_constant(op)
    if pair is None:
        return False
    data = np.abs(pair[1].data)
    return bool(data.size and np.all(data <= TINY) and np.any(data > 0))


def _collect(value: Value, ops: set[Op]) -> None:
    """The ops behind a value as far as they make powers, and nothing else needs them."""
    op = value.op
    while op is not None and op.type in CARRIERS and op not in ops:
        if op.type == "mul" and op.inputs["x"] is not op.inputs["y"]:
            return
        if any(user not in ops for user in op.output.users) or op.output.is_output:
            return
        ops.add(op)
        op = op.inputs["x"].op
