"""Lines in the opposite order, with every copy carried out on an array that nothing may leave."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.codegen.plan import Buffer, Space
from hexane.codegen.recipes import mirror
from hexane.codegen.recipes.shape import AxisWalk
from hexane.errors import UnsupportedError

LINE = 64


class Memory:
    """Buffers as arrays of bytes; a fragment, as far as copies through scratch need one."""

    def __init__(self) -> None:
        self.bytes: dict[Buffer, np.ndarray] = {}

    def workspace(self, size: int) -> Buffer:
        buffer = Buffer(f"scratch{len(self.bytes)}", Space.SCRATCH)
        self.bytes[buffer] = np.zeros(size, np.uint8)
        return buffer

    def places(self, walk: AxisWalk) -> np.ndarray:
        """Places of all elements of a walk, inside of its buffer."""
        at = np.full(1, walk.offset)
        for extent, stride in zip(walk.extents, walk.strides):
            at = np.add.outer(at, np.arange(extent) * stride)
        assert at.min() >= 0 and at.max() + walk.element <= self.bytes[walk.buffer].size
        return at[0]

    def copy(self, source: AxisWalk, target: AxisWalk) -> None:
        assert source.extents == target.extents and source.aligned and target.aligned
        there, here = self.places(target), self.places(source)
        assert np.unique(there).size == there.size
        for byte in range(source.element):
            self.bytes[target.buffer][there + byte] = self.bytes[source.buffer][here + byte]

    def tensor(self, extents: tuple[int, int, int, int], element: int) -> AxisWalk:
        """A walk of lines apart, with its elements numbered."""
        n, c, h, w = extents
        row = -(-w * element // LINE) * LINE
        strides = (c * h * row, h * row, row, element)
        walk = AxisWalk(self.workspace(n * c * h * row), 0, extents, strides, n * c * h * row, element)
        numbers = np.arange(np.prod(extents)).reshape(extents)
        for byte in range(element):
            self.bytes[walk.buffer][self.places(walk) + byte] = numbers >> 8 * byte & 255
        return walk

    def elements(self, walk: AxisWalk) -> np.ndarray:
        at = self.places(walk)
        return sum(self.bytes[walk.buffer][at + byte].astype(int) << 8 * byte for byte in range(walk.element))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_lines_come_in_the_opposite_order(data: st.DataObject) -> None:
    draw = data.draw
    axis, size = draw(st.integers(0, 2)), draw(st.integers(1, 150))
    extents = [1, 1, 1, draw(st.integers(1, 40))]
    extents[draw(st.integers(0, 2))] = draw(st.integers(1, 5))
    extents[axis] = size
    count = draw(st.integers(1, size))
    begin = draw(st.integers(0, size - count))
    memory = Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror, "straight", lambda fragment, source, target: fragment.copy(source, target))
        lines = memory.tensor(tuple(extents), 2)
        target = memory.tensor(tuple(count if i == axis else n for i, n in enumerate(extents)), 2)
        wanted = np.flip(np.take(memory.elements(lines), range(begin, begin + count), axis), axis)
        mirror.reverse(memory, lines, axis, begin, target)
    np.testing.assert_array_equal(memory.elements(target), wanted)


def test_lines_across_two_axes_take_a_copy_each(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[tuple[AxisWalk, AxisWalk]] = []
    monkeypatch.setattr(mirror, "straight", lambda fragment, source, target: copies.append((source, target)))
    memory = Memory()
    for count in (2, mirror.MOST_LINES):
        lines = memory.tensor((2, 3, count, 4), 2)
        mirror.reverse(SimpleNamespace(), lines, 2, 0, memory.tensor((2, 3, count, 4), 2))
        assert len(copies) == count
        copies.clear()
    lines = memory.tensor((2, 3, mirror.MOST_LINES + 1, 4), 2)
    with pytest.raises(UnsupportedError, match="65 lines"):
        mirror.reverse(SimpleNamespace(), lines, 2, 0, lines)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 64, 256])
def test_a_power_of_two_of_lines_takes_no_more_copies_than_its_bits_ask_for(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[None] = []
    monkeypatch.setattr(mirror, "straight", lambda fragment, source, target: copies.append(None))
    memory = Memory()
    mirror.reverse(memory, memory.tensor((1, 2, size, 4), 2), 2, 0, memory.tensor((1, 2, size, 4), 2))
    assert len(copies) == min(size, 2 * (size.bit_length() - 1))
