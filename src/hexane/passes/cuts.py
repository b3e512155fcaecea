"""Slices in front of joins and paddings: what is cut away later is not joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.lowering.limits import GRID
from hexane.passes.padding import pad_of
from hexane.passes.rewriting import is_static, known, sweep_again

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

MOST_SWEEPS = 8


def cut_early(function: Function, compilation: Compilation) -> int:
    """Take slices of joins, paddings and slices from their operands: less is copied, and a cut padding may vanish."""
    return sweep_again(function, {"slice_by_size": _moved}, MOST_SWEEPS) if compilation.on.early_cuts else 0


def _range(op: Op) -> list[tuple[int, int]] | None:
    """(begin, end) by axis of a slice; None where they are computed."""
    begin, size, shape = op.arg("begin"), op.arg("size"), op.inputs["x"].shape
    if not known(begin, size) or not is_static(op.inputs["x"]):
        return None
    starts = [at + extent if at < 0 else at for at, extent in zip(begin, shape)]
    return [(at, at + length) for at, length in zip(starts, op.output.shape)]


def _moved(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    inner, bounds = x.op, _range(op)
    if inner is None or bounds is None or x.only_user is not op or not bounds:
        return None
    if inner.type == "slice_by_size":
        first = _range(inner)
        if first is None:
            return None
        begin = [at + start for (at, _), (start, _) in zip(bounds, first)]
        value: Value = b.slice_by_size(x=inner.inputs["x"], begin=begin, size=list(op.output.shape))
        return value
    if bounds[-1] != (0, x.shape[-1]) and bounds[-1][0] % GRID:
        return None
    if inner.type == "concat" and not inner.arg("interleave"):
        return _parts(inner, bounds, b)
    if inner.type == "pad" and inner.arg("mode") == "constant" and known(inner.arg("constant_val")):
        return _within(inner, bounds, b)
    return None


def _sliced(x: Value, bounds: list[tuple[int, int]], b: GraphBuilder) -> Value:
    if all(pair == (0, extent) for pair, extent in zip(bounds, x.shape)):
        return x
    value: Value = b.slice_by_size(x=x, begin=[begin for begin, _ in bounds], size=[e - a for a, e in bounds])
    return value


def _parts(join: Op, bounds: list[tuple[int, int]], b: GraphBuilder) -> Value | None:
    """A join of slices, without the parts that are cut away."""
    axis = join.arg("axis") % len(bounds)
    begin, end = bounds[axis]
    at, parts = 0, []
    for part in join.inputs["values"]:
        if not is_static(part):
            return None
        extent = part.shape[axis]
        mine = (max(begin - at, 0), min(end - at, extent))
        at += extent
        if mine[0] < mine[1]:
            parts.append(_sliced(part, [mine if i == axis else pair for i, pair in enumerate(bounds)], b))
    if len(parts) == 1:
        return parts[0]
    value: Value = b.concat(values=tuple(parts), axis=axis)
    return value


def _within(pad: Op, bounds: list[tuple[int, int]], b: GraphBuilder) -> Value | None:
    """A padding of a slice, as far as the frame is still seen."""
    x = pad.inputs["x"]
    widths = pad_of(pad, len(bounds))
    if widths is None or not is_static(x) or min(map(min, widths)) < 0:
        return None
    stretches, frame = [], []
    for (begin, end), (before, _), extent in zip(bounds, widths, x.shape):
        first, last = max(begin - before, 0), min(end - before, extent)
        if first >= last:
            return None  # nothing but the frame
        stretches.append((first, last))
        frame += [first + before - begin, end - before - last]
    inside = _sliced(x, stretches, b)
    if not any(frame):
        return inside
    padded: Value = b.pad(x=inside, pad=frame, mode="constant", constant_val=pad.inputs["constant_val"])
    return padded
