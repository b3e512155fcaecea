"""Convolutions, products, pools, norms and samplings as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.formats.onnx.write_elements import first
from hexane.formats.onnx.writing import Writing, refused, writes
from hexane.graph import Op, Value
from hexane.graph.ops.conv import geometry_of, transpose_geometry_of
from hexane.graph.ops.pooling import pool_geometry_of


def _flat(pads: list[tuple[int, int]]) -> list[int]:
    return [before for before, _ in pads] + [after for _, after in pads]


@writes("conv")
def conv(w: Writing, op: Op) -> None:
    x, weight, bias = first(op), op.arg("weight"), op.arg("bias")
    strides, dilations, pads, _ = geometry_of(op)
    source = w.name(x)
    if min(min(pair) for pair in pads) < 0:
        cut = w.integers([0, 0, *(min(b, 0) for b, _ in pads), 0, 0, *(min(a, 0) for _, a in pads)])
        source = w.node("Pad", [source, cut])
        pads = [(max(before, 0), max(after, 0)) for before, after in pads]
    names = [source, w.name(weight), *([] if bias is None else [w.name(bias)])]
    w.node(
        "Conv", names, op.output, kernel_shape=list(weight.shape[2:]), strides=list(strides),
        dilations=list(dilations), pads=_flat(pads), group=int(op.arg("groups")),
    )  # fmt: skip


@writes("conv_transpose")
def conv_transpose(w: Writing, op: Op) -> None:
    x, weight, bias = first(op), op.arg("weight"), op.arg("bias")
    strides, dilations, cuts, out = transpose_geometry_of(op)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(x.shape[2:], weight.shape[2:], strides, dilations)]
    after = [size - cut - extent for size, cut, extent in zip(full, cuts, out)]
    if min(cuts) < 0 or min(after) < 0:
        raise refused(op, "its result reaches beyond what the kernel writes")
    names = [w.name(x), w.name(weight), *([] if bias is None else [w.name(bias)])]
    w.node(
        "ConvTranspose", names, op.output, kernel_shape=list(weight.shape[2:]), strides=list(strides),
        dilations=list(dilations), pads=[*cuts, *after], group=int(op.arg("groups")),
    )  # fmt: skip


@writes("linear")
def linear(w: Writing, op: Op) -> None:
    """x times the weight's transpose, plus bias."""
    x, weight, bias = first(op), op.arg("weight"), op.arg("bias")
    if x.rank == 2:
        names = [w.name(x), w.name(weight), *([] if bias is None else [w.name(bias)])]
        w.node("Gemm", names, op.output, transB=1)
        return
    transposed = w.node("Transpose", [w.name(weight)], perm=[1, 0])
    if bias is None:
        w.node("MatMul", [w.name(x), transposed], op.output)
    else:
        w.node("Add", [w.node("MatMul", [w.name(x), transposed]), w.name(bias)], op.output)


def _turned(w: Writing, value: Value, turn: bool) -> str:
    if not turn or value.rank < 2:
        return w.name(value)
    axes = list(range(value.rank))
    return w.node("Transpose", [w.name(value)], perm=[*axes[:-2], axes[-1], axes[-2]])


@writes("matmul")
def matmul(w: Writing, op: Op) -> None:
    x, y = op.arg("x"), op.arg("y")
    names = [_turned(w, x, bool(op.arg("transpose_x"))), _turned(w, y, bool(op.arg("transpose_y")))]
    w.node("MatMul", names, op.output)


@writes("scaled_dot_product_attention")
def attention(w: Writing, op: Op) -> None:
    query, key, value = (op.arg(name) for name in ("query", "key", "value"))
    scale = w.number(1 / np.sqrt(query.shape[-1]), query.dtype)
    scores = w.node("Mul", [w.node("MatMul", [w.name(query), _turned(w, key, True)]), scale])
    mask = op.arg("attn_mask")
    if mask is not None:
        if mask.dtype == "bool":
            raise refused(op, "a mask of truth values")
        scores = w.node("Add", [scores, w.name(mask)])
    w.node("MatMul", [w.node("Softmax", [scores], axis=-1), w.name(value)], op.output)


@writes("softmax")
def softmax(w: Writing, op: Op) -> None:
    w.node("Softmax", [w.name(first(op))], op.output, axis=int(op.arg("axis")))


@writes("max_pool", "avg_pool")
def pool(w: Writing, op: Op) -> None:
    strides, pads, reach, _ = pool_geometry_of(op)
    more: dict[str, Any] = {}
    if op.type == "avg_pool":
        counted = not op.arg("exclude_padding_from_average")
        if counted and reach != pads:
            raise refused(op, "an average in ceiling mode that counts its padding")
        more["count_include_pad"] = int(counted)
    kind = "MaxPool" if op.type == "max_pool" else "AveragePool"
    more |= {"kernel_shape": list(op.arg("kernel_sizes")), "strides": list(strides), "pads": _flat(reach)}
    w.node(kind, [w.name(first(op))], op.output, **more)


def _or(w: Writing, value: Value | None, fill: float, count: int, dtype: str) -> str:
    carrier = np.float16 if dtype == "fp16" else np.float32
    return w.constant(np.full(count, fill, carrier), dtype, "row") if value is None else w.name(value)


@writes("batch_norm", "instance_norm")
def batch_norm(w: Writing, op: Op) -> None:
    x = first(op)
    count = x.shape[1]
    names = [w.name(x), _or(w, op.arg("gamma"), 1.0, count, x.dtype), _or(w, op.arg("beta"), 0.0, count, x.dtype)]
    if op.type == "batch_norm":
        names += [w.name(op.arg("mean")), w.name(op.arg("variance"))]
    kind = "BatchNormalization" if op.type == "batch_norm" else "InstanceNormalization"
    w.node(kind, names, op.output, epsilon=float(op.arg("epsilon")))


@writes("layer_norm")
def layer_norm(w: Writing, op: Op) -> None:
    x, gamma, beta = first(op), op.arg("gamma"), op.arg("beta")
    axes = [int(axis) % x.rank for axis in (range(x.rank) if op.arg("axes") is None else op.arg("axes"))]
    if not axes:
        raise refused(op, "it has no axes")
    if axes == list(range(x.rank - len(axes), x.rank)):
        shape = x.shape[axes[0] :]
        carrier = np.float16 if x.dtype == "fp16" else np.float32
        scale = w.constant(np.ones(shape, carrier), x.dtype, "ones") if gamma is None else w.cast(gamma, x.dtype)
        names = [w.name(x), scale, *([] if beta is None else [w.cast(beta, x.dtype)])]
        w.node("LayerNormalization", names, op.output, axis=axes[0], epsilon=float(op.arg("epsilon")))
        return
    if axes != sorted(axes):
        raise refused(op, "axes out of order")
    where = w.integers(axes)
    centred = w.node("Sub", [w.name(x), w.node("ReduceMean", [w.name(x), where], keepdims=1)])
    variance = w.node("ReduceMean", [w.node("Mul", [centred, centred]), where], keepdims=1)
    root = w.node("Sqrt", [w.node("Add", [variance, w.number(op.arg("epsilon"), x.dtype)])])
    spread = [x.shape[axis] if axis in axes else 1 for axis in range(x.rank)]
    result = w.node("Div", [centred, root], op.output if gamma is None and beta is None else None)
    if gamma is not None:
        factor = w.node("Reshape", [w.cast(gamma, x.dtype), w.integers(spread)])
        result = w.node("Mul", [result, factor], op.output if beta is None else None)
    if beta is not None:
        w.node("Add", [result, w.node("Reshape", [w.cast(beta, x.dtype), w.integers(spread)])], op.output)


@writes("l2_norm")
def l2_norm(w: Writing, op: Op) -> None:
    x = first(op)
    total = w.node("ReduceSumSquare", [w.name(x), w.integers([x.rank - 3, x.rank - 2, x.rank - 1])], keepdims=1)
    root = w.node("Sqrt", [w.node("Add", [total, w.number(op.arg("epsilon"), x.dtype)])])
    w.node("Div", [w.name(x), root], op.output)


@writes("local_response_norm")
def local_response_norm(w: Writing, op: Op) -> None:
    if op.arg("size") % 2 == 0:
        raise refused(op, "its window is even")
    more = {name if name != "k" else "bias": float(op.arg(name)) for name in ("alpha", "beta", "k")}
    w.node("LRN", [w.name(first(op))], op.output, size=int(op.arg("size")), **more)


@writes("upsample_nearest_neighbor", "resize_nearest_neighbor")
def nearest(w: Writing, op: Op) -> None:
    _resized(w, op, mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")


@writes("upsample_bilinear", "resize_bilinear")
def bilinear(w: Writing, op: Op) -> None:
    if op.type == "upsample_bilinear":
        how = "align_corners" if op.arg("align_corners") else "half_pixel"
        if op.inputs.get("half_pixel_centers") is not None and not op.arg("half_pixel_centers"):
            how = how if op.arg("align_corners") else "asymmetric"
        if how == "align_corners" and 1 in op.output.shape[-2:]:
            raise refused(op, "aligned corners of one element")
    else:
        modes = {"DEFAULT": "asymmetric", "UNALIGN_CORNERS": "half_pixel", "STRICT_ALIGN_CORNERS": "align_corners"}
        if op.arg("sampling_mode") not in modes:
            raise refused(op, f"the sampling mode {op.arg('sampling_mode')}")
        how = modes[op.arg("sampling_mode")]
    _resized(w, op, mode="linear", coordinate_transformation_mode=how)


def _resized(w: Writing, op: Op, **how: str) -> None:
    if first(op).rank != 4:
        raise refused(op, f"a map of rank {first(op).rank}")
    w.node("Resize", [w.name(first(op)), "", "", w.integers(op.output.shape)], op.output, **how)


@writes("pixel_shuffle", "depth_to_space", "space_to_depth")
def shuffle(w: Writing, op: Op) -> None:
    if op.type == "pixel_shuffle":
        w.node("DepthToSpace", [w.name(first(op))], op.output, blocksize=int(op.arg("upscale_factor")), mode="CRD")
    elif op.type == "depth_to_space":
        w.node("DepthToSpace", [w.name(first(op))], op.output, blocksize=int(op.arg("block_size")), mode="DCR")
    else:
        w.node("SpaceToDepth", [w.name(first(op))], op.output, blocksize=int(op.arg("block_size")))
