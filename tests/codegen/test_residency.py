"""Values that stay in L2: the same bits, no region over a live one, less traffic."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hexane
from codegen.test_random_networks import Grower
from hexane.codegen.context import Policy
from hexane.codegen.driver import compile_for, context_of
from hexane.codegen.memory import Cause
from hexane.codegen.memory.arena import Arena, ArenaBlock
from hexane.codegen.memory.layout import grid_of
from hexane.codegen.memory.pipelining import LOCKED, NOTE, is_shown
from hexane.codegen.operands import RESULT, SECOND, Extents, TaskOperand, held, operands_of
from hexane.codegen.operations import ResultType, SourceType
from hexane.codegen.plan import Buffer, Dma, Region, Space
from hexane.graph import GraphBuilder
from hexane.timing.traffic import traffic

from .levels import agreed

L2_BYTES = 2 << 20

EVERYTHING = Policy()
lenient = [HealthCheck.too_slow, HealthCheck.data_too_large]


def boxes_hold(plans, room=L2_BYTES):
    """Every resident operand was left by an earlier task and nothing passed over it; every region lies inside.

    Stricter than the sanitizer of the emulator: windows, rings and automatic buffers count with all that they need.
    """
    owner = np.zeros(L2_BYTES // 16, np.int64)  # who left the data, 0: nobody
    for i, plan in enumerate(plans):
        boxes = {}
        for end in operands_of(plan, i):
            start = end.region.base
            stop = start + held(plan, end)
            assert 0 <= start <= stop <= room, (i, plan.op, end.side)
            boxes[end.side] = slice(start // 16, -(-stop // 16))
            by_dma = end.dma is not None
            if end.side != RESULT and not by_dma and plan.source.type is not SourceType.STRIPS:
                assert owner[start // 16] > 0, (i, plan.op, end.side)
        for end in operands_of(plan, i):
            by_dma = end.dma is not None
            if end.side == RESULT:
                stays = plan.result.type in (ResultType.STAYS, ResultType.DMA_KEEP) and not plan.result.automatic
                owner[boxes[end.side]] = i + 1 if stays else 0
            elif by_dma:
                kept = end.side != SECOND and plan.source.type is SourceType.DMA_KEEP
                owner[boxes[end.side]] = i + 1 if kept else 0


def pairs_hold(plans):
    """What a locked task writes or brings does not touch what the task in front of it still reads or writes."""
    for i, plan in enumerate(plans[1:], 1):
        before = plans[i - 1]
        if (
            not plan.source.after & LOCKED
            or before.unit == plan.unit
            or not (plan.note == NOTE or is_shown(before, plan))
        ):
            continue
        read = [_box(before, end) for end in operands_of(before, i - 1) if end.side != RESULT]
        made = next(_box(before, end) for end in operands_of(before, i - 1) if end.side == RESULT)
        assert plan.source.region == before.result.region and before.result.type is ResultType.STAYS
        for end in operands_of(plan, i):
            box = _box(plan, end)
            if end.side == RESULT or end.passes:
                assert not any(box[0] < b and a < box[1] for a, b in read), (i, plan.op, end.side)
            if end.side == SECOND or (end.side == RESULT and plan.result.region != before.result.region):
                assert box[1] <= made[0] or made[1] <= box[0], (i, plan.op, end.side)


def _box(plan, end):
    return end.region.base, end.region.base + held(plan, end)


def engine_plans(program):
    return [segment.plans for segment in program.segments if segment.plans]


def check(graph, x, policy, chip="M1", on_spills=None):
    program = compile_for(graph, replace(context_of(chip), policy=policy, on_spills=on_spills))
    for plans in engine_plans(program):
        boxes_hold(plans, max(policy.room or 0, L2_BYTES))
        pairs_hold(plans)
    agreed(program, {"x": x})
    return program


def grown(data, count):
    grower = Grower(data)
    for _ in range(count):
        grower.grow()
    results = [grower.maps[-1], *(v for v in grower.maps[1:-1] if data.draw(st.booleans()))][:2]
    for i, value in enumerate(results):
        grower.b.output(grower.b.identity(x=value, name=f"y{i}" if i else "y"))
    x = (grower.rng.standard_normal(grower.maps[0].shape) * 0.7).astype(np.float16)
    return grower.b.graph, x


def policy_of(data):
    """Everything that fits, nothing, or some; in all of L2 or in a small part."""
    seed = data.draw(st.integers(0, 2**16))
    kind = data.draw(st.sampled_from(["on", "on", "off", "random"]))
    room = data.draw(st.sampled_from([None, None, 16 << 10, 64 << 10]))
    eager = data.draw(st.booleans())
    if kind == "random":
        return Policy(lambda key: crc32(f"{seed} {key}".encode()) % 2 == 0, room, eager)
    return Policy(lambda key: kind == "on", room, eager)


CHIPS = ["M1", "M1", "M2", "M3", "M4", "M5", "A19"]
"""One chip of each generation that is written."""


@settings(deadline=None, max_examples=30, suppress_health_check=lenient)
@given(st.data(), st.sampled_from(CHIPS))
def test_random_networks(data, chip):
    graph, x = grown(data, data.draw(st.integers(2, 7)))
    check(graph, x, policy_of(data), chip)


@pytest.mark.slow
@settings(deadline=None, max_examples=400, suppress_health_check=lenient)
@given(st.data(), st.sampled_from(CHIPS))
def test_many_random_networks(data, chip):
    graph, x = grown(data, data.draw(st.integers(2, 14)))
    check(graph, x, policy_of(data), chip)


def chain(*, c=32, size=28, layers=4, seed=0):
    """Convolutions one behind the other, and a sum with the first one's result."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    value = builder.input("x", (1, c, size, size), "fp16")
    made = []
    for _ in range(layers):
        weight = (rng.standard_normal((c, c, 3, 3)) / (3 * np.sqrt(c))).astype(np.float16)
        value = builder.relu(x=builder.conv(x=value, weight=weight, pad_type="same"))
        made.append(value)
    builder.output(builder.add(x=value, y=made[0], name="y"))
    x = rng.standard_normal((1, c, size, size)).astype(np.float16)
    return builder.graph, x


@pytest.mark.parametrize("chip", ["M1", "M2", "M3", "M4", "M5"])
def test_a_chain_touches_dram_at_its_ends_only(chip):
    graph, x = chain()
    program = check(graph, x, Policy(), chip)
    (plans,) = engine_plans(program)
    assert [plan.source.dma is not None for plan in plans] == [True, False, False, False, False]
    assert [plan.result.dma is not None for plan in plans] == [False, False, False, False, True]
    assert all(plan.second.dma is None for plan in plans)
    assert program.images[0].scratch_bytes == 0


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "A19"])
def test_rows_that_stay_are_padded_as_those_from_memory(chip):
    """A function with one core per channel: narrower patches from H14 on, which need less of a pad."""

    def pitch(*, held: bool) -> int:
        b = GraphBuilder()
        x = b.input("x", (1, 16, 14, 14), "fp16")
        b.output(b.gelu(x=b.add(x=x, y=x) if held else x))
        plan = hexane.compile(b.graph, chip).segments[0].plans[-1]
        assert plan.unit == "NE" and plan.unicast == 1 and (plan.source.dma is None) == held
        return plan.source.region.row

    assert pitch(held=True) == pitch(held=False) == 16 * 32 + (32 if chip == "M1" else 16)


def test_what_can_be_switched_off():
    graph, x = chain()
    plain = hexane.compile(graph, without=("hand-over",))
    kept = hexane.compile(graph)
    assert plain.images[0].scratch_bytes > 0
    np.testing.assert_array_equal(plain.run({"x": x})["y"], kept.run({"x": x})["y"])
    assert kept.estimate().engine_us < plain.estimate().engine_us
    apples = hexane.compile(graph, dialect="apple")
    assert [plan.result.dma is not None for plan in apples.segments[0].plans] == [False, False, False, False, True]
    np.testing.assert_array_equal(apples.run({"x": x})["y"], kept.run({"x": x})["y"])


def test_a_long_stay_is_given_up_where_room_is_short():
    graph, x = chain()
    size = 32 * 28 * 64  # bytes of a map with its rows rounded up
    program = check(graph, x, Policy(room=3 * size))
    (plans,) = engine_plans(program)
    assert any(plan.result.dma is not None for plan in plans[:-1])  # what the sum needs in the end
    assert any(plan.result.dma is None for plan in plans[:-1])


def why(graph, policy=EVERYTHING, **options):
    """Bytes beyond the least by cause, all of which have one."""
    rows = []
    context = replace(context_of(**options), policy=policy, on_spills=rows.extend)
    program = compile_for(graph, context, options.get("dialect", "default"))
    moved = traffic(program)
    assert abs(sum(row.bytes for row in rows) - (moved.moved - moved.compulsory)) <= 1024  # sections are padded
    causes: dict[Cause, int] = {}
    for row in rows:
        causes[row.cause] = causes.get(row.cause, 0) + row.bytes
    return causes


def test_every_byte_beyond_the_least_has_a_cause():
    graph, _ = chain()
    size = 32 * 28 * 28 * 2
    assert why(graph) == {}
    short = why(graph, Policy(room=3 * 32 * 28 * 64))
    assert list(short) == [Cause.ROOM] and short[Cause.ROOM] >= 2 * size
    assert list(why(graph, Policy(room=size))) == [Cause.SIZE]
    large, _ = large_maps()
    assert set(why(large, without=("bands", "l2-by-price"))) <= {Cause.SIZE, Cause.ROOM}
    assert set(why(large)) <= {Cause.SIZE, Cause.ROOM, Cause.KERNELS, Cause.FORM}
    builder = GraphBuilder()
    x, y = (builder.input(name, (1, 1, 64, 128), "fp16") for name in "xy")
    builder.output(builder.matmul(x=x, y=builder.tanh(x=y), transpose_y=True, name="z"))
    assert set(why(builder.graph)) == {Cause.FORM}


def test_a_result_that_is_read_again():
    rng = np.random.default_rng(1)
    builder = GraphBuilder()
    x = builder.input("x", (1, 8, 12, 12), "fp16")
    weight = rng.standard_normal((8, 8, 1, 1)).astype(np.float16)
    first = builder.conv(x=x, weight=weight, name="early")
    builder.output(first)
    builder.output(builder.conv(x=first, weight=weight, name="y"))
    inputs = {"x": rng.standard_normal((1, 8, 12, 12)).astype(np.float16)}
    for off, evidence in ((), "INFERRED"), (("l2-parts",), "APPLE"):
        program = hexane.compile(builder.graph, without=off)
        (plans,) = engine_plans(program)
        assert plans[0].result.dma is not None and (plans[1].source.dma is None) == (not off)
        assert {plan.evidence.value for plan in plans[:1]} == {evidence}
        agreed(program, inputs)


def heads_of_a_layer(tokens=128, heads=6, dims=64, seed=2):
    """Attention of several heads between linear layers, tokens along W."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    x = builder.input("x", (1, heads * dims, 1, tokens), "fp16")

    def layer(value):
        weight = rng.standard_normal((heads * dims, heads * dims, 1, 1)) / (heads * dims) ** 0.5
        return builder.conv(x=value, weight=weight.astype(np.float16))

    def split(value):
        parts = builder.reshape(x=value, shape=[1, heads, dims, tokens])
        return builder.transpose(x=parts, perm=[0, 1, 3, 2])

    q, k, v = (split(layer(x)) for _ in range(3))
    scores = builder.mul(x=builder.matmul(x=q, y=k, transpose_y=True), y=np.float16(dims**-0.5))
    made = builder.matmul(x=builder.softmax(x=scores, axis=-1), y=v)
    joined = builder.reshape(x=builder.transpose(x=made, perm=[0, 1, 3, 2]), shape=[1, heads * dims, 1, tokens])
    builder.output(layer(joined), name="y")
    return builder.graph, rng.standard_normal((1, heads * dims, 1, tokens)).astype(np.float16)


def test_results_of_heads_are_channels_of_the_layer_behind():
    """A reshape joins heads and their features: the same rows, one channel each."""
    graph, x = heads_of_a_layer()
    rows = []
    (plans,) = engine_plans(check(graph, x, EVERYTHING, on_spills=rows.extend))
    assert plans[-1].source.type is SourceType.RESIDENT
    assert {row.why for row in rows} == {"a task reads it as its kernel"}


def test_results_of_heads_take_the_place_of_their_queries():
    """Head by head, where L2 has no room for all queries and all results at once."""
    graph, x = heads_of_a_layer(tokens=448)
    (plans,) = engine_plans(check(graph, x, EVERYTHING))
    products = [plan for plan in plans if plan.kernel is not None and plan.kernel.source is not None]
    results = {p.result.region.base for p in products if p.c == 448 and p.result.type is ResultType.STAYS}
    assert len(results) == 6 and results == {p.source.region.base for p in products if p.c == 64}


def large_maps(*, strides=(1, 2, 1), kernel=3, seed=3):
    """Maps of 2.2 MB that no L2 holds beside another: convolutions, element by element work, a pool."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    value = builder.input("x", (1, 8, 90, 120), "fp16")
    channels = 8
    for stride in strides:
        weight = (rng.standard_normal((96, channels, kernel, kernel)) / (kernel * np.sqrt(channels))).astype(np.float16)
        value = builder.conv(x=value, weight=weight, pad_type="same", strides=[stride, stride])
        value = builder.mul(x=value, y=builder.sigmoid(x=value))
        channels = 96
    value = builder.max_pool(
        x=value, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1], name="y"
    )
    builder.output(value)
    return builder.graph, rng.standard_normal((1, 8, 90, 120)).astype(np.float16)


@pytest.mark.parametrize("strides, kernel", [((1, 2), 3), ((1, 1), 1)])
def test_large_maps_run_band_by_band(strides, kernel):
    graph, x = large_maps(strides=strides, kernel=kernel)
    program = check(graph, x, Policy())
    plain = hexane.compile(graph, without=("bands",))
    (bands,), (whole,) = engine_plans(program), engine_plans(plain)
    assert len(bands) > len(whole) and max(p.hout for p in bands if p.kernel) < max(p.hout for p in whole if p.kernel)
    assert {p.evidence.value for p in bands if p.hout < whole[0].hout} == {"INFERRED"}
    assert program.estimate().engine_us < plain.estimate().engine_us
    assert traffic(program).moved < traffic(plain).moved
    np.testing.assert_array_equal(program.run({"x": x})["y"], plain.run({"x": x})["y"])
    assert program.stats()["macs"] == plain.stats()["macs"]


def test_bands_are_not_cut_where_halos_cost_more_than_traffic():
    graph, x = large_maps(strides=(1, 1), kernel=5)
    plain = hexane.compile(graph, without=("bands",))
    assert len(engine_plans(hexane.compile(graph))[0]) == len(engine_plans(plain)[0])
    cut = check(graph, x, Policy(eager=True))
    assert cut.estimate().engine_us > plain.estimate().engine_us


def excited(*, size=80, channels=96, seed=5):
    """x * s + x of a map of 1.2 MB, and the sum with an upsampled one: neither has room for a second map beside it."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    x = builder.input("x", (1, 12, size, size), "fp16")

    def conv(value, cout, stride=1):
        weight = (rng.standard_normal((cout, value.shape[1], 1, 1)) / np.sqrt(value.shape[1])).astype(np.float16)
        return builder.conv(x=value, weight=weight, strides=[stride, stride])

    value = conv(x, channels)
    mean = builder.reduce_mean(x=value, axes=[2, 3], keep_dims=True)
    value = builder.add(x=value, y=builder.mul(x=value, y=builder.sigmoid(x=conv(mean, channels))))
    half = conv(x, channels, stride=2)
    twice = builder.upsample_nearest_neighbor(x=half, scale_factor_height=2.0, scale_factor_width=2.0)
    value = builder.add(x=value, y=twice)
    builder.output(builder.relu(x=conv(value, 8), name="y"))
    return builder.graph, (rng.standard_normal((1, 12, size, size)) * 0.5).astype(np.float16)


def test_a_large_map_stays_where_others_make_room():
    graph, x = excited()
    program = check(graph, x, Policy())
    plain = hexane.compile(graph, without=("l2-by-price", "bands"))
    assert traffic(program).moved < 0.4 * traffic(plain).moved
    assert program.estimate().engine_us < plain.estimate().engine_us
    (plans,) = engine_plans(program)
    assert any(
        plan.op.startswith("add") and plan.result.region.base == plan.source.region.base and plan.hout < 80
        for plan in plans
    )


def test_pixels_are_shuffled_band_by_band():
    rng = np.random.default_rng(6)
    builder = GraphBuilder()
    value = builder.input("x", (1, 24, 80, 80), "fp16")
    weight = (rng.standard_normal((96, 24, 1, 1)) / 5).astype(np.float16)
    value = builder.pixel_shuffle(x=builder.conv(x=value, weight=weight), upscale_factor=2)
    weight = (rng.standard_normal((4, 24, 1, 1)) / 5).astype(np.float16)
    builder.output(builder.conv(x=value, weight=weight, name="y"))
    x = rng.standard_normal((1, 24, 80, 80)).astype(np.float16)
    plain = check(builder.graph, x, Policy())  # as fast, so that nothing is cut; beside other gains it would be
    program = check(builder.graph, x, Policy(eager=True))
    assert max(plan.hout for plan in engine_plans(program)[0] if plan.out_trans) < 160
    assert traffic(program).moved < 0.6 * traffic(plain).moved


def test_convolutions_that_share_their_source_go_in_bands():
    rng = np.random.default_rng(7)
    builder = GraphBuilder()
    x = builder.input("x", (1, 144, 64, 64), "fp16")
    depthwise = (rng.standard_normal((144, 1, 3, 3)) / 3).astype(np.float16)
    value = builder.conv(x=builder.relu(x=x), weight=depthwise, groups=144, pad_type="same")
    weight = (rng.standard_normal((24, 144, 1, 1)) / 12).astype(np.float16)  # two tasks, of 16 and of 8 channels
    builder.output(builder.conv(x=value, weight=weight, name="y"))
    given_x = rng.standard_normal((1, 144, 64, 64)).astype(np.float16)
    program = check(builder.graph, given_x, Policy())
    (plans,) = engine_plans(program)
    assert sum(plan.cout in (8, 16) and plan.hout < 64 for plan in plans) >= 4
    assert traffic(program).ratio < 1.05


def test_a_growing_map_is_brought_back_once():
    """Channels are added to a map that has no room while they are made: it stays from its next reader on."""
    rng = np.random.default_rng(8)
    builder = GraphBuilder()
    value = builder.input("x", (1, 64, 56, 56), "fp16")
    for _ in range(4):
        c = value.shape[1]
        weight = (rng.standard_normal((96, c, 1, 1)) / np.sqrt(c)).astype(np.float16)
        made = builder.conv(x=builder.relu(x=value), weight=weight)
        weight = (rng.standard_normal((32, 96, 3, 3)) / 29).astype(np.float16)
        value = builder.concat(values=(value, builder.conv(x=made, weight=weight, pad_type="same")), axis=1)
    builder.output(builder.max_pool(x=value, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid", name="y"))
    x = rng.standard_normal((1, 64, 56, 56)).astype(np.float16)
    for room in (None, 1536 << 10, 1152 << 10, 1 << 20):
        program = check(builder.graph, x, Policy(room=room))
        if room == 1152 << 10:
            (plans,) = engine_plans(program)
            assert any(plan.source.type is SourceType.DMA_KEEP for plan in plans)


def pointwise(builder, rng, value, channels):
    weight = (rng.standard_normal((channels, value.shape[1], 1, 1)) / np.sqrt(value.shape[1])).astype(np.float16)
    return builder.conv(x=value, weight=weight)


def test_where_no_address_is_left_a_tensor_leaves_that_lives_then():
    """L2 has room for all that stays at any time, but not in one piece: what is gone by then would make none."""
    rng = np.random.default_rng(9)
    builder = GraphBuilder()
    x = builder.input("x", (1, 216, 28, 28), "fp16")
    left, right = builder.relu(x=pointwise(builder, rng, x, 432)), pointwise(builder, rng, x, 288)
    late = builder.sigmoid(x=right)
    value = builder.add(x=pointwise(builder, rng, right, 360), y=pointwise(builder, rng, left, 360))
    builder.output(builder.add(x=value, y=pointwise(builder, rng, late, 360), name="y"))
    program = compile_for(builder.graph, context_of("M1"))
    plain = compile_for(builder.graph, replace(context_of("M1"), policy=Policy(lambda key: False)))
    assert traffic(program).moved < 0.58 * traffic(plain).moved


def test_a_tensor_that_leaves_l2_between_its_readers_is_brought_back_once():
    """Two of its three readers find it there, and the last one brings it, where no address is left for a whole stay."""
    rng = np.random.default_rng(9)
    builder = GraphBuilder()
    x = builder.input("x", (1, 144, 28, 28), "fp16")
    wide = builder.concat(values=(pointwise(builder, rng, x, 432), x), axis=1)
    small = pointwise(builder, rng, x, 72)
    twice = builder.relu(x=small)
    wide = builder.max_pool(x=wide, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same")
    left, narrow = builder.add(x=small, y=twice), pointwise(builder, rng, wide, 72)
    last = builder.concat(values=(twice, twice), axis=1)
    total = builder.add(x=pointwise(builder, rng, narrow, 432), y=pointwise(builder, rng, left, 432))
    builder.output(builder.add(x=total, y=pointwise(builder, rng, last, 432), name="y"))
    rows = []
    compile_for(builder.graph, replace(context_of("M1", "apple"), on_spills=rows.extend), "apple")
    assert sorted((row.written, row.read) for row in rows) == [(2 * c * 28 * 28,) * 2 for c in (144, 576)]


def test_bands_are_not_cut_where_everything_fits():
    graph, x = chain()
    (plans,) = engine_plans(check(graph, x, Policy()))
    assert len(plans) == 5


@pytest.mark.parametrize("heights", [(6, 6, 6, 4), (4, 4, 6), (6, 4, 12, 12)])
def test_planes_of_a_buffer_are_those_of_most_of_its_walks(heights):
    buffer = Buffer("b", Space.SCRATCH)
    ends = [
        TaskOperand(i, RESULT, Extents(1, 1, 24 // h, h, 32), 2, Dma(buffer, 0, 64, 64 * h, 0, 0), Region(), False)
        for i, h in enumerate(heights)
    ]
    fits = {plane: sum(h % plane == 0 for h in heights) for plane in heights}
    wanted = min(heights, key=lambda plane: (-fits[plane], plane))
    grid = grid_of(ends, None, 24 * 64)
    assert grid is not None and (grid.c, grid.h, grid.row_bytes) == (24 // wanted, wanted, 64)


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 20)), max_size=40))
@settings(deadline=None, max_examples=60)
@example([(1153, 0, 1), (1793, 1, 1), (4193, 0, 1), (4193, 0, 1), (4993, 0, 1)])  # in no order, another block each
def test_addresses_never_overlap(rows):
    blocks = [ArenaBlock(size, min(a, b), max(a, b), unit=16) for size, a, b in rows]
    arena = Arena(0, 20, 16 << 10)
    refused = arena.place_all(blocks)
    placed = [block for block in blocks if block.base >= 0]
    assert refused is None or refused.base < 0
    assert len(placed) == (len(blocks) if refused is None else 0)
    for i, a in enumerate(placed):
        assert a.end <= 16 << 10 and a.base % 16 == 0
        for b in placed[:i]:
            assert a.last < b.first or b.last < a.first or a.end <= b.base or b.end <= a.base


class Unsorted(Arena):
    """Each block is compared with all that are placed."""

    def _between(self, first, last):
        return sorted({block for row in self._placed.values() for block in row}, key=lambda b: (b.base, b.first))


@given(st.lists(st.tuples(st.integers(1, 6000), st.integers(0, 400), st.integers(0, 90)), max_size=60))
@settings(deadline=None, max_examples=60)
def test_addresses_are_those_of_a_comparison_with_every_block(rows):
    """Blocks of stretches of tasks: some live in one of them, some through several."""
    own, other = ([ArenaBlock(size, a, a + n, unit=64, offset=a % 3 * 16) for size, a, n in rows] for _ in range(2))
    Arena(0, 500, 16 << 10).place_all(own)
    Unsorted(0, 500, 16 << 10).place_all(other)
    assert [block.base for block in own] == [block.base for block in other]


def gate_before_convolutions():
    """A map times one number per channel, which the product finds in L2, and convolutions behind it."""
    rng = np.random.default_rng(2)
    b = GraphBuilder()
    x = b.input("x", (1, 2, 6, 15), "fp16")
    mean = b.reduce_mean(x=x, axes=[2, 3], keep_dims=True)
    gate = b.sigmoid(x=b.conv(x=mean, weight=rng.standard_normal((2, 2, 1, 1)).astype(np.float16)))
    y = b.mul(x=x, y=gate)
    for cout in (37, 37):
        weight = (rng.standard_normal((cout, y.shape[1], 3, 3)) / 6).astype(np.float16)
        y = b.conv(x=y, weight=weight, pad_type="same")
    b.output(b.identity(x=y, name="y"))
    return b.graph, rng.standard_normal((1, 2, 6, 15)).astype(np.float16)


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize("wanted", [lambda key: False, lambda key: True])
def test_what_a_group_holds_outlives_the_bands_of_its_last_task(chip, wanted):
    """Each band of the product reads the gate that stands in L2: other tasks of the bands must leave it there."""
    graph, x = gate_before_convolutions()
    check(graph, x, Policy(wanted, None, True), chip)


@pytest.mark.parametrize("n", [16, 64])
def test_rows_that_a_turned_copy_writes_are_no_rows_of_its_result(n):
    """A vector turned into a column, of which a part is wanted: the turned copy has one row and writes all of them."""
    builder = GraphBuilder()
    column = builder.transpose(x=builder.input("x", (1, n), "fp16"), perm=[1, 0])
    _, part = builder.split(x=column, split_sizes=[9, n - 9], axis=0)
    builder.output(builder.relu(x=part, name="y"))
    program = hexane.compile(builder.graph, without=("in-place-moves",))
    x = np.arange(n, dtype=np.float16).reshape(1, n)
    np.testing.assert_array_equal(agreed(program, {"x": x})["y"], x.T[9:])


@pytest.mark.filterwarnings("error")
def test_a_result_that_stays_and_leaves_keeps_its_whole_tile():
    """Keys and values of a prefill, which go to the cache and to the product: what stays is written at once."""
    builder = GraphBuilder()
    keys = builder.op(
        "add", x=builder.input("k", (1, 4, 1024, 64), "fp16"), y=builder.input("shift", (1, 4, 1024, 64), "fp16")
    )
    values = builder.op("reshape", x=builder.input("v", (1, 1024, 256), "fp16"), shape=(1, 1024, 4, 64))
    values = builder.op("transpose", x=values, perm=(0, 2, 1, 3))
    queries = builder.op("reshape", x=builder.input("q", (1, 8, 1024, 64), "fp16"), shape=(1, 4, 2048, 64))
    scores = builder.op("matmul", x=queries, y=keys, transpose_y=True)
    scores = builder.op("add", x=scores, y=np.triu(np.full((2048, 1024), -4, np.float16)))
    weights = builder.op("softmax", x=scores, axis=-1)
    for result in (builder.op("matmul", x=weights, y=values), keys, values):
        builder.output(result)
    hexane.compile(builder.graph, "M4")
