"""A convolution's window as the engine's arithmetic takes it: MIL's padding in numbers (spec/mil §5.3)."""

from __future__ import annotations

from dataclasses import dataclass

from hexane.errors import UnsupportedError
from hexane.graph import Op


@dataclass(frozen=True)
class Window:
    """Strides and dilations (vertical, horizontal); padding left, top, right, bottom (negative: unread columns)."""

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]


def window_of(op: Op) -> Window:
    """The window of a one- or two-dimensional ``conv``."""
    spatial = len(op.arg("x").shape) - 2
    if spatial not in (1, 2):
        raise UnsupportedError("a convolution over more than two axes")
    size = op.arg("weight").shape[2:]
    strides = tuple(op.arg("strides") or (1,) * spatial)
    dilations = tuple(op.arg("dilations") or (1,) * spatial)
    extents, results = op.arg("x").shape[2:], op.output.shape[2:]
    before = _before(op, extents, size, strides, dilations)
    behind = [
        (out - 1) * s + d * (k - 1) + 1 - extent - pad
        for out, s, d, k, extent, pad in zip(results, strides, dilations, size, extents, before)
    ]
    if spatial == 1:
        return Window((1, strides[0]), (1, dilations[0]), (before[0], 0, behind[0], 0))
    return Window((strides[0], strides[1]), (dilations[0], dilations[1]), (before[1], before[0], behind[1], behind[0]))


def _before(op: Op, extents, size, strides, dilations) -> list[int]:
    kind = op.arg("pad_type")
    if kind == "valid":
        return [0] * len(size)
    if kind == "custom":
        return list(op.arg("pad") or [0] * (2 * len(size)))[::2]
    totals = [
        max(0, (-(-extent // s) - 1) * s + d * (k - 1) + 1 - extent)
        for extent, s, d, k in zip(extents, strides, dilations, size)
    ]
    return [total // 2 if kind == "same" else total - total // 2 for total in totals]
