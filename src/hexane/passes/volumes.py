"""Convolutions, pools and reductions over volumes [N, C, D, H, W] as ones over maps of four axes.

A map has the rows of all depths one below the other, so that what a window meets at another depth lies whole rows
away. Hexane's own form, seen in no program: every engine has registers of depth, and none is known in this use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.conv import geometry_of, transpose_geometry_of
from hexane.graph.ops.pooling import pool_geometry_of
from hexane.graph.registry import with_trait
from hexane.graph.traits import REDUCES
from hexane.isa.numbers import LARGEST_HALF
from hexane.passes.pooling import axis_counts
from hexane.passes.reshapes import ENGINE_AXES
from hexane.passes.rewriting import array_of, as_dtype, bias_of, fitted, is_static, sweep
from hexane.passes.views import joined_axes
from hexane.rounding import align, ceil_div

RANK = 5
FLOATS = ("fp16", "fp32")


def legalise_volumes(function: Function) -> int:
    """Take volumes apart: depth taps become channels of a two-dimensional convolution, pools go axis by axis."""
    windows = {"conv": _convolution, "conv_transpose": _transposed, "avg_pool": _pool, "max_pool": _pool}
    whole = dict.fromkeys(with_trait(REDUCES), _reduction) | {"layer_norm": _layer_norm}
    return sweep(function, windows, "a window over depth as one over rows") + sweep(function, whole)


def _is_volume(op: Op) -> bool:
    x = op.inputs["x"]
    return is_static(x) and len(x.shape) == RANK and x.dtype in FLOATS and not x.is_constant


def _rows(x: Value, before: int, after: int, b: GraphBuilder, value: float = 0.0) -> Value:
    """A map [N, C, H, W] with rows of ``value`` above and below; fewer rows where a count is negative."""
    return fitted(x, {2: (-before, before + x.shape[2] + after)}, b, value)


@dataclass(frozen=True)
class _Taps:
    """Depths of ``high`` rows that windows meet: ``count`` of them, ``step`` apart, from every offset on."""

    high: int
    offsets: Sequence[int]
    step: int
    count: int

    @property
    def depths(self) -> int:
        """Those that are read: a multiple of ``step``."""
        return (max(offset // self.step for offset in self.offsets) + self.count) * self.step

    def of(self, x: Value, lead: int, b: GraphBuilder, value: float = 0.0) -> list[Value]:
        """[N, C, count * high, W] for every offset of ``x`` with ``lead`` depths of ``value`` in front."""
        high, step, count = self.high, self.step, self.count
        x = _rows(x, lead * high, (self.depths - lead) * high - x.shape[2], b, value)
        n, c, rows, w = x.shape
        blocks = rows // (high * step)
        parts = []
        for offset in self.offsets:
            skipped, phase = divmod(offset, step)
            part = x
            if step > 1:
                part = b.reshape(x=part, shape=[n, c * blocks, step * high, w])
                part = b.slice_by_size(x=part, begin=[0, 0, phase * high, 0], size=[n, c * blocks, high, w])
                part = b.reshape(x=part, shape=[n, c, blocks * high, w])
            if (skipped, count) != (0, blocks):
                part = b.slice_by_size(x=part, begin=[0, 0, skipped * high, 0], size=[n, c, count * high, w])
            parts.append(part)
        return parts


def _convolution(op: Op, b: GraphBuilder) -> Value | None:
    """One convolution whose channels are those of all depths that a window meets; of groups a sum of several."""
    weight = op.inputs["weight"]
    if not _is_volume(op) or not weight.is_constant:
        return None
    steps, spread, pads, out = geometry_of(op)
    if min(map(min, pads)) < 0:
        return None
    n, c, d, h, w = op.inputs["x"].shape
    kernel = np.asarray(array_of(weight))
    cout, _, kd, kh, _ = kernel.shape
    above, below = pads[1]
    high = align(h + max(above, below), steps[1])
    x = b.reshape(x=op.inputs["x"], shape=[n, c * d, h, w])
    x = b.reshape(x=_rows(x, above, high - above - h, b), shape=[n, c, d * high, w])
    parts = _Taps(high, [k * spread[0] for k in range(kd)], steps[0], out[0]).of(x, pads[0][0], b)
    operands: dict[str, Any] = {
        "strides": list(steps[1:]),
        "dilations": list(spread[1:]),
        "pad_type": "custom",
        "pad": [0, max((kh - 1) * spread[1] + 1 - steps[1], 0), *pads[2]],
    }
    if op.arg("groups") == 1:
        whole = parts[0] if kd == 1 else b.concat(values=tuple(parts), axis=1)
        flat = np.moveaxis(kernel, 2, 1).reshape(cout, kd * c, *kernel.shape[3:])
        result = b.conv(x=whole, weight=as_dtype(flat, weight), **bias_of(op), **operands)
    else:
        operands["groups"] = op.arg("groups")
        result = b.conv(x=parts[0], weight=as_dtype(kernel[:, :, 0], weight), **bias_of(op), **operands)
        for k in range(1, kd):
            tap = as_dtype(kernel[:, :, k], weight)
            result = b.add(x=result, y=b.conv(x=parts[k], weight=tap, **operands))
    return _volume(result, out, high // steps[1], 0, b)


def _volume(x: Value, out: Sequence[int], high: int, first: int, b: GraphBuilder) -> Value:
    """[N, C, depths * high, W] as [N, C, D, H, W], without the rows that belong to no depth."""
    n, c, rows, w = x.shape
    depths = rows // high
    if high != out[1]:
        x = b.reshape(x=x, shape=[n, c * depths, high, w])
        x = b.slice_by_size(x=x, begin=[0, 0, first, 0], size=[n, c * depths, out[1], w])
    return b.reshape(x=x, shape=[n, c, depths, out[1], w])


def _transposed(op: Op, b: GraphBuilder) -> Value | None:
    """A two-dimensional transposed convolution for each phase of the depth's stride."""
    weight = op.inputs["weight"]
    if not _is_volume(op) or not weight.is_constant or op.arg("groups") != 1:
        return None
    steps, spread, cuts, out = transpose_geometry_of(op)
    if spread[0] != 1 or min(cuts) < 0:
        return None
    n, c, d, h, w = op.inputs["x"].shape
    kernel = np.asarray(array_of(weight))
    cout, kd, kh, kw = kernel.shape[1:]
    high = max(ceil_div((h - 1) * steps[1] + (kh - 1) * spread[1] + 1, steps[1]), ceil_div(cuts[1] + out[1], steps[1]))
    x = b.reshape(x=op.inputs["x"], shape=[n, c * d, h, w])
    x = b.reshape(x=_rows(x, 0, high - h, b), shape=[n, c, d * high, w])
    count, lead = ceil_div(cuts[0] + out[0], steps[0]), ceil_div(kd, steps[0]) - 1
    shifted = _Taps(high, range(lead + 1), 1, count).of(x, lead, b)[::-1]
    surplus = (count * high - 1) * steps[1] + (kh - 1) * spread[1] + 1 - count * high * steps[1]
    end = (w - 1) * steps[2] + (kw - 1) * spread[2] + 1 - cuts[2] - out[2]
    phases = []
    for phase in range(steps[0]):
        taps = kernel[:, :, phase :: steps[0]]
        if taps.shape[2] == 0:
            taps = np.zeros((c, cout, 1, kh, kw))
        met = shifted[: taps.shape[2]]
        result = b.conv_transpose(
            x=met[0] if len(met) == 1 else b.concat(values=tuple(met), axis=1),
            weight=as_dtype(np.concatenate(np.moveaxis(taps, 2, 0)), weight),
            **bias_of(op),
            strides=list(steps[1:]),
            dilations=list(spread[1:]),
            pad_type="custom",
            pad=[0, surplus, cuts[2], end],
        )
        phases.append(_volume(result, out, high * steps[1], cuts[1], b))
    flat = [b.reshape(x=v, shape=[n, cout * count, *out[1:]]) for v in phases]
    rows = flat[0] if len(flat) == 1 else b.concat(values=tuple(flat), axis=2)
    rows = b.reshape(x=rows, shape=[n, cout, count * steps[0] * out[1], out[2]])
    rows = _rows(rows, -cuts[0] * out[1], (cuts[0] + out[0] - count * steps[0]) * out[1], b)
    return b.reshape(x=rows, shape=list(op.output.shape))


def _pool(op: Op, b: GraphBuilder) -> Value | None:
    """The pool of every depth's map, then the largest or the mean of the depths of each window."""
    if not _is_volume(op):
        return None
    size = list(op.arg("kernel_sizes"))
    x, largest = op.inputs["x"], op.type == "max_pool"
    n, c, d, h, w = x.shape
    steps, pads, reach, out = pool_geometry_of(op)
    if tuple(size) == x.shape[2:] and not any(map(any, reach)) and set(out) == {1}:
        result = _reduced("reduce_max" if largest else "reduce_mean", x, {2, 3, 4}, b)
        return None if result is None else b.reshape(x=result, shape=list(op.output.shape))
    x = b.reshape(x=x, shape=[n, c * d, h, w])
    if size[1:] != [1, 1] or set(steps[1:]) != {1}:
        rounding = {k: v for k, v in op.inputs.items() if k in ("ceil_mode", "exclude_padding_from_average")}
        flat = [width for pair in pads[1:] for width in pair]
        operands: dict[str, Any] = {
            "kernel_sizes": size[1:],
            "strides": list(steps[1:]),
            "pad_type": "custom",
            "pad": flat,
        }
        x = b.op(op.type, **rounding, **operands, x=x)
    high, wide = out[1:]
    x = b.reshape(x=x, shape=[n, c, d * high, wide])
    taps = _Taps(high, range(size[0]), steps[0], out[0])
    result, *others = taps.of(x, reach[0][0], b, -LARGEST_HALF if largest else 0.0)
    for other in others:
        result = b.maximum(x=result, y=other) if largest else b.add(x=result, y=other)
    if not largest and size[0] > 1:
        shares = np.repeat(1 / axis_counts(op)[0], high)
        equal = np.all(shares == shares[0])
        result = b.mul(x=result, y=float(shares[0]) if equal else as_dtype(shares[None, None, :, None], result))
    return b.reshape(x=result, shape=list(op.output.shape))


def _reduction(op: Op, b: GraphBuilder) -> Value | None:
    """Axes that are summed together, or stay together, are one."""
    x, axes = op.inputs["x"], op.arg("axes")
    if not is_static(x) or len(x.shape) <= ENGINE_AXES or x.dtype not in FLOATS or x.is_constant:
        return None
    rank = len(x.shape)
    result = _reduced(op.type, x, set(range(rank)) if axes is None else {a % rank for a in axes}, b)
    return None if result is None else b.reshape(x=result, shape=list(op.output.shape))


def _reduced(kind: str, x: Value, gone: set[int], b: GraphBuilder) -> Value | None:
    """The reduction of that kind with ``gone`` as axes of one element, on four axes at most."""
    groups = joined_axes([x.shape], [axis in gone for axis in range(len(x.shape))])
    if groups is None:
        return None
    along = [i for i, group in enumerate(groups) if any(a in gone and x.shape[a] > 1 for a in group)]
    flat = b.reshape(x=x, shape=[prod(x.shape[a] for a in group) for group in groups])
    return b.op(kind, x=flat, axes=along, keep_dims=True) if along else None


def _layer_norm(op: Op, b: GraphBuilder) -> Value | None:
    """Axes that are normalised together are one or two, their factors and summands likewise."""
    x, axes = op.inputs["x"], op.arg("axes")
    if not is_static(x) or len(x.shape) <= ENGINE_AXES or x.dtype not in FLOATS or axes is None:
        return None
    inside = {axis % len(x.shape) for axis in axes}
    groups = joined_axes([x.shape], [axis in inside for axis in range(len(x.shape))])
    if groups is None or list(axes) != sorted(inside) or any(inside & {*g} and not inside >= {*g} for g in groups):
        return None
    shape = [prod(x.shape[a] for a in group) for group in groups]
    along = [i for i, group in enumerate(groups) if inside >= {*group}]
    weights = {
        k: b.reshape(x=op.inputs[k], shape=[shape[i] for i in along]) for k in ("gamma", "beta") if k in op.inputs
    }
    result = b.layer_norm(x=b.reshape(x=x, shape=shape), axes=along, epsilon=op.arg("epsilon"), **weights)
    return b.reshape(x=result, shape=list(op.output.shape))
