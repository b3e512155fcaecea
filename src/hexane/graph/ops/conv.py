"""Convolution and transposed convolution in one to three dimensions (docs/reference/mil.md 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import joined, per_channel, summed_product, tap
from hexane.graph.ops._rules import channel_vector, padded, per_axis, positive, rank_between
from hexane.graph.registry import op
from hexane.graph.traits import CONVOLVES, PRODUCTS
from hexane.graph.types import TensorType
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation
    from hexane.graph.ir import Op

Geometry = tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]], tuple[int, ...]]
"""Strides, dilations, pads and output extents of each spatial axis."""

NO_WINDOW = {"strides": None, "pad_type": "valid", "pad": None, "dilations": None}
"""What a ``conv`` without these parameters has."""
PAD_TYPES = ("valid", "same", "same_lower", "custom")
_SCRATCH_BYTES = 32 << 20
_CACHE_BYTES = 256 << 10
_ROW_LIMIT_BYTES = 4 << 30


def window_pads(
    pad_type: str,
    pad: Sequence[int] | None,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    """Padding (before, after) of each spatial axis.

    ``same`` gives ceil(extent / stride) results with the odd surplus after, ``same_lower`` before
    (docs/reference/mil.md 5.3).
    """
    rank = len(extents)
    if pad_type == "valid":
        return [(0, 0)] * rank
    if pad_type == "custom":
        flat = per_axis(pad, 2 * rank, 0, "pad")
        return [(flat[2 * i], flat[2 * i + 1]) for i in range(rank)]
    pads = []
    for extent, k, stride, dilation in zip(extents, kernel, strides, dilations):
        total = max((ceil_div(extent, stride) - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        pads.append((small, large) if pad_type == "same" else (large, small))
    return pads


def conv_geometry(
    x: Sequence[int],
    weight: Sequence[int],
    strides: Sequence[int] | None,
    pad_type: str,
    pad: Sequence[int] | None,
    dilations: Sequence[int] | None,
) -> Geometry:
    """Strides, dilations, pads and output extents for shapes ``x`` [N, C, *D] and ``weight`` [O, I, *K]."""
    rank = len(x) - 2
    steps = per_axis(strides, rank, 1, "strides")
    spread = per_axis(dilations, rank, 1, "dilations")
    positive(steps, "strides")
    positive(spread, "dilations")
    pads = window_pads(pad_type, pad, x[2:], weight[2:], steps, spread)
    out = []
    for extent, k, stride, dilation, (before, after) in zip(x[2:], weight[2:], steps, spread, pads):
        room = extent + before + after - (k - 1) * dilation - 1
        if room < 0 or k < 1:
            raise GraphError(f"a window of {(k - 1) * dilation + 1} does not fit into {extent + before + after}")
        out.append(room // stride + 1)
    return steps, spread, pads, tuple(out)


def geometry_of(op: Op) -> Geometry:
    """``conv_geometry`` of a ``conv``, by its arguments; remembered, since every pass that meets the op asks."""
    x, weight = op.inputs["x"].shape, op.inputs["weight"].shape
    parameters = NO_WINDOW.values() if NO_WINDOW.keys().isdisjoint(op.inputs) else map(op.arg, NO_WINDOW)
    strides, dilations, pads, out = _remembered(x, weight, *parameters)
    return strides, dilations, list(pads), out


_remembered = lru_cache(maxsize=2048)(conv_geometry)


def conv_type(x: TensorType, weight: TensorType, bias: TensorType | None, groups: int, **window: Any) -> TensorType:
    rank_between(x, 3, 5)
    rank_between(weight, x.rank, x.rank, "weight")
    cout, cin = weight.shape[:2]
    if groups < 1 or x.shape[1] != cin * groups or cout % groups:
        raise GraphError(
            f"{x.shape[1]} channels, a weight of shape {weight.shape} and {groups} groups do not go together"
        )
    channel_vector(bias, cout, "bias")
    out = conv_geometry(x.shape, weight.shape, **window)[3]
    return TensorType(x.dtype, (x.shape[0], cout, *out))


_CONV = "x:T weight:U bias:U? strides:ints? pad_type:str='valid' pad:ints? dilations:ints? groups:int=1"


def image_gradient(grad: Formula, weight: Formula, extents: Sequence[int], geometry: Geometry, groups: int) -> Formula:
    """Gradient of a convolution's image [N, C, *extents]: the transposed convolution.

    Of an image that pads cropped, what was taken away gets zeros.
    """
    steps, spread, pads, _ = geometry
    inside = [n + min(before, 0) + min(after, 0) for n, (before, after) in zip(extents, pads)]
    cuts = []
    for n, m, k, stride, dilation, (before, _) in zip(inside, grad.shape[2:], weight.shape[2:], steps, spread, pads):
        lead = max(before, 0)
        cuts += [lead, (m - 1) * stride + (k - 1) * dilation + 1 - lead - n]
    image = grad.conv_transpose(
        weight=weight, strides=steps, dilations=spread, groups=groups, pad_type="custom", pad=cuts
    )
    return image.padded([(0, 0), (0, 0), *((max(-before, 0), max(-after, 0)) for before, after in pads)])


def kernel_gradient(image: Formula, grad: Formula, kernel: Sequence[int], geometry: Geometry, groups: int) -> Formula:
    """The sums over image [N, C, *D] and grad [N, O, *out] that a kernel [O, C/groups, *kernel] gets.

    One matrix product for all images and places: what each kernel position meets stands side by side.
    """
    steps, spread, pads, out = geometry
    n, cout = grad.shape[:2]
    cin, count = image.shape[1] // groups, prod(out)
    whole = image.padded([(0, 0), (0, 0), *pads])
    parts = [tap(whole, offset, steps, spread, out) for offset in np.ndindex(*kernel)]
    if cin == 1 and cout == groups:
        over = [0, *range(2, grad.rank)]
        depthwise = [(grad * part).total(over).shaped((cout, 1)) for part in parts]
        return joined(depthwise, 1).shaped((cout, 1, *kernel))
    columns = joined(parts, 1)
    columns = columns.shaped((n, len(parts), groups, cin, count)).ordered(2, 1, 3, 0, 4)
    rows = grad.shaped((n, groups, cout // groups, count)).ordered(1, 2, 0, 3)
    rows = rows.shaped((groups, cout // groups, n * count))
    sums = summed_product(rows, columns.shaped((groups, len(parts) * cin, n * count)), -1)
    return sums.shaped((cout, len(parts), cin)).ordered(0, 2, 1).shaped((cout, cin, *kernel))


def _conv_image(d: Derivation) -> Formula:
    return image_gradient(d.grad, d.weight, d.x.shape[2:], geometry_of(d.operation), d.groups)


def _conv_kernel(d: Derivation) -> Formula:
    return kernel_gradient(d.x, d.grad, d.weight.shape[2:], geometry_of(d.operation), d.groups)


def _conv_bias(d: Derivation) -> Formula:
    return per_channel(d.grad, d.bias)


@op(
    "conv",
    _CONV,
    infer=conv_type,
    pad_type=PAD_TYPES,
    traits=PRODUCTS | CONVOLVES,
    derivative={"x": _conv_image, "weight": _conv_kernel, "bias": _conv_bias},
)
def conv(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, groups: int, **window: Any) -> np.ndarray:
    """Cross-correlation of x [N, C, *D] with weight [O, C/groups, *K], plus bias [O]."""
    steps, spread, pads, out = conv_geometry(x.shape, weight.shape, **window)
    weight = weight.astype(x.dtype, copy=False)
    source = pad_spatial(x, pads)
    cout, cin = weight.shape[:2]
    if cin == 1 and cout == groups:
        result = _depthwise(source, weight, steps, spread, out)
    else:
        result = _dense(source, weight, steps, spread, out, groups)
    if bias is not None:
        result += bias.astype(x.dtype, copy=False).reshape((-1,) + (1,) * len(out))
    return result


def pad_spatial(x: np.ndarray, pads: Sequence[tuple[int, int]], fill: float = 0) -> np.ndarray:
    """x with its axes from 2 on extended; x itself when there is nothing to add. Negative pads crop."""
    return padded(x, [(0, 0), (0, 0), *pads], value=fill) if any(map(any, pads)) else x


def _tap(offset: Sequence[int], steps: Sequence[int], spread: Sequence[int], out: Sequence[int]) -> Any:
    """Index of the elements that one kernel position meets, over all output positions."""
    return (
        Ellipsis,
        *(
            slice(k * dilation, k * dilation + (n - 1) * stride + 1, stride)
            for k, stride, dilation, n in zip(offset, steps, spread, out)
        ),
    )


def _depthwise(x: np.ndarray, weight: np.ndarray, steps: Any, spread: Any, out: Sequence[int]) -> np.ndarray:
    """One filter per channel: add the shifted input once per kernel position, a run of channels that fits a cache."""
    batch, channels = x.shape[:2]
    result = np.zeros((batch, channels, *out), x.dtype)
    run = max(1, _CACHE_BYTES // max(prod(out) * x.itemsize, 1))
    scratch = np.empty((min(run, channels), *out), x.dtype)
    taps = [(_tap(offset, steps, spread, out), offset) for offset in np.ndindex(*weight.shape[2:])]
    for image, start in product(range(batch), range(0, channels, run)):
        stop = min(start + run, channels)
        source, total, part = x[image, start:stop], result[image, start:stop], scratch[: stop - start]
        for index, offset in taps:
            factor = weight[(slice(start, stop), 0, *offset)].reshape((-1,) + (1,) * len(out))
            np.multiply(source[index], factor, out=part)
            total += part
    return result


def _dense(x: np.ndarray, weight: np.ndarray, steps: Any, spread: Any, out: Sequence[int], groups: int) -> np.ndarray:
    """Gather the windows as columns, a bounded run of output rows at a time, and multiply matrices."""
    batch, channels = x.shape[:2]
    cout, cin = weight.shape[:2]
    kernel = weight.shape[2:]
    taps = prod(kernel)
    matrix = weight.reshape(groups, cout // groups, cin * taps)
    result = np.empty((batch, groups, cout // groups, *out), x.dtype)
    if result.size == 0:
        return result.reshape(batch, cout, *out)
    if taps == 1:
        points = np.ascontiguousarray(x[_tap((0,) * len(out), steps, spread, out)])
        np.matmul(
            matrix[None], points.reshape(batch, groups, cin, -1), out=result.reshape(batch, groups, cout // groups, -1)
        )
        return result.reshape(batch, cout, *out)
    per_row = channels * taps * prod(out[1:]) * x.itemsize
    if per_row > _ROW_LIMIT_BYTES:
        raise GraphError(f"the windows of one output row take {per_row} bytes", hint="cut the image into tiles")
    rows = max(1, min(out[0], _SCRATCH_BYTES // max(per_row, 1)))
    for image, start in product(range(batch), range(0, out[0], rows)):
        count = min(rows, out[0] - start)
        part = (count, *out[1:])
        columns = np.empty((channels, taps, *part), x.dtype)
        source = x[image, :, start * steps[0] :]
        for place, offset in enumerate(np.ndindex(*kernel)):
            columns[:, place] = source[_tap(offset, steps, spread, part)]
        product_ = np.matmul(matrix, columns.reshape(groups, cin * taps, -1))
        result[image, :, :, start : start + count] = product_.reshape(groups, cout // groups, *part)
    return result.reshape(batch, cout, *out)


TransposedGeometry = tuple[tuple[int, ...], tuple[int, ...], list[int], tuple[int, ...]]
"""Strides, dilations, what is cut before and output extents of each spatial axis."""


def transpose_geometry(x: Sequence[int], weight: Sequence[int], output_shape: Any, **window: Any) -> TransposedGeometry:
    """Strides, dilations, cut before and output extents of each spatial axis.

    An output shape may ask for more than the padding leaves, as the gradient of a strided convolution does: zeros.
    """
    steps, spread, cuts, own = padded_transpose(x, weight, output_shape, **window)
    out = own if output_shape is None else tuple(output_shape)[-len(own) :]
    if any(extent < 1 for extent in out):
        raise GraphError(f"the result has the extents {out}: its padding leaves {own}")
    return steps, spread, cuts, out


def transpose_geometry_of(op: Op) -> TransposedGeometry:
    """``transpose_geometry`` of a ``conv_transpose``, by its arguments."""
    window = {name: op.arg(name) for name in ("output_shape", "pad_type", "pad", "strides", "dilations")}
    return transpose_geometry(op.inputs["x"].shape, op.inputs["weight"].shape, **window)


def padded_transpose(
    x: Sequence[int], weight: Sequence[int], output_shape: Any, *, pad_type: str, pad: Any, strides: Any, dilations: Any
) -> TransposedGeometry:
    """The same with the extents that the padding leaves, 0 or less for none; "same" pads to the output shape."""
    rank = len(x) - 2
    steps = per_axis(strides, rank, 1, "strides")
    spread = per_axis(dilations, rank, 1, "dilations")
    positive(steps, "strides")
    positive(spread, "dilations")
    full = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(x[2:], weight[2:], steps, spread)]
    targets = [n * s for n, s in zip(x[2:], steps)] if output_shape is None else tuple(output_shape)[-rank:]
    if len(targets) != rank:
        raise GraphError(f"output_shape has {len(targets)} entries, {rank} are needed")
    if pad_type == "custom":
        flat = per_axis(pad, 2 * rank, 0, "pad")
        return steps, spread, list(flat[::2]), tuple(f - a - b for f, a, b in zip(full, flat[::2], flat[1::2]))
    if pad_type == "valid":
        return steps, spread, [0] * rank, tuple(full)
    totals = [max(f - target, 0) for f, target in zip(full, targets)]
    cuts = [total // 2 if pad_type == "same" else total - total // 2 for total in totals]
    return steps, spread, cuts, tuple(targets)


def conv_transpose_type(
    x: TensorType, weight: TensorType, bias: TensorType | None, groups: int, **window: Any
) -> TensorType:
    rank_between(x, 3, 5)
    rank_between(weight, x.rank, x.rank, "weight")
    if groups < 1 or weight.shape[0] != x.shape[1] or x.shape[1] % groups:
        raise GraphError(
            f"{x.shape[1]} channels, a weight of shape {weight.shape} and {groups} groups do not go together"
        )
    cout = weight.shape[1] * groups
    channel_vector(bias, cout, "bias")
    out = transpose_geometry(x.shape, weight.shape, **window)[3]
    return TensorType(x.dtype, (x.shape[0], cout, *out))


def _transposed_geometry(d: Derivation) -> Geometry:
    """That of the convolution from the result back to x."""
    steps, spread, cuts, out = transpose_geometry_of(d.operation)
    full = [(n - 1) * s + (k - 1) * w + 1 for n, k, s, w in zip(d.x.shape[2:], d.weight.shape[2:], steps, spread)]
    return steps, spread, [(lead, f - lead - m) for lead, f, m in zip(cuts, full, out)], d.x.shape[2:]


def _transposed_image(d: Derivation) -> Formula:
    steps, spread, pads, _ = _transposed_geometry(d)
    pad = [width for pair in pads for width in pair]
    crop = [(min(before, 0), min(after, 0)) for before, after in pads]
    return d.grad.padded([(0, 0), (0, 0), *crop]).conv(
        weight=d.weight,
        strides=steps,
        dilations=spread,
        groups=d.groups,
        pad_type="custom",
        pad=[max(width, 0) for width in pad],
    )


def _transposed_kernel(d: Derivation) -> Formula:
    return kernel_gradient(d.grad, d.x, d.weight.shape[2:], _transposed_geometry(d), d.groups)


@op(
    "conv_transpose",
    "x:T weight:U bias:U? pad:ints? output_shape:ints? pad_type:str='valid' strides:ints? dilations:ints? groups:int=1",
    infer=conv_transpose_type,
    traits=PRODUCTS | CONVOLVES,
    derivative={"x": _transposed_image, "weight": _transposed_kernel, "bias": _conv_bias},
    pad_type=PAD_TYPES,
)
def conv_transpose(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, groups: int, **window: Any
) -> np.ndarray:
    """The gradient of ``conv``: every input element adds its multiple of the kernel [C, O/groups, *K]."""
    steps, spread, cuts, out = transpose_geometry(x.shape, weight.shape, **window)
    weight = weight.astype(x.dtype, copy=False)
    batch, channels = x.shape[:2]
    kernel = weight.shape[2:]
    inner, outer = channels // groups, weight.shape[1]
    extents = x.shape[2:]
    full = [
        max((n - 1) * s + (k - 1) * d + 1, cut + m)
        for n, k, s, d, cut, m in zip(extents, kernel, steps, spread, cuts, out)
    ]
    result = np.zeros((batch, groups * outer, *full), x.dtype)
    points = np.ascontiguousarray(x).reshape(batch, groups, inner, -1)
    matrices = weight.reshape(groups, inner, outer, *kernel)
    for offset in np.ndindex(*kernel):
        matrix = matrices[(slice(None), slice(None), slice(None), *offset)].swapaxes(1, 2)
        share = np.matmul(matrix[None], points).reshape(batch, groups * outer, *extents)
        result[_tap(offset, steps, spread, extents)] += share
    inside: Any = (Ellipsis, *(slice(lead, lead + m) for lead, m in zip(cuts, out)))
    result = np.ascontiguousarray(result[inside])
    if bias is not None:
        result += bias.astype(x.dtype, copy=False).reshape((-1,) + (1,) * len(out))
    return result
