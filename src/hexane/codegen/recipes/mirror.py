"""Lines in the opposite order: halves change places, then halves of the halves, down to neighbours.

No DMA steps backwards. Exchanging the halves of every block of 2, 4, 8 ... lines reverses a power of two of them with
two copies for each size, exactly: line i goes where all bits of i are flipped.
"""

from __future__ import annotations

from hexane.codegen.fragment import Fragment
from hexane.codegen.recipes.shape import AxisWalk, straight
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.rounding import align

INNER = 3


def reverse(fragment: Fragment, lines: AxisWalk, axis: int, begin: int, target: AxisWalk) -> None:
    """Lines ``begin`` on of an outer axis, as many as the target has, into the target in the opposite order.

    What else the walk holds may be read too: a power of two is reversed, and more than is wanted left out.
    """
    count, room = target.extents[axis], lines.extents[axis]
    size = 1 << (count - 1).bit_length()
    whole = size <= room
    if count <= _copies(size) + 1 or _other(lines, axis) is None:
        if count > MOST_LINES:
            raise UnsupportedError(f"{count} lines in the opposite order, each of them a copy", code=Reason.PADDING)
        for i in range(count):
            straight(fragment, lines.sliced(axis, begin + i, 1), target.sliced(axis, count - 1 - i, 1))
    elif whole:
        first = min(begin, room - size)
        _exchange(fragment, lines.sliced(axis, first, size), axis, first + size - begin - count, target)
    else:  # piece by piece, the last first
        half = size // 2
        reverse(fragment, lines, axis, begin + half, target.sliced(axis, 0, count - half))
        reverse(fragment, lines, axis, begin, target.sliced(axis, count - half, half))


MOST_LINES = 64


def _copies(size: int) -> int:
    return 2 * (size.bit_length() - 1)


def _other(walk: AxisWalk, axis: int) -> int | None:
    """The one other outer axis that may have more than one element; None where both have."""
    others = [i for i in range(INNER) if i != axis]
    long = [i for i in others if walk.extents[i] > 1]
    return None if len(long) > 1 else (long or others)[0]


def _exchange(fragment: Fragment, lines: AxisWalk, axis: int, skip: int, target: AxisWalk) -> None:
    """A power of two of lines reversed by way of scratch; ``skip`` of them left out before what the target takes."""
    size, other = lines.extents[axis], _other(lines, axis)
    assert other is not None
    count, across, width = target.extents[axis], lines.extents[other], lines.extents[INNER]
    line = align(width * lines.element, 64)
    total = size * across * line
    buffers = [fragment.workspace(total), fragment.workspace(total)]
    source = _Lines(lines, axis, other)
    half = size // 2
    while half:
        last = half == 1 and count == size
        there = AxisWalk(buffers[0], 0, (1, size, across, width), (total, across * line, line, lines.element), total)
        into = _Lines(target, axis, other) if last else _Lines(there, 1, 2)
        for side in (0, 1):
            straight(fragment, source.blocks(half, side), into.blocks(half, 1 - side))
        source, buffers = into, buffers[::-1]
        half //= 2
    if count != size:
        straight(fragment, source.part(skip, count), _Lines(target, axis, other).part(0, count))


class _Lines:
    """A walk as lines along one axis, with one other axis across."""

    def __init__(self, walk: AxisWalk, axis: int, other: int) -> None:
        self.walk, self.step, self.across = walk, walk.strides[axis], walk.strides[other]
        self.size, self.count, self.width = walk.extents[axis], walk.extents[other], walk.extents[INNER]

    def _walk(self, begin: int, blocks: int, distance: int, lines: int) -> AxisWalk:
        extents = (blocks, lines, self.count, self.width)
        strides = (distance, self.step, self.across, self.walk.element)
        return replace(self.walk, offset=self.walk.offset + begin * self.step, extents=extents, strides=strides)

    def blocks(self, half: int, side: int) -> AxisWalk:
        """The first or second half of every block of twice ``half`` lines."""
        return self._walk(side * half, self.size // (2 * half), 2 * half * self.step, half)

    def part(self, begin: int, count: int) -> AxisWalk:
        return self._walk(begin, 1, self.size * self.step, count)
