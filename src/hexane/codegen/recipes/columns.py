"""Maps turned so that every pixel is one line of channels: columns become planes, and a shift by pixels costs nothing.

DMA reaches any row and plane but only every 32nd column (docs/reference/engine-h13.md 14). A turned copy makes columns
planes, so that windows, interleaving and shifts along W are offsets and strides; another one turns the map back. Both
are exact.
"""

from __future__ import annotations

import numpy as np

from hexane.codegen.fragment import Fragment
from hexane.codegen.operations import BINARY
from hexane.codegen.plan import Plan
from hexane.codegen.recipes.elementwise import side_by_side
from hexane.codegen.recipes.shape import AxisWalk, _dma, straight, turned
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.rounding import align

ORDER = (0, 3, 2, 1)
"""[n, c, h, w] to [n, w, h, c] and back."""

LARGEST = 1 << 28


def columns(fragment: Fragment, n: int, w: int, h: int, c: int) -> AxisWalk:
    """Scratch for a turned map: axes n, w, h, c; a line of channels takes whole 64-byte bursts."""
    line = align(2 * c, 64)
    plane = h * line
    size = n * w * plane
    if size > LARGEST:
        raise UnsupportedError(
            f"a turned map of {n} x {w} x {h} x {c} takes more than {LARGEST >> 20} MiB of scratch", code=Reason.MEMORY
        )
    return AxisWalk(fragment.workspace(size), 0, (n, w, h, c), (w * plane, plane, line, 2), w * plane)


def turn(fragment: Fragment, source: AxisWalk, target: AxisWalk) -> None:
    """source [n, c, h, w] into target [n, w, h, c], or back."""
    turned(fragment, source, ORDER, target)


def combine(fragment: Fragment, op: str, a: AxisWalk, b: AxisWalk, out: AxisWalk) -> Plan:
    """a op b, both from DRAM and of the same extents, in the planar engine."""
    n, c, h, w = out.extents
    if not a.extents == b.extents == out.extents:
        raise UnsupportedError("operands of different extents", code=Reason.BROADCAST)
    if not (a.aligned and b.aligned and out.aligned):
        raise UnsupportedError("an operand that begins inside a burst of 64 bytes", code=Reason.LAYOUT)
    src, src2, dst = (_dma(walk, 0, 1, 2) for walk in (a, b, out))
    plan = Plan(pe=BINARY[op], w=w, h=h, c=c, groups=n).reading(dma=src).against(dma=src2).writing(dma=dst)
    same = a.buffer == b.buffer and a.offset == b.offset
    return fragment.add(side_by_side(fragment.target, plan, same=same))


def fill(fragment: Fragment, target: AxisWalk, line: AxisWalk) -> Plan:
    """Every line of the target from one constant line."""
    still = replace(line, extents=target.extents, strides=(0, 0, 0, line.element), total=0)
    straight(fragment, still, target)
    fragment.change(-1, note="one line read for every row")
    return fragment.plans[-1]


def constant_line(fragment: Fragment, count: int, value: float) -> AxisWalk:
    """``count`` equal numbers in the const section."""
    with np.errstate(over="ignore"):
        tensor = fragment.plain_constant(np.full((1, 1, 1, count), value, np.float16))
    return AxisWalk.of(tensor)
