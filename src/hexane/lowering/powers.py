"""Powers that are right by logarithms: bases that cannot be negative.

The engine's power of two computed tensors is 2^(y log2 x). A negative x has no logarithm, though x to a whole number
has a value: -2 to the 3 is -8, and the tables give something else. Transformation ``guarded-powers`` leaves such powers
to the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import Reason, UnsupportedError
from hexane.graph.registry import has, values_of
from hexane.graph.traits import MOVES, NEVER_NEGATIVE, PICKS, SAME_VALUES

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value
    from hexane.lowering.transformations import Transformations

_ALSO_KEEP = frozenset(
    "max_pool avg_pool reduce_sum reduce_mean reduce_max reduce_min add mul minimum real_div "
    "pow upsample_nearest_neighbor".split()
)
"""Ops beside those that only move values whose results are not negative where none of their tensors is."""


def may_be_negative(value: Value) -> bool:
    """True where an element of a value may be below zero, as far as the ops that make it tell."""
    visited, open_ = set(), [value]
    while open_:
        value = open_.pop()
        if value in visited:
            continue
        visited.add(value)
        op = value.op
        if value.is_constant:
            if (np.asarray(value.data) < 0).any():
                return True
        elif op is None or not (has(op, NEVER_NEGATIVE) or _keeps(op) or _is_floor(op)):
            return True
        elif _keeps(op):
            open_ += [v for operand in op.inputs.values() for v in values_of(operand) if v.dtype.startswith("fp")]
    return False


def _keeps(op: Op) -> bool:
    return has(op, MOVES | PICKS | SAME_VALUES) or op.type in _ALSO_KEEP


def _is_floor(op: Op) -> bool:
    """A clip or a maximum whose lower limit is not negative."""
    if op.type == "clip":
        return float(op.arg("alpha")) >= 0
    limits = [op.arg(name) for name in ("x", "y")] if op.type == "maximum" else []
    return any(limit.is_constant and not (np.asarray(limit.data) < 0).any() for limit in limits)


def check_power(op: Op, on: Transformations) -> None:
    """UnsupportedError for a power of two computed tensors that the engine would get wrong for negative bases."""
    if on.guarded_powers and not op.arg("y").is_constant and may_be_negative(op.arg("x")):
        raise UnsupportedError(
            "a power whose base may be negative: the engine's is 2^(y log2 x)",
            code=Reason.OPERATION,
            hint="abs(x) if the sign does not matter; --without guarded-powers takes the engine's",
        )
