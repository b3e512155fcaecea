"""Tensors of one axis that has more than one element, and the ops that only cut, pad or regroup them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hexane.graph.registry import UNKNOWN

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value


def is_flat(value: Value) -> bool:
    """True where all elements stand along the last axis."""
    shape = value.shape
    return bool(shape) and all(isinstance(e, int) for e in shape) and all(extent == 1 for extent in shape[:-1])


def rows_of(value: Value) -> tuple[int, int] | None:
    """(rows, elements of a row) of a tensor of known shape."""
    shape = value.shape
    if not shape or not all(isinstance(extent, int) for extent in shape):
        return None
    return prod(shape[:-1]), shape[-1]


def slice_of_signal(op: Op) -> tuple[int, int] | None:
    """(begin, length) of a slice of a flat tensor."""
    if op.type != "slice_by_size" or not is_flat(op.inputs["x"]):
        return None
    begin = op.arg("begin")
    if begin is UNKNOWN or not isinstance(begin, tuple | list):
        return None
    extent = op.inputs["x"].shape[-1]
    return begin[-1] + extent if begin[-1] < 0 else begin[-1], op.output.shape[-1]


def pad_of_signal(op: Op) -> tuple[int, int] | None:
    """(before, after) of a padding of a flat tensor along its axis."""
    if op.type != "pad" or not is_flat(op.inputs["x"]) or not is_flat(op.output):
        return None
    widths, number = op.arg("pad"), op.arg("constant_val")
    if widths is UNKNOWN or number is UNKNOWN or op.arg("mode") is UNKNOWN or not isinstance(widths, tuple | list):
        return None
    before, after = widths[-2:] or (0, 0)
    return (before, after) if min(before, after) >= 0 else None


def swaps_rows(op: Op) -> bool:
    """True where an op exchanges the last two axes, all others of one element."""
    if op.type != "transpose" or op.arg("perm") is UNKNOWN:
        return False
    rank = len(op.arg("perm"))
    perm = [axis % rank for axis in op.arg("perm")]
    shape = op.inputs["x"].shape
    if rank < 2 or not all(isinstance(extent, int) for extent in shape) or prod(shape[:-2]) != 1:
        return False
    return perm == [*range(rank - 2), rank - 1, rank - 2]
