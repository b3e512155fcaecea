"""Reductions along axes, and indices of extremes."""

from __future__ import annotations

from hexane.formats.compositions import axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.onnx.same import REDUCTIONS
from hexane.formats.operands import Operand, type_of


@onnx_op(*REDUCTIONS)
def reduce(c: NodeContext) -> Operand:
    """Axes are an attribute or, from op set 13 (sum) and 18 (the others), an input."""
    x, kind = c.need(0), REDUCTIONS[c.node.op_type]
    keep, keep_all = bool(c.attr("keepdims", 1)), bool(c.attr("noop_with_empty_axes", 0))
    if not c.has_attr("axes") and not c.is_constant(1):
        return c.at_run_time(c.node.op_type, "axes", x=x, axes=c.need(1), keep_dims=keep, keep_all=keep_all)
    axes = c.axes_input(1)
    rank = len(type_of(x).shape)
    if not axes:
        if keep_all:
            return _unreduced(c, x, kind)
        axes = list(range(rank))
    if not rank:
        return _unreduced(c, x, kind)
    axes = sorted(axis_in(axis, rank) for axis in axes)
    return c.ops.op(f"reduce_{kind}", x=x, axes=axes, keep_dims=keep)


def _unreduced(c: NodeContext, x: Operand, kind: str) -> Operand:
    """Remainder of a reduction over no axes."""
    if kind in ("l1_norm", "l2_norm"):
        return c.ops.abs(x=x)
    if kind == "sum_square":
        return c.ops.square(x=x)
    if kind == "log_sum":
        return c.ops.log(x=x, epsilon=0.0)
    return c.ops.identity(x=x)


@onnx_op("ArgMax", "ArgMin")
def arg_extreme(c: NodeContext) -> Operand:
    x = c.need(0)
    axis = axis_in(c.attr("axis", 0), len(type_of(x).shape))
    keep = bool(c.attr("keepdims", 1))
    op = "reduce_argmax" if c.node.op_type == "ArgMax" else "reduce_argmin"
    if not c.attr("select_last_index", 0):
        return _index(c, op, x, axis, keep)
    extent = type_of(x).shape[axis]
    first = _index(c, op, c.ops.reverse(x=x, axes=[axis]), axis, keep)
    return c.ops.sub(x=c.like(extent - 1, first), y=first)


def _index(c: NodeContext, op: str, x: Operand, axis: int, keep: bool) -> Operand:
    return c.cast(c.ops.op(op, x=x, axis=axis, keep_dims=keep, output_dtype="int32"), "int64")
