"""A convolution's window as the engine's arithmetic takes it: MIL's padding in numbers (docs/reference/mil.md 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hexane.chips import generation
from hexane.errors import Reason, UnsupportedError
from hexane.graph import Op
from hexane.graph.ops.conv import geometry_of

_H13 = generation("h13")
WIDEST, NATIVE_WIDTH = _H13.kernel_width_fp16
"""The widest fp16 kernel in the two-column form, and the widest without it (docs/limits.md)."""
TALLEST = _H13.kernel_height[0]
LARGEST_PAD = 31
"""Px and Py have five bits (docs/reference/engine-h13.md 4.3)."""


_SHIFTED_CHANNELS = (1, 2, 4, 8, 16)


def shifts_first(x: Sequence[int], plane: Sequence[int], columns: int) -> bool:
    """True where a depthwise 1x1 kernel on map ``x`` of one image is padded with columns on the left and nowhere else.

    Padding is as large as the kernel then: a product with a kernel [1, 0 ...] shifts the map, and the convolution
    itself has no padding (docs/reference/engine-h13.md 9.10).
    """
    n, channels, height, width = x
    same = tuple(plane) == (height, width + columns)
    return n == 1 and channels in _SHIFTED_CHANNELS and 0 < columns < NATIVE_WIDTH and same


@dataclass(frozen=True)
class Window:
    """Strides and dilations (vertical, horizontal); padding left, top, right, bottom (negative: unread columns)."""

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]


def window_of(op: Op) -> Window:
    """The window of a one- or two-dimensional ``conv``."""
    x, weight = op.inputs["x"].shape, op.inputs["weight"].shape
    if len(x) not in (3, 4):
        raise UnsupportedError("a convolution over more than two axes", code=Reason.RANK)
    strides, dilations, pads, results = geometry_of(op)
    before = [first for first, _ in pads]
    behind = [
        (out - 1) * s + d * (k - 1) + 1 - extent - pad
        for out, s, d, k, extent, pad in zip(results, strides, dilations, weight[2:], x[2:], before)
    ]
    if len(x) == 3:
        return Window((1, strides[0]), (1, dilations[0]), (before[0], 0, behind[0], 0))
    return Window((strides[0], strides[1]), (dilations[0], dilations[1]), (before[1], before[0], behind[1], behind[0]))
