"""Picking and placing elements: gather, scatter, top-k, one-hot, running sums."""

from __future__ import annotations

from math import prod

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import Refused, axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops.quantised import KEPT_ELEMENTS
from hexane.formats.onnx.ops.shape import static_shape
from hexane.formats.onnx.registry import one_op, onnx_op
from hexane.formats.operands import Operand, type_of

one_op("GatherND", "gather_nd", "x indices", batch_dims=0)
one_op("TensorScatter", "onnx.TensorScatter", "past update write_indices?", axis=-2, mode="linear")
one_op("Unique", "onnx.Unique", "x", sorted=True, axis=None)
one_op("Det", "onnx.Det", "x")


@onnx_op("Gather")
def gather(c: NodeContext) -> Operand:
    x, indices = c.need(0), c.need(1)
    axis = axis_in(c.attr("axis", 0), len(type_of(x).shape))
    if isinstance(x, np.ndarray) and isinstance(indices, np.ndarray):
        extent = x.shape[axis]
        if indices.size and not -extent <= indices.min() <= indices.max() < extent:
            raise GraphError(f"an index outside -{extent}..{extent - 1}")
        entry = palette(c, x, indices)
        return np.take(x, indices, axis=axis) if entry is None else entry
    return c.ops.gather(x=x, indices=indices, axis=axis)


def palette(c: NodeContext, table: np.ndarray, indices: np.ndarray) -> Operand | None:
    """Weights that a file holds as a table of numbers and indices into it, kept so; None for anything else."""
    entries = table.size
    if table.ndim != 1 or table.dtype not in (np.float16, np.float32) or not 2 <= entries <= 256:
        return None
    if indices.size < KEPT_ELEMENTS or indices.ndim < 2 or indices.min() < 0:
        return None
    bits = next(width for width in (1, 2, 3, 4, 6, 8) if entries <= 1 << width)
    full = np.concatenate([table, np.full((1 << bits) - entries, table[-1], table.dtype)])
    lut = full.reshape((1,) * indices.ndim + (-1, 1))
    builder = c.importer.builder
    stored = builder.const(indices.astype(np.uint8), f"uint{bits}")
    return builder.op("constexpr_lut_to_dense", opset="ios18", indices=stored, lut=builder.const(lut))


@onnx_op("GatherElements")
def gather_elements(c: NodeContext) -> Operand:
    x, indices = c.need(0), c.need(1)
    return c.gather_elements(x, indices, axis_in(c.attr("axis", 0), len(type_of(x).shape)))


_MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _mode(c: NodeContext) -> str:
    mode = c.attr("reduction", "none")
    if mode not in _MODES:
        raise GraphError(f"reduction {mode!r}")
    return _MODES[mode]


@onnx_op("Scatter", "ScatterElements", "ScatterND")
def scatter(c: NodeContext) -> Operand:
    x, indices, updates = (c.need(index) for index in range(3))
    if prod(type_of(indices).shape) == 0:
        return c.ops.identity(x=x)
    given = {"data": x, "indices": indices, "updates": updates, "mode": _mode(c)}
    if c.node.op_type == "ScatterND":
        return c.ops.scatter_nd(**given)
    if type_of(indices).shape != type_of(updates).shape:
        raise GraphError(f"indices {type_of(indices).shape} and updates {type_of(updates).shape} differ in shape")
    return c.ops.scatter_along_axis(**given, axis=axis_in(c.attr("axis", 0), len(type_of(x).shape)))


@onnx_op("TopK")
def topk(c: NodeContext) -> tuple[Operand, ...]:
    x = c.need(0)
    shape = static_shape(c, x)
    axis = axis_in(c.attr("axis", -1), len(shape))
    largest = bool(c.attr("largest", 1))
    if not c.has_attr("k") and not c.is_constant(1):
        k = c.reshape(c.need(1), ())
        return c.at_run_time("TopK", "k", x=x, k=k, axis=axis, largest=largest)
    k = c.attr("k") if c.has_attr("k") else (c.ints(1) or [0])[0]
    if not 0 <= k <= shape[axis]:
        raise GraphError(f"the {k} largest of {shape[axis]}")
    if type_of(x).dtype not in ("fp16", "fp32", "int32") or k == 0:
        out = (*shape[:axis], k, *shape[axis + 1 :])
        return c.ops.op("onnx.TopK", x=x, k=k, axis=axis, largest=largest, output_shape=out)
    values, indices = c.ops.topk(x=x, k=k, axis=axis, ascending=not largest)
    return values, c.cast(indices, "int64")


@onnx_op("OneHot")
def one_hot(c: NodeContext) -> Operand:
    """``values = [off, on]``; indices count from the end where negative."""
    indices, values = c.need(0), c.need(2)
    axis = axis_in(c.attr("axis", -1), len(type_of(indices).shape) + 1)
    if not c.is_constant(1):
        depth, shape = c.cast(c.reshape(c.need(1), ()), "int64"), c.declared_shape("depth")
    else:
        depth = np.array(int(c.need_constant(1).reshape(()).item()), np.int32)
        old = type_of(indices).shape
        shape = (*old[:axis], int(depth), *old[axis:])
    return c.ops.op("onnx.OneHot", x=values, indices=indices, depth=depth, axis=axis, output_shape=shape)


@onnx_op("NonZero")
def non_zero(c: NodeContext) -> Operand:
    """Coordinates ``[rank, count]``; how many there are depends on data."""
    x = c.need(0)
    if isinstance(x, np.ndarray):
        return np.array(np.nonzero(np.atleast_1d(x)), np.int64)
    if type_of(x).dtype == "bool":
        x = c.cast(x, "int32")
    places = c.ops.non_zero(x=x)
    return c.cast(c.transpose(places, (1, 0)), "int64")


@onnx_op("CumSum", "CumProd")
def running(c: NodeContext) -> Operand:
    x, product = c.need(0), c.node.op_type == "CumProd"
    exclusive, reverse = bool(c.attr("exclusive", 0)), bool(c.attr("reverse", 0))
    shape = static_shape(c, x)
    if not c.is_constant(1):
        op = "onnx.CumProdAt" if product else "onnx.CumSum"
        axis = c.reshape(c.need(1), ())
        return c.ops.op(op, x=x, axis=axis, exclusive=exclusive, reverse=reverse, output_shape=shape)
    axis = axis_in((c.ints(1) or [0])[0], len(shape))
    if product:
        return c.ops.op("onnx.CumProd", x=x, axis=axis, exclusive=exclusive, reverse=reverse)
    return c.ops.cumsum(x=x, axis=axis, exclusive=exclusive, reverse=reverse)


@onnx_op("ReverseSequence")
def reverse_sequence(c: NodeContext) -> Operand:
    seq, batch = c.attr("time_axis", 0), c.attr("batch_axis", 1)
    lengths = c.cast(c.need(1), "int32")
    return c.ops.reverse_sequence(x=c.need(0), lengths=lengths, seq_axis=seq, batch_axis=batch)


@onnx_op("Compress")
def compress(c: NodeContext) -> Operand:
    x, axis = c.need(0), c.attr("axis")
    shape = static_shape(c, x)
    if axis is not None:
        axis = axis_in(axis, len(shape))
    if c.is_constant(1):
        keep = np.flatnonzero(np.asarray(c.constant(1))).astype(np.int32)
        flat = c.reshape(x, (prod(shape),)) if axis is None else x
        return c.ops.gather(x=flat, indices=keep, axis=axis or 0)
    extra = {} if axis is None else {"axis": axis}
    return c.ops.op("onnx.Compress", x=x, condition=c.need(1), **extra)


@onnx_op("NonMaxSuppression")
def non_max_suppression(c: NodeContext) -> Operand:
    names = {2: "max_output_boxes_per_class", 3: "iou_threshold", 4: "score_threshold"}
    extra = {name: c.reshape(c.need(index), (1,)) for index, name in names.items() if c.has(index)}
    return c.ops.op(
        "onnx.NonMaxSuppression",
        boxes=c.need(0),
        scores=c.need(1),
        center_point_box=bool(c.attr("center_point_box", 0)),
        **extra,
    )


@onnx_op("Einsum")
def einsum(c: NodeContext) -> Operand:
    equation = c.attr("equation", "").replace(" ", "")
    operands = c.inputs()
    if "..." in equation:
        equation = _without_ellipsis(equation, [len(type_of(operand).shape) for operand in operands])
    if "->" not in equation:
        letters = equation.replace(",", "")
        equation += "->" + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return c.ops.einsum(values=tuple(operands), equation=equation)


def _without_ellipsis(equation: str, ranks: list[int]) -> str:
    """``...`` spelled out in letters that the equation does not use."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refused("its equation has another number of terms than the node has inputs")
    free = [letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
    widths = [rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks)]
    dots = "".join(free[: max(widths)])
    spelled = [term.replace("...", dots[len(dots) - width :]) for term, width in zip(terms, widths)]
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return ",".join(spelled) + "->" + right.replace("...", dots)
