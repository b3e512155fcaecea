"""Walks through a grid as places axis by axis: what is said to be disjoint, or covered, is so place by place."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hexane.codegen.memory.disjoint import EvenSteps, Places, are_disjoint, covers

steps = st.builds(EvenSteps, st.integers(0, 6), st.integers(1, 3), st.integers(1, 4))
walks = st.tuples(steps, steps, steps, st.builds(EvenSteps, st.integers(0, 6), st.just(1), st.integers(1, 6)))
ONE = EvenSteps(0)


def touched(places: Places) -> set[tuple[int, ...]]:
    return set(product(*(range(one.start, one.last + 1, one.step) for one in places)))


def rows(start: int, many: int, step: int = 1, channels: int = 4) -> Places:
    return ONE, EvenSteps(0, 1, channels), EvenSteps(start, step, many), EvenSteps(0, 1, 8)


@given(walks, walks)
def test_what_is_disjoint_has_no_place_in_common(ours: Places, theirs: Places) -> None:
    common = touched(ours) & touched(theirs)
    if are_disjoint(ours, theirs):
        assert not common
    elif all(x.step == y.step == 1 for x, y in zip(ours, theirs)):
        assert common


def test_rows_in_turns_and_neighbours_are_disjoint() -> None:
    assert are_disjoint(rows(0, 5, step=2), rows(1, 5, step=2)) and not are_disjoint(
        rows(0, 5, step=2), rows(4, 5, step=2)
    )
    assert are_disjoint(rows(0, 4), rows(4, 4)) and not are_disjoint(rows(0, 4), rows(3, 4))
    assert not are_disjoint(None, rows(0, 1)) and not are_disjoint(rows(0, 1), None)


@given(st.lists(walks, max_size=4), walks)
def test_what_is_covered_has_no_other_place(ours: list[Places], theirs: Places) -> None:
    if covers(ours, theirs):
        assert touched(theirs) <= set().union(*map(touched, ours))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.randoms())
def test_bands_of_rows_cover_all_rows_in_any_order_but_not_with_one_missing(heights: list[int], random) -> None:
    starts = [sum(heights[:n]) for n in range(len(heights))]
    bands = [rows(start, many) for start, many in zip(starts, heights)]
    random.shuffle(bands)
    whole = rows(0, sum(heights))
    assert covers([None, *bands], whole)
    assert not covers(bands[1:], whole) and not covers(bands, rows(0, sum(heights) + 1))
    assert not covers(bands, rows(0, sum(heights), channels=5)) and not covers(bands, None)
