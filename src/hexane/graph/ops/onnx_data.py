"""Host ops on numbers and bits that MIL lacks: shifts, bitwise logic, determinants, selections, pooling variants."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import axis_of, fits, per_axis, positive
from hexane.graph.registry import op
from hexane.graph.types import DTYPES, TensorType, eval_dtype
from hexane.rounding import ceil_div


def _broadcast(x: TensorType, y: TensorType) -> TensorType:
    try:
        return x.with_shape(np.broadcast_shapes(x.shape, y.shape))
    except ValueError as error:
        raise GraphError(f"shapes {x.shape} and {y.shape} do not broadcast") from error


def _as_bool(x: TensorType) -> TensorType:
    return x.with_dtype("bool")


@op("onnx.BitShift", "x:I y:I direction:str", infer=_broadcast, direction=("LEFT", "RIGHT"))
def bit_shift(x, y, direction):
    """``x`` shifted by ``y`` bits. By the width or more: 0, or all sign bits for a signed x shifted right."""
    bits = x.dtype.itemsize * 8
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    shifted = shift(x, np.minimum(y, bits - 1).astype(x.dtype))
    if direction == "RIGHT" and x.dtype.kind == "i":
        return shifted
    return np.where(y < bits, shifted, np.zeros((), x.dtype))


@op("onnx.BitwiseAnd", "x:I y:I", infer=_broadcast)
def bitwise_and(x, y):
    return x & y


@op("onnx.BitwiseOr", "x:I y:I", infer=_broadcast)
def bitwise_or(x, y):
    return x | y


@op("onnx.BitwiseXor", "x:I y:I", infer=_broadcast)
def bitwise_xor(x, y):
    return x ^ y


@op("onnx.BitwiseNot", "x:I")
def bitwise_not(x):
    return ~x


def _bitcast_type(x: TensorType, dtype: str) -> TensorType:
    if DTYPES[dtype].bits != DTYPES[x.dtype].bits:
        raise GraphError(f"onnx.BitCast keeps the width: {x.dtype} cannot be read as {dtype}")
    return x.with_dtype(dtype)


@op("onnx.BitCast", "x:A source:str dtype:str", infer=_bitcast_type, source=DTYPES, dtype=DTYPES)
def bit_cast(x, source, dtype):
    """The same bits read as another type. ``source`` is x's dtype, which the reference carries wider for fp16."""
    raw = np.ascontiguousarray(x.astype(DTYPES[source].carrier))
    return raw.view(DTYPES[dtype].carrier).astype(eval_dtype(dtype)).reshape(x.shape)


@op("onnx.IsNaN", "x:T", infer=_as_bool)
def is_nan(x):
    return np.isnan(x)


@op("onnx.IsInf", "x:T detect_positive:bool=True detect_negative:bool=True", infer=_as_bool)
def is_inf(x, detect_positive, detect_negative):
    return np.isinf(x) & (((x > 0) & detect_positive) | ((x < 0) & detect_negative))


@op("onnx.Mod", "x:N y:N fmod:bool=False", infer=_broadcast)
def mod(x, y, fmod):
    """Remainder with the sign of the divisor, or of the dividend with ``fmod``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.fmod if fmod else np.mod)(x, y)


@op("onnx.Pow", "x:N y:M", infer=_broadcast)
def power(x, y):
    """``x ** y`` in the type of x, whatever the exponent's type (ONNX Pow)."""
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iu" and y.dtype.kind == "f":
            return np.power(x.astype(np.float64), y).astype(x.dtype)
        if x.dtype.kind in "iu":
            whole = np.power(x, np.maximum(y, 0).astype(x.dtype))
            return (
                whole
                if not (y < 0).any()
                else np.where(y < 0, np.power(x.astype(np.float64), y).astype(x.dtype), whole)
            )
        return np.power(x, y.astype(x.dtype)).astype(x.dtype)


def _det_type(x: TensorType) -> TensorType:
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise GraphError(f"onnx.Det takes square matrices, not {x.shape}")
    return x.with_shape(x.shape[:-2])


@op("onnx.Det", "x:T", infer=_det_type)
def det(x):
    return np.linalg.det(x).astype(x.dtype)


@op("onnx.CumProd", "x:N axis:int=0 exclusive:bool=False reverse:bool=False")
def cumprod(x, axis, exclusive, reverse):
    """Running product along an axis; ``exclusive`` starts from 1 and leaves out the element itself."""
    y = np.flip(x, axis) if reverse else x
    y = np.cumprod(y, axis=axis, dtype=x.dtype)
    if exclusive:
        first = np.ones_like(np.take(y, [0], axis=axis))
        y = np.concatenate([first, np.take(y, range(y.shape[axis] - 1), axis=axis)], axis=axis)
    return np.flip(y, axis) if reverse else y


@op("onnx.Hardmax", "x:T axis:int=-1")
def hardmax(x, axis):
    """1 at the first maximum along an axis, 0 elsewhere."""
    y = np.zeros_like(x)
    np.put_along_axis(y, np.expand_dims(np.argmax(x, axis=axis), axis), 1, axis)
    return y


def _compress_type(x: TensorType, axis: int | None) -> TensorType:
    if axis is None:
        return x.with_shape((None,))
    axis = axis_of(axis, x.rank)
    return x.with_shape((*x.shape[:axis], None, *x.shape[axis + 1 :]))


@op("onnx.Compress", "x:A condition:B axis:int?", infer=_compress_type)
def compress(x, condition, axis):
    """Keep the slices (or the elements) at which ``condition`` holds; the extent depends on data."""
    return np.compress(condition, x, axis=axis)


def _unique_type(x: TensorType, axis: int | None) -> tuple[TensorType, ...]:
    index = TensorType("int64", (None,))  # type: ignore[arg-type]
    if axis is None:
        return x.with_shape((None,)), index, TensorType("int64", (x.count,)), index
    axis = axis_of(axis, x.rank)
    return (
        x.with_shape((*x.shape[:axis], None, *x.shape[axis + 1 :])),
        index,
        TensorType("int64", (x.shape[axis],)),
        index,
    )


@op("onnx.Unique", "x:A axis:int? sorted:bool=True", infer=_unique_type)
def unique(x, axis, sorted):
    """Distinct elements or slices, where each first occurs, what each input maps to, and how often each occurs."""
    y, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        y, first, inverse, counts = (
            np.take(y, order, axis=0 if axis is None else axis),
            first[order],
            rank[inverse],
            counts[order],
        )
    return (y, *(a.astype(np.int64) for a in (first, inverse, counts)))


def _nms_type(boxes: TensorType, scores: TensorType) -> TensorType:
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape[2] != 4 or boxes.shape[1] != scores.shape[2]:
        raise GraphError(f"onnx.NonMaxSuppression: boxes {boxes.shape} do not fit scores {scores.shape}")
    return TensorType("int64", (None, 3))  # type: ignore[arg-type]


@op(
    "onnx.NonMaxSuppression",
    "boxes:T scores:T max_output_boxes_per_class:ints~=(0,) iou_threshold:floats~=(0.0,) score_threshold:floats~? "
    "center_point_box:bool=False",
    infer=_nms_type,
)  # fmt: skip
def non_max_suppression(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, center_point_box):
    """Per batch and class, greedily the best boxes that overlap no better one: rows (batch, class, box)."""
    limit, threshold = int(max_output_boxes_per_class[0]), float(iou_threshold[0])
    selection = []
    for batch in range(boxes.shape[0]):
        box = boxes[batch].astype(np.float64)
        if center_point_box:
            half = box[:, 2:] / 2
            low, high = box[:, 1::-1] - half[:, ::-1], box[:, 1::-1] + half[:, ::-1]
        else:
            low, high = np.minimum(box[:, :2], box[:, 2:]), np.maximum(box[:, :2], box[:, 2:])
        area = np.prod(high - low, axis=1)
        for label in range(scores.shape[1]):
            score = scores[batch, label]
            order = np.argsort(-score, kind="stable")
            if score_threshold:
                order = order[score[order] > score_threshold[0]]
            count_kept = 0
            while len(order) and count_kept < limit:
                best, order = order[0], order[1:]
                selection.append((batch, label, int(best)))
                count_kept += 1
                overlap = np.prod(
                    np.maximum(np.minimum(high[best], high[order]) - np.maximum(low[best], low[order]), 0), axis=1
                )
                union = area[best] + area[order] - overlap
                iou = np.divide(
                    overlap, union, out=np.zeros_like(overlap), where=(union > 0) & (area[best] > 0) & (area[order] > 0)
                )
                order = order[iou <= threshold]
    return np.array(selection, np.int64).reshape(-1, 3)


def _lp_pool_type(
    x: TensorType, kernel_sizes: Any, strides: Any, pad: Any, dilations: Any, ceil_mode: bool
) -> TensorType:
    spatial = max(x.rank - 2, 0)
    for values, what in ((kernel_sizes, "kernel_sizes"), (strides, "strides"), (dilations, "dilations")):
        per_axis(values, spatial, 1, what)
        positive(values, what)
    per_axis(pad, 2 * spatial, 0, "pad")
    out = []
    for i, extent in enumerate(x.shape[2:]):
        room = extent + pad[2 * i] + pad[2 * i + 1] - dilations[i] * (kernel_sizes[i] - 1) - 1
        steps = ceil_div(room, strides[i]) if ceil_mode else room // strides[i]
        if ceil_mode and steps * strides[i] >= extent + pad[2 * i]:
            steps -= 1
        out.append(steps + 1)
    return x.with_shape((*x.shape[:2], *out))


def _windows(x: np.ndarray, fill: Any, kernel: Any, strides: Any, pad: Any, dilations: Any, out: Any) -> np.ndarray:
    """View ``[N, C, *out, *kernel]`` of the padded input; ``fill`` stands outside."""
    spatial = len(kernel)
    pads = [(0, 0), (0, 0)]
    for i in range(spatial):
        need = (out[i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1
        pads.append((pad[2 * i], max(need - x.shape[2 + i] - pad[2 * i], 0)))
    padded = np.pad(x, pads, constant_values=fill)
    reach = tuple(dilations[i] * (kernel[i] - 1) + 1 for i in range(spatial))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + spatial)))
    pick = tuple(slice(0, (out[i] - 1) * strides[i] + 1, strides[i]) for i in range(spatial))
    taps = tuple(slice(None, None, d) for d in dilations)
    return view[(slice(None), slice(None), *pick, *taps)]


_POOL = "x:{} kernel_sizes:ints strides:ints pad:ints dilations:ints ceil_mode:bool=False"


@op("onnx.LpPool", _POOL.format("T") + " p:int=2", infer=_lp_pool_type)
def lp_pool(x, kernel_sizes, strides, pad, dilations, ceil_mode, p):
    """``(sum |x|^p)^(1/p)`` over each window."""
    out = _lp_pool_type(TensorType("fp32", x.shape), kernel_sizes, strides, pad, dilations, ceil_mode).shape[2:]
    windows = _windows(np.abs(x), 0, kernel_sizes, strides, pad, dilations, out)
    total = np.sum(windows.astype(np.float64) ** p, axis=tuple(range(-len(kernel_sizes), 0)))
    return (total ** (1 / p)).astype(x.dtype)


def _max_pool_type(x: TensorType, **p: Any) -> tuple[TensorType, TensorType]:
    p.pop("column_major", None)
    y = _lp_pool_type(x, **p)
    return y, y.with_dtype("int64")


@op("onnx.MaxPool", _POOL.format("N") + " column_major:bool=False", infer=_max_pool_type)
def max_pool_indices(x, kernel_sizes, strides, pad, dilations, ceil_mode, column_major):
    """Max pooling with dilations that also gives each maximum's flat index in the input."""
    n, c, *extents = x.shape
    out = _lp_pool_type(TensorType("fp32", x.shape), kernel_sizes, strides, pad, dilations, ceil_mode).shape[2:]
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    values = _windows(x, low, kernel_sizes, strides, pad, dilations, out)
    order = "F" if column_major else "C"
    flat = np.arange(int(np.prod(extents))).reshape(extents, order=order)
    index = _windows(flat[None, None], -1, kernel_sizes, strides, pad, dilations, out)
    shape = (n, c, *out, -1)
    values = values.reshape(shape)
    index = np.broadcast_to(index.reshape(1, 1, *out, -1), values.shape)
    at = np.argmax(np.where(index >= 0, values, low), axis=-1)[..., None]
    plane = np.arange(n * c).reshape(n, c, *(1,) * len(out)) * flat.size
    best = np.take_along_axis(index, at, axis=-1)[..., 0] + plane
    return np.take_along_axis(values, at, axis=-1)[..., 0].astype(x.dtype), best.astype(np.int64)


def _tensor_scatter_type(past, update, write_indices, axis):
    at = axis_of(axis, past.rank)
    fits(update, (*past.shape[:at], None, *past.shape[at + 1 :]), "update")
    fits(write_indices, past.shape[:1], "write_indices")
    return past


@op(
    "onnx.TensorScatter",
    "past:A update:A write_indices:I? axis:int=-2 mode:str='linear'",
    mode=("linear", "circular"),
    infer=_tensor_scatter_type,
)
def tensor_scatter(past, update, write_indices, axis, mode):
    """Write ``update`` into a cache along ``axis``, from a start of its own per batch row; ``circular`` wraps round."""
    axis %= past.ndim
    length, extent = update.shape[axis], past.shape[axis]
    start = np.zeros(past.shape[0], np.int64) if write_indices is None else np.asarray(write_indices, np.int64)
    at = start[:, None] + np.arange(length)
    if mode == "circular":
        at %= extent
    elif at.size and (at.min() < 0 or at.max() >= extent):
        raise GraphError(f"onnx.TensorScatter writes at {int(at.max())} of an axis of {extent}")
    y = np.moveaxis(past, axis, 1).copy()
    y[np.arange(past.shape[0])[:, None], at] = np.moveaxis(update, axis, 1)
    return np.moveaxis(y, 1, axis)


@op(
    "onnx.AveragePool",
    _POOL.format("T") + " count_include_pad:bool=False",
    infer=lambda count_include_pad, **p: _lp_pool_type(**p),
)
def average_pool(x, kernel_sizes, strides, pad, dilations, ceil_mode, count_include_pad):
    """Averages with dilations or in ceiling mode; ``count_include_pad`` counts declared pads, not what ceiling adds."""
    out = _lp_pool_type(TensorType("fp32", x.shape), kernel_sizes, strides, pad, dilations, ceil_mode).shape[2:]
    axes = tuple(range(-len(kernel_sizes), 0))
    total = np.sum(_windows(x.astype(np.float64), 0, kernel_sizes, strides, pad, dilations, out), axis=axes)
    ones = np.ones((1, 1, *x.shape[2:]))
    if count_include_pad:
        ones = np.pad(
            ones, [(0, 0), (0, 0), *((pad[2 * i], pad[2 * i + 1]) for i in range(len(kernel_sizes)))], constant_values=1
        )
        pad = [0] * len(pad)
    count = np.sum(_windows(ones, 0, kernel_sizes, strides, pad, dilations, out), axis=axes)
    return (total / count).astype(x.dtype)


@op("onnx.Acosh", "x:T")
def acosh(x):
    return np.arccosh(x)


@op("onnx.Asinh", "x:T")
def asinh(x):
    return np.arcsinh(x)
