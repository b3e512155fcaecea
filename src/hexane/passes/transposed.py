"""Transposed convolutions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.conv import transpose_geometry_of
from hexane.passes.rewriting import array_of, as_dtype, bias_of, is_static, sweep
from hexane.rounding import ceil_div


def legalise_transposed(function: Function) -> int:
    """One convolution for all phases of the stride, then channels shuffled to pixels: both are known tasks."""
    return sum(sweep(function, {"conv_transpose": rule}) for rule in (_equal_strides, _phases))


def _equal_strides(op: Op, b: GraphBuilder) -> Value | None:
    """The longer of two strides as zeros between rows or columns, so that both are the shorter one."""
    x, weight = op.inputs["x"], op.inputs["weight"]
    if not weight.is_constant or not is_static(x) or len(x.shape) != 4:
        return None
    steps, spread, cuts, out = transpose_geometry_of(op)
    if steps[0] == steps[1] or max(steps) % min(steps):
        return None
    axis, factor = steps.index(max(steps)), max(steps) // min(steps)
    n, rest = x.shape[2 + axis], prod(x.shape[3 + axis :])
    rows = b.reshape(x=x, shape=[prod(x.shape[: 2 + axis]) * n, rest])
    rows = b.pad(x=rows, pad=[0, 0, 0, (factor - 1) * rest], mode="constant", constant_val=0.0)
    apart = b.reshape(x=rows, shape=[*x.shape[: 2 + axis], n * factor, *x.shape[3 + axis :]])
    full = [(n - 1) * min(steps) + (k - 1) * s + 1 for n, k, s in zip(apart.shape[2:], weight.shape[2:], spread)]
    pads = [width for lead, f, m in zip(cuts, full, out) for width in (lead, f - lead - m)]
    return _plain(op, b, apart, weight, (min(steps),) * 2, spread, pads)


def _plain(op: Op, b: GraphBuilder, x: Value, weight: Any, steps: Any, spread: Any, pads: list[int]) -> Value:
    """The same transposed convolution of another form of its operands, its padding written out."""
    return b.conv_transpose(
        x=x,
        weight=weight,
        **bias_of(op),
        strides=steps,
        dilations=spread,
        pad_type="custom",
        pad=pads,
        groups=op.arg("groups"),
    )


def _phases(op: Op, b: GraphBuilder) -> Value | None:
    """Result row q s + r sums over taps k = r (mod s) of source row q - k // s.

    All s x s phases become output channels of one stride-1 convolution with ceil(k / s) taps per axis. Over one axis
    the s phases are those of a map of one row.
    """
    x, weight = op.inputs["x"], array_of(op.inputs["weight"])
    bias = op.inputs.get("bias")
    if weight is None or not is_static(x) or x.rank not in (3, 4) or (bias is not None and not bias.is_constant):
        return None
    steps, spread, cuts, out = transpose_geometry_of(op)
    if x.rank == 3:
        x, weight = b.expand_dims(x=x, axes=[2]), weight[:, :, None]
        steps, spread, cuts, out = (1, *steps), (1, *spread), [0, *cuts], (1, *out)
    elif steps[0] != steps[1]:  # one factor for both axes, so that a shuffle puts the phases in place
        return None
    weight = dilated(weight, spread)
    groups, per = op.arg("groups"), weight.shape[1]
    taps = [ceil_div(k, step) for k, step in zip(weight.shape[2:], steps)]
    # rows of the shuffled result: as many as the cut result needs
    rows = [ceil_div(cut + extent, step) for cut, extent, step in zip(cuts, out, steps)]
    full = np.zeros((*weight.shape[:2], taps[0] * steps[0], taps[1] * steps[1]))
    full[:, :, : weight.shape[2], : weight.shape[3]] = weight
    # [cin, cout/g, ty, sy, tx, sx] -> [g, cout/g, sy, sx, cin/g, ty reversed, tx reversed]
    cin = x.shape[1]
    split = full.reshape(groups, cin // groups, per, taps[0], steps[0], taps[1], steps[1])
    kernel = split.transpose(0, 2, 4, 6, 1, 3, 5)[..., ::-1, ::-1]
    kernel = kernel.reshape(groups * per * steps[0] * steps[1], cin // groups, taps[0], taps[1])
    start = None if bias is None else as_dtype(np.repeat(array_of(bias).reshape(-1), steps[0] * steps[1]), x)  # type: ignore[union-attr]
    pads = []
    for extent, t, extent_out in zip(x.shape[2:], taps, rows):
        pads += [t - 1, extent_out - extent]
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
    result = _shuffled(phases, steps, b)
    if result.shape[2:] != out or any(cuts):
        size = [*result.shape[:2], *out]
        result = b.slice_by_size(x=result, begin=[0, 0, *cuts], size=size)
    return result if op.inputs["x"].rank == 4 else b.squeeze(x=result, axes=[2])


def _shuffled(phases: Value, steps: tuple[int, ...], b: GraphBuilder) -> Value:
    """The phases of each channel in their places: over two axes a shuffle, of one row columns in turn."""
    if steps == (1, 1):
        return phases
    if steps[0] == steps[1]:
        return b.pixel_shuffle(x=phases, upscale_factor=steps[1])
    count, channels, _, width = phases.shape
    apart = b.reshape(x=phases, shape=[count, channels // steps[1], steps[1], width])
    turn = b.transpose(x=apart, perm=[0, 1, 3, 2])
    return b.reshape(x=turn, shape=[count, channels // steps[1], 1, width * steps[1]])


def dilated(weight: np.ndarray, spread: tuple[int, ...]) -> np.ndarray:
    """A kernel [.., .., kh, kw] with zeros between its taps."""
    if all(d == 1 for d in spread):
        return weight
    size = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], spread)]
    full = np.zeros((*weight.shape[:2], *size), weight.dtype)
    full[:, :, :: spread[0], :: spread[1]] = weight
    return full
