"""Waits of compiled programs: every one that the regions and places of its tasks ask for, in both dialects."""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hexane
from codegen.programs import graph_of, load
from facts import fact_files
from hexane.codegen import dram_order
from hexane.codegen.defects import DefectWarning
from hexane.codegen.memory import complete, hazards
from hexane.codegen.operations import BINARY, COPY, NE_TASK, UNHINTED, After, SourceType
from hexane.codegen.plan import Buffer, Destination, Dma, EarlierReader, Operand, Plan, Region, Space
from hexane.codegen.targets import Places
from hexane.graph import Graph, GraphBuilder
from hexane.isa.granules import GRANULE

RESIDENT, LOADED, FOLLOWER = Operand(), Operand(type=SourceType.DMA_KEEP), Operand(after=After.FOLLOWS_NE)
LINE = 8 * 16
A, B, C, D = (Region(n * 0x1000, 16, LINE, LINE, LINE) for n in range(4))
"""Regions of 8 channels of one row, apart."""


def _task(unit: str, reads: Operand, source: Region, result: Region, second: Region | None = None) -> Plan:
    pe = NE_TASK if unit == "NE" else BINARY["add"] if second else COPY
    src = None if reads.type is SourceType.RESIDENT else Dma(Buffer("x", Space.SURFACE), 0, 64, 64, 512, 512)
    second = second or Region()
    return Plan(
        pe=pe,
        w=8,
        c=8,
        source=reads.at(source, src),
        second=Operand(region=second),
        result=Destination(region=result),
    )


def _waits(plan: Plan) -> tuple[After, After]:
    return plan.source.after, plan.result.after


@pytest.mark.parametrize("unit, other, flag", [("NE", "PE", After.NE_SOURCE), ("PE", "NE", After.PE_SOURCE)])
def test_a_result_over_what_the_other_unit_reads_waits_for_it(unit: str, other: str, flag: After) -> None:
    for settle in (lambda plans: hazards.settle(plans, {0, 1}), lambda plans: complete(plans, sources_apart=False)):
        plans = [_task(unit, LOADED, A, B), _task(other, LOADED, C, A)]
        settle(plans)
        assert _waits(plans[1]) == (After.NOTHING, flag)


def test_a_wait_for_the_last_task_of_a_unit_is_one_for_those_before_it() -> None:
    plans = [
        _task("NE", LOADED, A, B),
        _task("NE", LOADED, C, D),
        _task("PE", RESIDENT, D, C),
        _task("PE", RESIDENT, B, A),
    ]
    complete(plans, sources_apart=False)
    assert [_waits(plan) for plan in plans[2:]] == [(After.NE_RESULT, After.NOTHING), (After.NOTHING, After.NOTHING)]


def test_an_older_result_is_waited_for() -> None:
    plans = [_task("NE", LOADED, A, B), _task("NE", LOADED, C, D), _task("PE", RESIDENT, B, A)]
    complete(plans, sources_apart=False)
    assert _waits(plans[2]) == (After.NE_RESULT, After.NOTHING)


def test_a_source_over_what_the_other_unit_reads_waits_and_over_its_own_does_not() -> None:
    plans = [_task("PE", LOADED, A, B), _task("NE", LOADED, A, C), _task("NE", LOADED, A, D)]
    complete(plans, sources_apart=False)
    assert [_waits(plan)[0] for plan in plans[1:]] == [After.PE_SOURCE, After.NOTHING]


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("other_loaded", [False, True])
@pytest.mark.parametrize("side", ["source", "second"])
def test_each_source_waits_by_its_own_way_into_l2(side: str, loaded: bool, other_loaded: bool) -> None:
    """One that is brought may not come over what is still read; one that is there is read beside it."""
    earlier = _task("NE", Operand(type=SourceType.DMA_STREAM), A, B)
    first, second = (loaded, other_loaded) if side == "source" else (other_loaded, loaded)
    regions = (A, C) if side == "source" else (C, A)
    plan = _task("PE", LOADED if first else RESIDENT, regions[0], D, regions[1])
    plan = plan.against(dma=Dma(Buffer("y", Space.SURFACE), 0, 64, 64, 512, 512) if second else None)
    plans = [earlier, plan]
    hazards.settle(plans, {0, 1})
    assert _waits(plans[1]) == (After.NE_SOURCE if loaded else After.NOTHING, After.NOTHING)


def test_regions_that_lie_in_each_others_gaps_do_not_meet() -> None:
    even, odd = (Region(base, 32, 256, 256, 256) for base in (0, 16))
    plans = [_task("NE", LOADED, even, B), _task("PE", LOADED, C, odd)]
    complete(plans, sources_apart=False)
    assert _waits(plans[1]) == (After.NOTHING, After.NOTHING)


def test_a_second_source_apart_says_its_own_wait() -> None:
    plans = [_task("NE", LOADED, A, B), _task("NE", LOADED, C, D), _task("PE", FOLLOWER, D, C, B)]
    complete(plans, sources_apart=True)
    assert plans[2].second.besides == After.FOLLOWS_NE and _waits(plans[2]) == (After.FOLLOWS_NE, After.NOTHING)
    loaded = [_task("NE", LOADED, A, B), _task("PE", LOADED, B, C, D)]
    complete(loaded, sources_apart=True)
    assert loaded[1].source.besides == After.NE_RESULT


def _through_dram(*steps: tuple[str | None, str | None]) -> list[Plan]:
    """Tasks that read from and write to places in scratch."""
    at = {"p": 0, "q": 0x400, "pq": 0}
    plans = []
    for read, written in steps:
        plan = _task("NE", LOADED, A, B)
        src = Dma(Buffer("s", Space.SCRATCH), at[read], 64, 64, 512, 512) if read else plan.source.dma
        dst = Dma(Buffer("s", Space.SCRATCH), at[written], 64, 64, 512, 512) if written else None
        plans.append(plan.reading(dma=src, hint=UNHINTED).writing(dma=dst))
    places = [Places(lambda buffer: 0, lambda buffer: int(buffer.space))] * len(plans)
    dram_order.settle(plans, places, for_readers=True)
    return plans


def test_what_an_earlier_task_wrote_is_waited_for_once() -> None:
    plans = _through_dram((None, "p"), (None, "q"), ("p", None), ("q", None))
    assert [plan.source.hint.after_task for plan in plans] == [False, False, True, False]


def test_a_place_is_written_behind_its_last_reader() -> None:
    plans = _through_dram((None, "p"), ("p", None), ("p", None), (None, "q"), (None, "p"))
    assert [plan.result.reader for plan in plans] == [None] * 4 + [EarlierReader(1, as_kernel=False)]


def _residual() -> Graph:
    rng = np.random.default_rng(5)
    b = GraphBuilder()
    value = b.input("x", (1, 64, 28, 28))
    for i in range(4):
        made = value
        for k in (1, 3, 1):
            weight = (rng.standard_normal((64, 64, k, k)) / (8 * k)).astype(np.float16)
            made = b.relu(x=b.conv(x=made, weight=weight, pad_type="same"))
        pooled = b.max_pool(x=value, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same") if i % 2 else value
        value = b.concat(values=[b.softmax(x=b.add(x=made, y=pooled), axis=1), pooled], axis=1)
        weight = (rng.standard_normal((64, 128, 1, 1)) / 12).astype(np.float16)
        value = b.conv(x=value, weight=weight)
    b.output(value)
    return b.graph


@pytest.mark.parametrize("dialect", ["default", "apple"])
@pytest.mark.parametrize("chip", ["M1", "M2", "M3", "M4", "M5"])
def test_a_network_with_branches_is_right_at_once(chip: str, dialect: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = hexane.compile(_residual(), chip=chip, dialect=dialect)
    assert program.images


def test_apples_batches_of_planar_tasks_wait() -> None:
    (path,) = fact_files("apple/more/h14/garms_chain_c128.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hexane.compile(graph_of(load(path)), chip="M2", dialect="apple").images


def test_without_the_missing_waits_no_program_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("hexane.codegen.memory.complete", lambda plans, sources_apart: None)
    with pytest.warns(DefectWarning, match="waits for no task"):
        hexane.compile(_residual(), chip="M1", dialect="apple", without=("hand-over",))


def _attention() -> Graph:
    b = GraphBuilder(opset="ios18")
    x, k, v = (
        b.input(name, shape, "fp16") for name, shape in (("x", (1, 1, 2)), ("k", (1, 1, 1, 2)), ("v", (1, 1, 1, 2)))
    )
    query = b.reshape(x=x, shape=[1, 1, 1, 2])
    made = b.scaled_dot_product_attention(query=query, key=k, value=v)
    b.output(query, b.reshape(x=made, shape=[1, 1, 2], name="y"))
    return b.graph


def _attention_with_past() -> Graph:
    """Of three axes: heads are cut out of the rows; scores and the joined keys are outputs."""
    b = GraphBuilder(opset="ios18")
    query, key, value = (b.input(name, (1, rows, 16), "fp16") for name, rows in (("q", 4), ("k", 6), ("v", 6)))
    past = [b.input(name, (1, 2, 3, 8), "fp16") for name in ("past_k", "past_v")]
    q, k, v = (
        b.transpose(x=b.reshape(x=x, shape=[1, rows, 2, 8]), perm=[0, 2, 1, 3])
        for x, rows in ((query, 4), (key, 6), (value, 6))
    )
    k, v = (b.concat(values=(first, then), axis=2) for first, then in zip(past, (k, v)))
    scores = b.softmax(x=b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=0.35), axis=-1)
    b.output(k, v, scores, b.matmul(x=scores, y=v))
    return b.graph


def _two_products(rows: int) -> Graph:
    """The kernel of the second is the result of the task right before it."""
    b = GraphBuilder(opset="ios18")
    x, y, z = (b.input(name, shape, "fp16") for name, shape in (("x", (rows, 32)), ("y", (32, 64)), ("z", (64, 16))))
    first = b.matmul(x=x, y=y)
    b.output(first, b.matmul(x=first, y=z))
    return b.graph


KERNELS = {
    "attention": _attention(),
    "attention with a past": _attention_with_past(),
    "two products": _two_products(16),
    "two products row by row": _two_products(5),
}


@pytest.mark.parametrize("dialect", ["default", "apple"])
@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "M5", "A19"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_result_of_the_program_is_a_kernel_too(name: str, chip: str, dialect: str) -> None:
    """A kernel outside of scratch has no wait: the result is written to scratch, and copied from there."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = hexane.compile(KERNELS[name], chip, dialect=dialect)
    assert all(segment.image is not None for segment in program.segments)
    rng = np.random.default_rng(0)
    inputs = {port.name: rng.uniform(-1, 1, port.shape).astype(np.float16) for port in program.inputs}
    engine, graph = program.run(inputs), program.run(inputs, level="graph")
    for name in graph:
        np.testing.assert_array_equal(engine[name], graph[name], strict=True)


@pytest.mark.parametrize("seed", range(20))
def test_granules_of_an_operand_reach_from_its_first_to_its_last_byte(seed):
    """Against every row of every plane, depth and group by itself."""
    rng = np.random.default_rng(seed)
    g, d, c, h, w = (int(n) for n in rng.integers(1, 4, 5))
    interleave, element = int(rng.choice([1, 2, 4])), int(rng.choice([1, 2]))
    row, plane, depth, group = (int(n) for n in np.cumprod(rng.integers(2, 9, 4)) * 64)
    dma = Dma(Buffer("x", Space.SURFACE), int(rng.integers(0, 999)), row, plane, depth, group, element, interleave)
    places = product(range(g), range(d), range(-(-c // interleave)), range(h))
    starts = [4096 + dma.offset + np.dot(at, (group, depth, plane, row)) for at in places]
    last = max(starts) + w * element * interleave - 1
    end = SimpleNamespace(extents=(g, d, c, h, w))
    assert dram_order._granules(end, dma, 4096) == slice(min(starts) // GRANULE, last // GRANULE + 1)
