"""L2 by itself: overlap of strided tensors, capacity, and who wrote where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexane
from hexane.emulator.l2 import L2, L2Region, Place
from hexane.emulator.strides import Extent, overlaps_itself
from hexane.errors import EmulationError
from hexane.graph import GraphBuilder

L2_BYTES = 2 << 20

AT = {"task": 3, "register": "L2.SourceBase.Addr"}


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4]),
)
def test_overlap_is_exact(axes: list[tuple[int, int]], element: int) -> None:
    shape, strides = [n for n, _ in axes], [s for _, s in axes]
    seen: set[int] = set()
    clash = False
    for index in np.ndindex(*shape):
        start = sum(i * s for i, s in zip(index, strides))
        touched = set(range(start, start + element))
        clash = clash or bool(seen & touched)
        seen |= touched
    assert overlaps_itself(shape, strides, element) == clash


@settings(deadline=None, max_examples=100)
@given(st.tuples(*[st.integers(1, 3)] * 4, st.integers(1, 20)), st.lists(st.sampled_from([0, 0, 0, 16]), min_size=4))
def test_a_place_without_gaps_is_dense(extent: tuple[int, ...], gaps: list[int]) -> None:
    """Row behind row, channel behind channel, ...: all units from first to last are its own, or some are not."""
    strides, step, counts = [], 16 * -(-2 * extent[4] // 16), extent[3::-1]
    for count, gap in zip(counts, gaps):
        strides.append(step + gap)
        step = count * strides[-1]
    place = Place(L2Region(0x40, *reversed(strides), element=2), Extent(*extent))
    marks = place.marked(0x8000)[place.start // 16 : place.stop // 16]
    assert place.dense == bool(marks.all())


def test_what_is_written_is_read_back_by_others() -> None:
    l2 = L2(L2_BYTES)
    region = L2Region(base=0x40, group=0x400, depth=0x200, channel=0x20, row=0x90, element=2)
    extent = Extent(2, 1, 4, 3, 10)
    values = np.arange(240, dtype=np.uint16).reshape(extent)
    l2.write(Place(region, extent), **AT)[...] = values
    np.testing.assert_array_equal(l2.read(Place(region, extent), **AT), values)
    assert l2.data[0x40 + 0x400 + 2 * 0x20 + 0x90 + 6] == values[1, 0, 2, 1, 3] & 0xFF


def test_one_unit_that_nobody_wrote() -> None:
    l2 = L2(L2_BYTES)
    region = L2Region(base=0, group=0, depth=0, channel=0x20, row=0x100, element=2)
    l2.write(Place(region, Extent(1, 1, 8, 4, 16)), **AT)
    with pytest.raises(EmulationError, match="no task wrote") as caught:
        l2.read(Place(region, Extent(1, 1, 9, 4, 8)), **AT)
    assert caught.value.address == 3 * 0x100 + 8 * 0x20


def test_strides_of_what_passes_through_a_map_of_rows() -> None:
    """Narrower and wider than the row they make rows overlap or leave L2; where they do neither nobody knows a rule."""
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 4, 6, 32), "fp16")), name="y")
    data = hexane.compile(b.graph, chip="M1").images[0].to_bytes()
    x = {"x": np.random.default_rng(0).standard_normal((1, 4, 6, 32)).astype(np.float16)}
    for register, whole, refused in (("Channel", 4, (0, 1, 3, 5, 6, 8)), ("Row", 16, (0, 1, 8, 15, 0x7FFF))):
        for stride in (*refused, whole):
            image = hexane.open_image(data)
            image.tasks[0].set(f"L2.Source{register}Stride.Stride", stride)
            if stride != whole:
                with pytest.raises(EmulationError, match=r"hold no row|overlap|ends at"):
                    hexane.emulate(image, x)
            else:
                assert np.array_equal(hexane.emulate(image, x)["y"], np.maximum(x["x"], 0))


def test_a_stream_leaves_nothing_defined() -> None:
    l2 = L2(L2_BYTES)
    region = L2Region(base=0, group=0, depth=0, channel=0x20, row=0x100, element=2)
    extent = Extent(1, 1, 4, 4, 16)
    l2.write(Place(region, extent), **AT)
    l2.stream(Place(region, Extent(1, 1, 1, 1, 1)), task=7, register="L2.ResultBase.Addr")
    with pytest.raises(EmulationError, match=r"task\[7\] streamed through"):
        l2.read(Place(region, extent), **AT)


def test_the_last_byte_is_usable_and_no_more() -> None:
    l2 = L2(L2_BYTES)
    region = L2Region(base=L2_BYTES - 0x20, group=0, depth=0, channel=0x10, row=0, element=2)
    l2.write(Place(region, Extent(1, 1, 2, 1, 8)), **AT)
    with pytest.raises(EmulationError, match="ends at 0x200002"):
        l2.write(Place(region, Extent(1, 1, 2, 1, 9)), **AT)
