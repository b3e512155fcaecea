"""Element-wise ops, moves and reductions as ONNX nodes."""

from __future__ import annotations

from math import prod

import numpy as np

from hexane.formats.onnx.same import BINARY, REDUCTIONS, UNARY
from hexane.formats.onnx.writing import Writing, refused, writes
from hexane.graph import Op, Value
from hexane.graph.ops.join import pad_widths
from hexane.graph.ops.slicing import slices_of
from hexane.graph.types import tensor_of

SAME = {op: node for node, op in (UNARY | BINARY).items() if not op.startswith("onnx.") and op != "real_div"}
SAME |= {"identity": "Identity", "minimum": "Min", "maximum": "Max", "pow": "Pow"}
"""Ops that a node of the same operands in the same order computes."""


@writes(*SAME)
def same(w: Writing, op: Op) -> None:
    w.node(SAME[op.type], [w.name(value) for value in op.operands()], op.output)


def first(op: Op) -> Value:
    value = op.arg("x")
    assert isinstance(value, Value)
    return value


@writes("not_equal")
def not_equal(w: Writing, op: Op) -> None:
    w.node("Not", [w.node("Equal", [w.name(value) for value in op.operands()])], op.output)


@writes("real_div", "floor_div", "mod")
def quotient(w: Writing, op: Op) -> None:
    names = [w.name(op.arg("x")), w.name(op.arg("y"))]
    floats = first(op).dtype.startswith("fp")
    if op.type == "mod" and not floats:
        w.node("Mod", names, op.output)
    elif op.type == "mod":
        whole = w.node("Floor", [w.node("Div", names)])
        w.node("Sub", [names[0], w.node("Mul", [whole, names[1]])], op.output)
    elif op.type == "floor_div":
        if not floats:
            raise refused(op, "ONNX divides integers toward zero")
        w.node("Floor", [w.node("Div", names)], op.output)
    else:
        w.node("Div", names, op.output)


@writes("square", "exp2", "rsqrt", "log", "inverse", "silu", "threshold", "clip", "relu6", "cast")
def formula(w: Writing, op: Op) -> None:
    x, dtype, kind = w.name(first(op)), first(op).dtype, op.type
    if kind == "square":
        w.node("Mul", [x, x], op.output)
    elif kind == "exp2":
        w.node("Pow", [w.number(2.0, dtype), x], op.output)
    elif kind == "silu":
        w.node("Mul", [x, w.node("Sigmoid", [x])], op.output)
    elif kind == "threshold":
        w.node("Max", [x, w.number(op.arg("alpha"), dtype)], op.output)
    elif kind == "cast":
        w.node("Cast", [x], op.output, to=w.type_of(op.output.dtype))
    elif kind in ("clip", "relu6"):
        low, high = (0.0, 6.0) if kind == "relu6" else (op.arg("alpha"), op.arg("beta"))
        w.node("Clip", [x, w.number(low, dtype), w.number(high, dtype)], op.output)
    else:
        epsilon = np.float16(op.arg("epsilon")) if dtype == "fp16" else np.float32(op.arg("epsilon"))
        shifted = w.node("Add", [x, w.number(float(epsilon), dtype)]) if epsilon else x
        if kind == "log":
            w.node("Log", [shifted], op.output)
        else:
            w.node("Reciprocal", [w.node("Sqrt", [shifted]) if kind == "rsqrt" else shifted], op.output)


@writes("leaky_relu", "elu", "sigmoid_hard", "thresholded_relu")
def parametric(w: Writing, op: Op) -> None:
    kinds = {
        "leaky_relu": "LeakyRelu",
        "elu": "Elu",
        "sigmoid_hard": "HardSigmoid",
        "thresholded_relu": "ThresholdedRelu",
    }
    more = {"beta": float(op.arg("beta"))} if op.type == "sigmoid_hard" else {}
    w.node(kinds[op.type], [w.name(first(op))], op.output, alpha=float(op.arg("alpha")), **more)


@writes("linear_activation", "scaled_tanh", "clamped_relu")
def lines(w: Writing, op: Op) -> None:
    x, dtype = w.name(first(op)), first(op).dtype
    alpha, beta = w.number(op.arg("alpha"), dtype), w.number(op.arg("beta"), dtype)
    if op.type == "linear_activation":
        w.node("Add", [w.node("Mul", [x, alpha]), beta], op.output)
    elif op.type == "scaled_tanh":
        w.node("Mul", [alpha, w.node("Tanh", [w.node("Mul", [x, beta])])], op.output)
    else:
        w.node("Min", [w.node("LeakyRelu", [x], alpha=float(op.arg("alpha"))), beta], op.output)


@writes("gelu")
def gelu(w: Writing, op: Op) -> None:
    mode, x = op.arg("mode"), w.name(first(op))
    if mode == "SIGMOID_APPROXIMATION":
        inner = w.node("Sigmoid", [w.node("Mul", [x, w.number(1.702, first(op).dtype)])])
        w.node("Mul", [x, inner], op.output)
    else:
        w.node("Gelu", [x], op.output, approximate="tanh" if mode == "TANH_APPROXIMATION" else "none")


@writes("prelu")
def prelu(w: Writing, op: Op) -> None:
    alpha = op.arg("alpha")
    shape = (*alpha.shape, *(1,) * (first(op).rank - 2))
    slope = w.node("Reshape", [w.cast(alpha, first(op).dtype), w.integers(shape)])
    w.node("PRelu", [w.name(first(op)), slope], op.output)


@writes("select")
def select(w: Writing, op: Op) -> None:
    w.node("Where", [w.name(op.arg(name)) for name in ("cond", "a", "b")], op.output)


@writes("reshape", "squeeze", "expand_dims", "flatten2d")
def reshape(w: Writing, op: Op) -> None:
    w.node(
        "Reshape",
        [w.name(first(op)), w.integers(op.output.shape)],
        op.output,
        allowzero=1 if 0 in op.output.shape else None,
    )


@writes("transpose")
def transpose(w: Writing, op: Op) -> None:
    rank = first(op).rank
    w.node("Transpose", [w.name(first(op))], op.output, perm=[int(axis) % rank for axis in op.arg("perm")])


@writes("concat", "stack")
def join(w: Writing, op: Op) -> None:
    values = op.inputs["values"]
    names = [w.name(value) for value in (values if isinstance(values, tuple) else (values,))]
    axis = int(op.arg("axis")) % op.output.rank
    if op.type == "stack" or not values[0].rank:  # a concat of scalars is a vector, too
        names = [w.node("Unsqueeze", [name, w.integers([axis])]) for name in names]
    elif op.arg("interleave"):
        shape = list(op.output.shape)
        names = [w.node("Unsqueeze", [name, w.integers([axis + 1])]) for name in names]
        w.node("Reshape", [w.node("Concat", names, axis=axis + 1), w.integers(shape)], op.output)
        return
    w.node("Concat", names, op.output, axis=axis)


@writes("split")
def split(w: Writing, op: Op) -> None:
    axis = int(op.arg("axis")) % first(op).rank
    sizes = w.integers([value.shape[axis] for value in op.outputs])
    w.node("Split", [w.name(first(op)), sizes], [w.name(value) for value in op.outputs], axis=axis)


@writes("slice_by_index")
def slice_by_index(w: Writing, op: Op) -> None:
    names = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
    if not all(op.inputs[name].is_constant for name in ("begin", "end")):
        raise refused(op, "its bounds are computed")
    shape = first(op).shape
    index = slices_of(shape, **{name: op.arg(name) for name in names})
    starts, ends, steps = [], [], []
    for extent, part in zip(shape, index):
        part_slice = part if isinstance(part, slice) else slice(part % extent, part % extent + 1, 1)
        start, stop, step = part_slice.indices(extent)
        if (stop - start) * step <= 0:  # nothing is left; ONNX lets an end below 0 count from the extent's end
            start = stop = 0
        starts.append(start)
        ends.append(stop if stop >= 0 else -extent - 1)
        steps.append(step)
    axes = w.integers(range(len(shape)))
    if 0 in op.output.shape:
        w.node("Identity", [w.constant(np.zeros(op.output.shape), op.output.dtype)], op.output)
        return
    cut = [w.name(first(op)), w.integers(starts), w.integers(ends), axes, w.integers(steps)]
    w.node("Reshape", [w.node("Slice", cut), w.integers(op.output.shape)], op.output)


@writes("slice_by_size")
def slice_by_size(w: Writing, op: Op) -> None:
    if not op.inputs["begin"].is_constant:
        raise refused(op, "its bounds are computed")
    shape = first(op).shape
    starts = [begin % extent if extent else 0 for begin, extent in zip(op.arg("begin"), shape)]
    ends = [start + count for start, count in zip(starts, op.output.shape)]
    w.node("Slice", [w.name(first(op)), w.integers(starts), w.integers(ends), w.integers(range(len(shape)))], op.output)


@writes("tile")
def tile(w: Writing, op: Op) -> None:
    w.node("Tile", [w.name(first(op)), w.integers(op.arg("reps"))], op.output)


@writes("pad")
def pad(w: Writing, op: Op) -> None:
    modes = {"constant": "constant", "reflect": "reflect", "reflection": "reflect", "replicate": "edge"}
    if op.arg("mode") not in modes:
        raise refused(op, f"the mode {op.arg('mode')}")
    widths = pad_widths(first(op).rank, op.arg("pad"))
    flat = w.integers([before for before, _ in widths] + [after for _, after in widths])
    extra = [w.number(op.arg("constant_val"), first(op).dtype)] if op.arg("mode") == "constant" else []
    w.node("Pad", [w.name(first(op)), flat, *extra], op.output, mode=modes[op.arg("mode")])


@writes("gather", "gather_along_axis")
def gather(w: Writing, op: Op) -> None:
    if op.inputs.get("batch_dims") is not None and op.arg("batch_dims"):
        raise refused(op, "batch_dims")
    kind = "Gather" if op.type == "gather" else "GatherElements"
    axis = int(op.arg("axis")) % max(first(op).rank, 1)
    indices = w.node("Cast", [w.name(op.arg("indices"))], to=w.type_of("int64"))
    w.node(kind, [w.name(first(op)), indices], op.output, axis=axis)


@writes("gather_nd")
def gather_nd(w: Writing, op: Op) -> None:
    if not op.arg("indices").shape[-1]:
        raise refused(op, "index vectors of no element")
    batch = {} if op.inputs.get("batch_dims") is None else {"batch_dims": int(op.arg("batch_dims"))}
    indices = w.node("Cast", [w.name(op.arg("indices"))], to=w.type_of("int64"))
    w.node("GatherND", [w.name(first(op)), indices], op.output, **batch)


@writes("cumsum")
def cumsum(w: Writing, op: Op) -> None:
    axis = w.constant(np.asarray(int(op.arg("axis")), np.int64), "int64", "axis")
    more = {"exclusive": int(op.arg("exclusive")), "reverse": int(op.arg("reverse"))}
    w.node("CumSum", [w.name(first(op)), axis], op.output, **more)


_REDUCTIONS = {f"reduce_{kind}": node for node, kind in REDUCTIONS.items()}


@writes(*_REDUCTIONS)
def reduce(w: Writing, op: Op) -> None:
    rank = first(op).rank
    axes = op.arg("axes")
    reduced = sorted(int(axis) % rank for axis in (range(rank) if axes is None else axes))
    keep, source = int(op.arg("keep_dims")), w.name(first(op))
    if not reduced:  # element by element; ONNX takes no axes for all of them
        source, reduced, keep = w.node("Unsqueeze", [source, w.integers([0])]), [0], 0
    w.node(_REDUCTIONS[op.type], [source, w.integers(reduced)], op.output, keepdims=keep)


@writes("reduce_argmax", "reduce_argmin")
def index_of(w: Writing, op: Op) -> None:
    kind = "ArgMax" if op.type == "reduce_argmax" else "ArgMin"
    axis, keep = int(op.arg("axis")) % first(op).rank, int(op.arg("keep_dims"))
    index = w.node(kind, [w.name(first(op))], axis=axis, keepdims=keep)
    w.node("Cast", [index], op.output, to=w.type_of(op.output.dtype))


@writes("topk")
def topk(w: Writing, op: Op) -> None:
    if len(op.outputs) != 2 or not op.inputs["k"].is_constant if "k" in op.inputs else len(op.outputs) != 2:
        raise refused(op, "its count is computed")
    axis = int(op.arg("axis")) % first(op).rank
    count = op.outputs[0].shape[axis]
    index = w.unique("topk_index")
    names = [w.name(op.outputs[0]), index]
    more = {"largest": 0 if op.arg("ascending") else 1, "sorted": 1}
    w.node("TopK", [w.name(first(op)), w.integers([count])], names, axis=axis, **more)
    w.node("Cast", [index], op.outputs[1], to=w.type_of(op.outputs[1].dtype))


@writes("fill")
def fill(w: Writing, op: Op) -> None:
    if prod(op.output.shape) > 1 << 24 or not all(value.is_constant for value in op.operands()):
        raise refused(op, "its shape or value is computed")
    value = op.inputs.get("value")
    data = np.zeros((), np.float32) if value is None else np.asarray(value.data)
    array = np.broadcast_to(data.reshape(()), op.output.shape).astype(tensor_of(op.output.type).carrier)
    w.node("Identity", [w.constant(array, op.output.dtype)], op.output)


@writes("einsum")
def einsum(w: Writing, op: Op) -> None:
    values = op.inputs["values"]
    names = [w.name(value) for value in (values if isinstance(values, tuple) else (values,))]
    w.node("Einsum", names, op.output, equation=op.arg("equation"))
