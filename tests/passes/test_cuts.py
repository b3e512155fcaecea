"""Slices taken from the operands of joins and paddings."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.graph import GraphBuilder

from .comparing import same, types_of

NAMES = ["cut_early", "remove_identities"]


def cut(b, x, begin, size):
    return b.slice_by_size(x=x, begin=begin, size=size)


def test_a_part_that_is_cut_away_is_not_joined():
    b = GraphBuilder()
    x, y = b.input("x", (1, 3, 10, 8)), b.input("y", (1, 5, 10, 8))
    joined = b.concat(values=(x, y, b.abs(x=x)), axis=1)
    b.output(cut(b, joined, [0, 4, 2, 0], [1, 4, 7, 8]))
    assert types_of(same(b.graph, NAMES)) == ["slice_by_size"]


def test_a_frame_that_is_cut_away_is_not_filled():
    b = GraphBuilder()
    padded = b.pad(x=b.input("x", (1, 3, 10, 8)), pad=[0, 0, 1, 0, 4, 6, 0, 0], mode="constant", constant_val=2.0)
    b.output(cut(b, padded, [0, 1, 4, 0], [1, 3, 10, 8]))
    assert not {"pad", "slice_by_size"} & set(types_of(same(b.graph, NAMES)))


def test_nothing_but_the_frame_stays_a_slice():
    b = GraphBuilder()
    padded = b.pad(x=b.input("x", (1, 3, 10, 8)), pad=[0, 0, 0, 0, 4, 6, 0, 0], mode="constant", constant_val=2.0)
    b.output(cut(b, padded, [0, 0, 1, 0], [1, 3, 2, 8]))
    assert types_of(same(b.graph, NAMES)) == ["pad", "slice_by_size"]


def test_a_join_that_others_read_whole_stays():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 10, 8))
    joined = b.concat(values=(x, b.abs(x=x)), axis=1)
    b.output(cut(b, joined, [0, 1, 2, 0], [1, 4, 7, 8]), joined)
    assert types_of(same(b.graph, NAMES)) == ["abs", "concat", "slice_by_size"]


def test_a_cut_within_rows_stays_behind_the_join():
    """Each of its parts would be turned twice."""
    b = GraphBuilder()
    x = b.input("x", (1, 3, 10, 80))
    b.output(cut(b, b.concat(values=(x, x), axis=1), [0, 0, 0, 5], [1, 6, 10, 50]))
    assert types_of(same(b.graph, NAMES)) == ["concat", "slice_by_size"]


@pytest.mark.parametrize("seed", range(30))
def test_random_joins_paddings_and_cuts(seed):
    rng = np.random.default_rng(seed)
    b = GraphBuilder()
    x = b.input("x", tuple(map(int, rng.integers(2, 7, 4))))
    for _ in range(8):
        kind = rng.integers(3)
        if kind == 0:
            axis = int(rng.integers(-4, 4))
            x = b.concat(values=(x, b.abs(x=x), x), axis=axis)
        elif kind == 1:
            widths = [int(w) for w in rng.integers(0, 3, 2 * int(rng.integers(1, 5)))]
            x = b.pad(x=x, pad=widths, mode="constant", constant_val=0.5)
        else:
            begin = [int(rng.integers(extent)) for extent in x.shape]
            size = [int(rng.integers(1, extent - at + 1)) for extent, at in zip(x.shape, begin)]
            x = cut(b, x, begin, size)
    b.output(x)
    same(b.graph, NAMES)
