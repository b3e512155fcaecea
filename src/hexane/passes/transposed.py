"""Transposed convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.ops.conv import transpose_geometry
from hexane.passes.rewriting import array_of, as_dtype, is_static, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value


def legalise_transposed(function: Function) -> int:
    """One convolution for all phases of the stride, then channels shuffled to pixels: both are known tasks."""
    return sweep(function, {"conv_transpose": _phases})


def _phases(op: Op, b: GraphBuilder) -> Value | None:
    """Result row q s + r sums over taps k = r (mod s) of source row q - k // s.

    All s x s phases become output channels of one stride-1 convolution with ceil(k / s) taps per axis.
    """
    x, weight = op.inputs["x"], array_of(op.inputs["weight"])
    bias = op.inputs.get("bias")
    if weight is None or not is_static(x) or len(x.shape) != 4 or (bias is not None and not bias.is_constant):
        return None
    steps, spread, cuts, out = transpose_geometry(
        x.shape,
        op.inputs["weight"].shape,
        op.arg("pad"),
        op.arg("output_shape"),
        op.arg("pad_type"),
        op.arg("strides"),
        op.arg("dilations"),
    )
    weight = dilated(weight, spread)
    groups, per = op.arg("groups"), weight.shape[1]
    # one factor for both axes, so that a shuffle puts the phases in place
    factor = max(steps)
    if steps[0] != steps[1] and min(steps) != 1:
        return None
    if steps[0] != steps[1]:
        return None
    taps = [-(-k // factor) for k in weight.shape[2:]]
    # rows of the shuffled result: as many as the cut result needs
    rows = [-(-(cut + extent) // factor) for cut, extent in zip(cuts, out)]
    full = np.zeros((*weight.shape[:2], taps[0] * factor, taps[1] * factor))
    full[:, :, : weight.shape[2], : weight.shape[3]] = weight
    # [cin, cout/g, ty, sy, tx, sx] -> [g, cout/g, sy, sx, cin/g, ty reversed, tx reversed]
    cin = x.shape[1]
    split = full.reshape(groups, cin // groups, per, taps[0], factor, taps[1], factor)
    kernel = split.transpose(0, 2, 4, 6, 1, 3, 5)[..., ::-1, ::-1]
    kernel = kernel.reshape(groups * per * factor * factor, cin // groups, taps[0], taps[1])
    start = None if bias is None else as_dtype(np.repeat(array_of(bias).reshape(-1), factor * factor), x)  # type: ignore[union-attr]
    pads = []
    for extent, t, wanted in zip(x.shape[2:], taps, rows):
        pads += [t - 1, wanted - extent]
    crop = [0, 0]
    for axis in range(2):
        # rows beyond the source: padding behind it, or fewer rows of it
        if pads[2 * axis + 1] < 0:
            crop[axis] = -pads[2 * axis + 1]
            pads[2 * axis + 1] = 0
    if any(crop):
        size = [x.shape[0], cin, x.shape[2] - crop[0], x.shape[3] - crop[1]]
        if min(size) < 1:
            return None
        x = b.slice_by_size(x=x, begin=[0, 0, 0, 0], size=size)
    operands = {} if start is None else {"bias": start}
    weight_data = as_dtype(kernel, op.inputs["weight"])
    phases = b.conv(x=x, weight=weight_data, **operands, pad_type="custom", pad=pads, groups=groups)
    result = phases if factor == 1 else b.pixel_shuffle(x=phases, upscale_factor=factor)
    if result.shape[2:] != out or any(cuts):
        size = [*result.shape[:2], *out]
        result = b.slice_by_size(x=result, begin=[0, 0, *cuts], size=size)
    return result


def dilated(weight: np.ndarray, spread: tuple[int, ...]) -> np.ndarray:
    """A kernel [.., .., kh, kw] with zeros between its taps."""
    if all(d == 1 for d in spread):
        return weight
    size = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], spread)]
    full = np.zeros((*weight.shape[:2], *size), weight.dtype)
    full[:, :, :: spread[0], :: spread[1]] = weight
    return full
