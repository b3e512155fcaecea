"""Values too small for fp16 that matter all the same: those of which a logarithm is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.passes.rewriting import operand_and_constant

if TYPE_CHECKING:
    from hexane.graph.ir import Function, Op, Value

TINY = 2.0**-25
"""fp16 has nothing between this and zero."""

CARRIERS = (
    "square", "sqrt", "abs", "pow", "mul", "reduce_sum", "reduce_sum_square", "reduce_mean", "reduce_l2_norm",
    "transpose", "reshape", "squeeze", "expand_dims",
)  # fmt: skip
"""Ops through which a power comes about from amplitudes: they would lose the small ones as well."""


def vanishing_ops(function: Function) -> set[Op]:
    """The ops of every log(power + tiny) with a floor that fp16 cannot hold: power, sum and logarithm."""
    kept: set[Op] = set()
    for op in function.ops:
        if op.type != "log" or op.output.dtype != "fp32":
            continue
        floor = op.inputs["x"].op
        if floor is None or floor.type not in ("add", "maximum") or not _is_tiny(floor):
            continue
        kept |= {op, floor}
        found = operand_and_constant(floor)
        assert found is not None
        _collect(found[0], kept)
    return kept


def _is_tiny(op: Op) -> bool:
    found = operand_and_constant(op)
    if found is None:
        return False
    data = np.abs(found[1].data)
    return bool(data.size and np.all(data <= TINY) and np.any(data > 0))


def _collect(value: Value, kept: set[Op]) -> None:
    """The ops behind a value as far as they make powers, and nothing else needs them."""
    op = value.op
    while op is not None and op.type in CARRIERS and op not in kept:
        if op.type == "mul" and op.inputs["x"] is not op.inputs["y"]:
            return
        if any(user not in kept for user in op.output.users) or op.output.is_output:
            return
        kept.add(op)
        op = op.inputs["x"].op
