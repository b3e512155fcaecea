"""Layouts from network parameters, and the split over tasks (spec/engine-h13 §4.3, §7.6)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexane.errors import UnsupportedError, UsageError
from hexane.kernels import KernelLayout, conv_layout, runtime_layout, split_channels
from hexane.kernels.geometry import KERNEL_MEMORY_BYTES


def lanes(blocks) -> list[int]:
    return [block.layout.cout // 16 for block in blocks]


@pytest.mark.parametrize(
    ("shape", "flags", "expected"),
    [
        ((256, 256, 3, 3), {}, [2, 14]),
        ((512, 512, 3, 3), {}, [2, 6, 6, 6, 6, 6]),
        ((64, 1024, 3, 3), {}, [2, 2]),
        ((1024, 1024, 1, 1), {"transposed": True}, [32, 32]),
        ((2048, 2048, 1, 1), {"transposed": True}, [16] * 8),
        ((2048, 2048, 1, 1), {"one_patch": True}, [128]),
        ((256, 256, 3, 3), {"stride": (2, 2)}, [4, 12]),
    ],
)
def test_published_splits(shape, flags, expected):
    stride = flags.pop("stride", (1, 1))
    layout = conv_layout(shape, stride=stride, transposed=flags.get("transposed", False))
    assert lanes(split_channels(layout, **flags)) == expected


def test_a_bias_and_a_table_take_room():
    plain = conv_layout((2048, 2048, 1, 1))
    assert lanes(split_channels(plain))[-1] == 16
    assert lanes(split_channels(conv_layout((2048, 2048, 1, 1), bias=True)))[-1] == 14
    assert lanes(split_channels(conv_layout((2048, 2048, 1, 1), table=True)))[-1] == 14


@given(
    st.integers(1, 2000),
    st.integers(1, 600),
    st.sampled_from((1, 3, 5, 7)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(((1, 1), (2, 2))),
)
def test_a_split_covers_every_channel_once(cout, cin, k, bias, table, transposed, stride):
    layout = conv_layout((cout, cin, k, k), bias=bias, table=table, stride=stride)
    try:
        blocks = split_channels(layout, transposed=transposed)
    except UnsupportedError:
        assert replace(layout, cout=layout.cores).core_bytes() > KERNEL_MEMORY_BYTES
        return
    channels = sorted((block.first, block.first + block.layout.cout) for block in blocks)
    assert channels[0][0] == 0
    assert channels[-1][1] == cout
    assert all(left[1] == right[0] for left, right in pairwise(channels))
    assert all(block.layout.core_bytes() <= KERNEL_MEMORY_BYTES for block in blocks)
    firsts = [block.first for block in blocks]
    assert firsts == sorted(firsts, reverse=not transposed)


def test_layouts_of_convolutions():
    assert conv_layout((64, 64, 3, 3)) == KernelLayout(64, 64, 3, 3, ocg=2)
    assert conv_layout((512, 64, 1, 1), small_source=True).ocg == 5
    assert conv_layout((512, 64, 1, 1), small_source=True, transposed=True).ocg == 4
    assert conv_layout((64, 1, 3, 3), groups=64) == KernelLayout(64, 1, 3, 3, unicast=True, ocg=0)
    assert conv_layout((64, 16, 3, 3), groups=4) == KernelLayout(16, 16, 3, 3, groups=4, ocg=0)
    assert conv_layout((1024, 1, 1, 9), groups=1024, bias=True).widened
    assert conv_layout((3, 3, 1, 1), dialect="early").cores == 4
    assert conv_layout((3, 3, 1, 1)).cores == 2
    assert conv_layout((64, 64, 3, 3), stride=(2, 2)).sparse


def test_convolutions_that_no_stream_is_known_for():
    for shape, arguments in (
        ((64, 64, 1, 9), {}),
        ((64, 1, 1, 14), {"groups": 64}),
        ((64, 64, 3, 3), {"stride": (3, 3)}),
        ((64, 1, 1, 9), {"groups": 64, "stride": (1, 2)}),
    ):
        with pytest.raises(UnsupportedError):
            conv_layout(shape, **arguments)
    with pytest.raises(UsageError):
        conv_layout((64, 64, 3, 3), groups=7)
    with pytest.raises(UsageError):
        runtime_layout(20, 64)
    with pytest.raises(UnsupportedError):
        split_channels(conv_layout((16, 40000, 1, 1)))


def test_what_apples_bytes_show_and_what_follows_by_analogy():
    for shown in (
        conv_layout((64, 64, 3, 3), bias=True),
        conv_layout((224, 256, 3, 3)),
        conv_layout((1024, 256, 1, 1)),
        conv_layout((768, 256, 1, 1), small_source=True),
        conv_layout((64, 1, 3, 3), groups=64, bias=True),
        conv_layout((64, 16, 3, 3), groups=4, stride=(2, 2)),
        conv_layout((256, 256, 3, 3), stride=(2, 2), bias=True),
        conv_layout((1024, 1, 1, 9), groups=1024, bias=True),
        runtime_layout(128, 64),
    ):
        assert shown.inferred == ()
    for analogy in (
        conv_layout((1000, 64, 1, 1)),
        conv_layout((320 + 48, 64, 1, 1)),
        conv_layout((1024, 256, 1, 1), bias=True),
        conv_layout((64, 64, 3, 3), bias=True, table=True),
        conv_layout((64, 64, 3, 3), stride=(1, 2)),
        conv_layout((1024, 1, 1, 9), groups=1024),
    ):
        assert analogy.inferred


def test_lanes_beyond_the_cap_make_several_passes():
    """§9.2: 768 outputs of a small map are 512 channels with 32 lanes, then 256 with 16."""
    layout = conv_layout((768, 4, 1, 1), small_source=True)
    assert [(step.first, step.lanes) for step in layout.passes()] == [(0, 32), (512, 16)]
    assert [step.lanes for step in conv_layout((768, 4, 1, 1)).passes()] == [16, 16, 16]
