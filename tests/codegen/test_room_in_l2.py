"""What a task holds in L2 at a time: the whole map where it fits, else rows that do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.codegen import tasks
from hexane.codegen.operations import BINARY, COPY, MAXIMUM, SourceType
from hexane.codegen.plan import Buffer, Destination, Dma, Operand, Plan, Region, Space
from hexane.codegen.targets import target_named
from hexane.errors import Reason, UnsupportedError

H13 = target_named("h13")
ROOM = H13.limits.l2_bytes - 0x40
"""Bytes of L2 but for the last 64."""
SOURCE = Dma(Buffer("x", Space.SURFACE), 0, 64, 64, 64, 64)
BROUGHT = Operand(dma=SOURCE, type=SourceType.DMA_STREAM)


def _reduction(channels: int, rows: int, row: int, base: int) -> Plan:
    source = BROUGHT.at(Region(base, 16, row, row, row), SOURCE)
    return Plan(pe=MAXIMUM, w=8, c=channels, h=rows, source=source, patch=(3, 3))


@pytest.mark.parametrize("channels, rows, base", [(16, 1, 0), (1024, 4, 0x400), (4096, 7 * 16, 0)])
def test_a_reduction_takes_its_map_and_16_bytes_of_a_channel(channels: int, rows: int, base: int) -> None:
    row, rest = divmod(ROOM - base - 16 * channels, rows)
    plan = _reduction(channels, rows, row, base + rest)
    assert tasks.fit_pe(H13, plan) is plan
    with pytest.raises(UnsupportedError, match=f"{channels} x {rows} x 8 does not fit") as refused:
        tasks.fit_pe(H13, _reduction(channels, rows, row, base + rest + 16))
    assert refused.value.code is Reason.MEMORY


def _part(percent: int, times: int) -> int:
    """Bytes that so many times take a part of L2."""
    return 16 * max(1, ROOM * percent // (1600 * times))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_tiles_of_a_planar_task_fit(data: st.DataObject) -> None:
    """Its operands' rows, one behind the other, and two patches of its result."""
    draw = data.draw
    two, low, rows = draw(st.booleans()), draw(st.sampled_from([0, 0x1000, 0x80000])), draw(st.integers(1, 400))
    patch, held = draw(st.integers(0, 5)), draw(st.integers(1, 40))
    first, second = (_part(draw(st.integers(1, 80)), held * (1 + two)) for _ in range(2))
    result = _part(draw(st.integers(1, 100)), 2 << patch)
    plan = Plan(
        pe=BINARY["add"] if two else COPY, w=8, c=8, h=rows, patch=(3, patch), tile=rows,
        source=BROUGHT.at(Region(low, 16, first, first, first), SOURCE),
        second=Operand(dma=SOURCE if two else None, region=Region(low + rows * first, 16, second, second, second)),
        result=Destination(region=Region(low + rows * (first + two * second), 16, result, result, result)),
    )  # fmt: skip
    both = first + two * second
    try:
        made = tasks.fit_pe(H13, plan)
    except UnsupportedError:
        assert low + both * (1 << patch) + (2 << patch) * result > ROOM
        return
    if low + rows * (both + result) <= ROOM:
        assert made is plan
        return
    at, against, sent = made.source.region, made.second.region, made.result.region
    assert made.tile % (1 << patch) == 0 or made.tile in (rows, 32)
    assert 0 < made.tile <= min(rows, 32) and low + made.tile * both + (2 << patch) * result <= ROOM
    assert at.base == low and sent.base >= low + made.tile * both
    if two:
        assert against.base >= low + made.tile * first and sent.base >= against.base + made.tile * second


def _row(channels: int, width: int) -> int:
    """Bytes of a row: 2W of every channel, rounded up to 16 (docs/reference/engine-h13.md 7.1)."""
    return channels * -(-2 * width // 16) * 16


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 40), st.integers(1, 128), st.integers(50, 200), st.booleans())
def test_a_copy_is_tiled_where_source_and_result_exceed_l2_together(c: int, w: int, percent: int, turned: bool) -> None:
    """And only there (docs/reference/engine-h13.md 7.4); of a turned copy the channels are what lies along W."""
    c, padded = 8 * c, 63 * 16
    result = _row(w, c) if turned else _row(c, w)
    h = max(2, H13.limits.l2_bytes * percent // 100 // (_row(c, w) + result))
    copy = tasks.copy_plan(H13, c, h, w, out_trans=turned).reading(dma=SOURCE).writing(dma=SOURCE)
    plan, behind = tasks.ne_source(H13, copy, 0)
    if plan.tile == h:
        assert behind + h * result <= H13.limits.l2_bytes
    else:
        assert h * (_row(c, w) + padded + result) > H13.limits.l2_bytes
