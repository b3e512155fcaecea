"""A weight in a format: palettes by k-means, symmetric integers, magnitude pruning; the ops that hold the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.graph import GraphBuilder, Value
from hexane.isa.numbers import LARGEST_HALF
from hexane.lowering.formats import WeightFormat
from hexane.studies.means import best_means

OPSET = "ios18"
SMALLEST = 2.0**-14  # of normal fp16 numbers


def encoded(b: GraphBuilder, weight: np.ndarray, form: WeightFormat) -> Value:
    """The ops that give ``weight`` [outputs, inputs, ...] as the format holds it; the last one's result.

    The weights are finite, and of a shape that the format allows.
    """
    if form.kind == "palette":
        return _palette(b, weight, form)
    if form.kind == "integer":
        return _integers(b, weight, form)
    if form.kind == "sparse":
        return _sparse(b, weight, form)
    return b.const(weight)


def _op(b: GraphBuilder, name: str, **operands: Any) -> Value:
    """An op of one result."""
    value = b.op(name, opset=OPSET, **operands)
    assert isinstance(value, Value)
    return value


def palette_of(values: np.ndarray, bits: int, worth: np.ndarray | None = None) -> np.ndarray:
    """The 2^bits fp16 entries with the least squared error over the values, ascending; few values stand exactly.

    ``worth`` broadcasts with the values: how much the squared error of each counts, 1 where it is left out. Values
    beyond fp16 count as its largest number.

    Values are counted by their fp16 bits, so the cost depends on how many different ones there are, not on how many:
    the best cut of a line of points into runs (`hexane.studies.means`). Half a second for 8 bits and 20,000 different
    values, a few milliseconds for 4 bits.
    """
    in_range = np.clip(np.ravel(values), -LARGEST_HALF, LARGEST_HALF)
    halves = (in_range.astype(np.float16) + np.float16(0)).view(np.uint16)  # one zero, not two
    present = np.flatnonzero(np.bincount(halves, minlength=1 << 16))
    spread = None if worth is None else np.broadcast_to(worth, values.shape).reshape(-1)
    totals = np.bincount(halves, spread, minlength=1 << 16)[present].astype(np.float64)
    points = present.astype(np.uint16).view(np.float16)
    order = np.argsort(points)
    points, counts = points[order], np.maximum(totals[order], np.finfo(np.float32).tiny)
    most = 1 << bits
    if points.size <= most:
        centres = points.astype(np.float64)
    else:
        centres = best_means(points.astype(np.float64), counts.astype(np.float64), most)
    entries = np.full(most, centres[-1], np.float16)
    entries[: centres.size] = centres.astype(np.float16)
    return np.sort(entries)


def indices_into(values: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """The nearest entry of an ascending palette for every value, uint8."""
    line = entries.astype(np.float32)
    return np.searchsorted((line[1:] + line[:-1]) / 2, values.astype(np.float32)).astype(np.uint8)


def _palette(b: GraphBuilder, weight: np.ndarray, form: WeightFormat) -> Value:
    values, scales = weight, None
    if form.per_output:
        scales = _row_range(weight)
        values = weight / scales
    size = form.group or weight.shape[0]
    parts = [values[first : first + size] for first in range(0, weight.shape[0], size)]
    worth = [None if scales is None else scales[first : first + size] ** 2 for first in range(0, len(weight), size)]
    tables = [palette_of(part, form.bits, more) for part, more in zip(parts, worth)]
    indices = np.concatenate([indices_into(part, table) for part, table in zip(parts, tables)])
    shape = (len(tables), *(1,) * (weight.ndim - 1), 1 << form.bits, 1)
    lut = np.stack(tables).reshape(shape).astype(weight.dtype)
    dense = _op(b, "constexpr_lut_to_dense", indices=b.const(indices, f"uint{form.bits}"), lut=b.const(lut))
    if scales is None:
        return dense
    return _op(b, "constexpr_blockwise_shift_scale", data=dense, scale=b.const(scales))


def _row_range(weight: np.ndarray) -> np.ndarray:
    """The largest magnitude of each output, [outputs, 1, ...], as normal fp16 numbers in the weight's dtype."""
    most = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True)
    return np.clip(most, SMALLEST, LARGEST_HALF).astype(np.float16).astype(weight.dtype)


def _integers(b: GraphBuilder, weight: np.ndarray, form: WeightFormat) -> Value:
    limit = (1 << (form.bits - 1)) - 1
    if form.group:
        blocks = weight.reshape(weight.shape[0], -1, form.group, *weight.shape[2:])
        most = np.abs(blocks).max(axis=tuple(range(2, blocks.ndim)))
        most = most.reshape(*most.shape, *(1,) * (weight.ndim - 2))
    else:
        axes = tuple(range(1, weight.ndim)) if form.per_output else tuple(range(weight.ndim))
        most = np.abs(weight).max(axis=axes, keepdims=True)
    scale = np.clip(most / limit, 2.0**-24, LARGEST_HALF).astype(np.float16).astype(weight.dtype)
    wide = np.repeat(scale, form.group, axis=1) if form.group else scale
    steps = np.clip(np.rint(weight.astype(np.float64) / wide.astype(np.float64)), -limit, limit).astype(np.int8)
    data = b.const(steps, f"int{form.bits}")
    return _op(b, "constexpr_blockwise_shift_scale", data=data, scale=b.const(scale))


def _sparse(b: GraphBuilder, weight: np.ndarray, form: WeightFormat) -> Value:
    drop = int(weight.size * form.sparsity)
    mask_kept = np.ones(weight.size, bool)
    if drop:
        mask_kept[np.argpartition(np.abs(weight).reshape(-1), drop - 1)[:drop]] = False
    hit = mask_kept.reshape(weight.shape) & (weight != 0)
    mask: Value | None = b.const(hit.astype(np.uint8), "uint1")
    if form.bits == 16:
        data = b.const(weight[hit])
    else:
        entries = palette_of(weight[hit], form.bits)
        lut = entries.reshape((1,) * weight.ndim + (1 << form.bits, 1)).astype(weight.dtype)
        indices = b.const(indices_into(weight[hit], entries), f"uint{form.bits}")
        both = b.op(
            "constexpr_lut_to_sparse", opset=OPSET, indices_mask=mask, indices_nonzero_data=indices, lut=b.const(lut)
        )
        assert isinstance(both, tuple)
        mask, data = both
    return _op(b, "constexpr_sparse_to_dense", nonzero_data=data, mask=mask)
