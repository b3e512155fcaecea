"""Attention of several heads with keys as channels: the bits of graph level, near float32, and where it is not done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hexane
from codegen.test_residency import boxes_hold, engine_plans
from hexane.chips import Evidence
from hexane.graph import GraphBuilder
from hexane.lowering.attention import Sizes

from .levels import agreed

NAME = "keys-as-channels"
BLOCKS = "query-blocks"


def attention(
    queries, keys, heads, dims, *,
    mask="shared", rows=True, scale=0.2, divisor=None, given="keys", second=None, turned="",
):  # fmt: skip
    """softmax(scale q k^T + mask) v over heads, then a linear layer; or the scores over a divisor.

    given : how k comes, [keys, D] or turned.
    turned : operands that are inputs [1, H, D, S], where there are no ``rows``.
    """
    b = GraphBuilder()

    def operand(name, tokens, perm=(0, 2, 1, 3)):
        if name in turned:
            return b.transpose(x=b.input(name, (1, heads, dims, tokens), "fp16"), perm=[0, 1, 3, 2])
        if not rows:
            return b.input(name, (1, heads, tokens, dims), "fp16")
        x = b.input(name, (1, tokens, heads * dims), "fp16")
        return b.transpose(x=b.reshape(x=x, shape=[1, tokens, heads, dims]), perm=list(perm))

    q, v = operand("q", queries), operand("v", keys)
    if given == "keys":
        scores = b.matmul(x=q, y=operand("k", keys), transpose_y=True)
    else:
        scores = b.matmul(x=q, y=operand("k", keys, (0, 2, 3, 1)))
    if divisor:
        scores = b.real_div(x=scores, y=np.float16(divisor))
    elif scale:
        scores = b.mul(x=scores, y=np.float16(scale))
    if mask == "row":
        scores = b.add(x=scores, y=b.input("mask", (1, 1, 1, keys), "fp16"))
    elif mask == "shared":
        scores = b.add(x=scores, y=b.input("mask", (1, 1, queries, keys), "fp16"))
    elif mask == "constant":
        scores = b.add(x=scores, y=np.triu(np.full((1, 1, queries, keys), -100, np.float16), 1))
    elif mask == "each":
        scores = b.add(x=b.input("mask", (1, heads, queries, keys), "fp16"), y=scores)
    weights = b.softmax(x=scores, axis=-1)
    if second == "weights":
        b.output(b.relu(x=weights, name="weights"))
    made = b.matmul(x=weights, y=v)
    joined = b.reshape(x=b.transpose(x=made, perm=[0, 2, 1, 3]), shape=[1, queries, heads * dims])
    weight = 0.1 * np.random.default_rng(0).normal(size=(48, heads * dims))
    bias = np.linspace(-1, 1, 48).astype(np.float16)
    b.output(b.linear(x=joined, weight=weight.astype(np.float16), bias=bias, name="y"))
    return b.graph


def inputs_of(graph):
    rng = np.random.default_rng(1)
    return {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs}


def is_turned(program):
    return any("keys as channels" in reason for s in program.segments for reason in s.reasons.values())


def attention_of_batches():
    """The same as PyTorch's operators spell it: products of [H, S, D] between reshapes, rows of two axes."""
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    x = b.input("x", (1, 64, 96), "fp16")
    rows = b.reshape(x=x, shape=[64, 96])

    def weight(n=96):
        return (0.1 * rng.normal(size=(n, 96))).astype(np.float16)

    def heads(value, perm):
        split = b.reshape(x=value, shape=[1, 64, 3, 32])
        turned = b.transpose(x=split, perm=perm)
        return b.reshape(x=turned, shape=list(turned.shape[1:]))

    q, k, v = (b.linear(x=rows, weight=weight()) for _ in range(3))
    scores = b.matmul(x=heads(q, [0, 2, 1, 3]), y=heads(k, [0, 2, 3, 1]))
    weights = b.softmax(x=b.reshape(x=scores, shape=[1, 3, 64, 64]), axis=-1)
    made = b.matmul(x=b.reshape(x=weights, shape=[3, 64, 64]), y=heads(v, [0, 2, 1, 3]))
    back = b.transpose(x=b.reshape(x=made, shape=[1, 3, 64, 32]), perm=[0, 2, 1, 3])
    b.output(b.linear(x=b.reshape(x=back, shape=[64, 96]), weight=weight(48), name="y"))
    return b.graph


CASES = {
    "twelve heads": dict(queries=32, keys=32, heads=12, dims=32),
    "heads apart": dict(queries=32, keys=32, heads=4, dims=64, rows=False),
    "no mask, no factor": dict(queries=48, keys=64, heads=3, dims=16, mask=None, scale=0),
    "a constant mask": dict(queries=64, keys=64, heads=2, dims=32, mask="constant"),
    "a mask of one row": dict(queries=48, keys=64, heads=3, dims=32, mask="row"),
    "a divisor": dict(queries=64, keys=32, heads=4, dims=32, mask="row", divisor=5.657),
    "k turned": dict(queries=32, keys=64, heads=2, dims=32, given="columns"),
    "keys that fill no core": dict(queries=33, keys=100, heads=3, dims=16),
    "keys for 13 cores": dict(queries=128, keys=104, heads=4, dims=32),
    "dims in two tasks": dict(queries=20, keys=48, heads=2, dims=80, mask=None),
    "all turned": dict(queries=40, keys=32, heads=4, dims=64, rows=False, turned="qkv"),
    "a few heads at a time": dict(queries=500, keys=500, heads=3, dims=32, mask=None),
}


@pytest.mark.parametrize("off", [(), ("heads-as-groups",), ("hand-over",)])
@pytest.mark.parametrize("name", CASES)
def test_bits_of_graph_level(name, off):
    graph = attention(**CASES[name])
    program, inputs = hexane.compile(graph, without=off), inputs_of(graph)
    assert is_turned(program) and [s.kind for s in program.segments] == ["engine"]
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)


@pytest.mark.parametrize("chip", ["M2", "M3", "M4", "M5", "A19"])
@pytest.mark.parametrize("name", CASES)
def test_later_generations(name, chip):
    """One product for all heads that fit, however many passes their rows take; never slower than heads as batches."""
    graph = attention(**CASES[name])
    program, inputs = hexane.compile(graph, chip), inputs_of(graph)
    assert is_turned(program) and [s.kind for s in program.segments] == ["engine"]
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)
    assert program.estimate().engine_us < hexane.compile(graph, chip, without=(NAME,)).estimate().engine_us


@pytest.mark.parametrize("chip", ["M2", "M5"])
def test_later_generations_head_by_head(chip):
    graph = attention(**CASES["dims in two tasks"])
    program, inputs = hexane.compile(graph, chip, without=("heads-as-groups",)), inputs_of(graph)
    assert is_turned(program)
    agreed(program, inputs)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_attention(data):
    """Any sizes, any generation, transformations left out: the bits of graph level, nothing over a live value."""
    case = dict(
        queries=data.draw(st.sampled_from([16, 33, 40, 64, 77, 130])),
        keys=data.draw(st.sampled_from([32, 36, 64, 80, 100, 196])),
        heads=data.draw(st.sampled_from([2, 3, 5, 12])),
        dims=data.draw(st.sampled_from([16, 32, 48, 64, 80])),
        mask=data.draw(st.sampled_from(["shared", None, "constant", "row"])),
        rows=data.draw(st.booleans()),
        divisor=data.draw(st.sampled_from([None, 3.0])),
    )
    if case["rows"]:
        case["given"] = data.draw(st.sampled_from(["keys", "columns"]))
    chip = data.draw(st.sampled_from(["M1", "M2", "M3", "M4", "M5", "A19"]))
    off = data.draw(st.sampled_from([(), (), ("heads-as-groups",), ("hand-over",), ("l2-parts",), ("bands",)]))
    graph = attention(**case)
    program, inputs = hexane.compile(graph, chip, without=off), inputs_of(graph)
    for plans in engine_plans(program):
        boxes_hold(plans)
    agreed(program, inputs)


def attention_of_images(images, tokens, heads, dims, *, flat, mask):
    """softmax(q k^T / 4 + mask) v of several images; ``flat``: products of [B H, ..] between reshapes."""
    b = GraphBuilder()
    whole, joined = [images, heads, tokens], [images * heads, tokens]

    def operand(name):
        x = b.input(name, (images, tokens, heads * dims), "fp16")
        split = b.transpose(x=b.reshape(x=x, shape=[images, tokens, heads, dims]), perm=[0, 2, 1, 3])
        return b.reshape(x=split, shape=[*joined, dims]) if flat else split

    scores = b.matmul(x=operand("q"), y=operand("k"), transpose_y=True)
    scores = b.mul(x=b.reshape(x=scores, shape=[*whole, tokens]) if flat else scores, y=np.float16(0.25))
    if mask is not None:
        scores = b.add(x=scores, y=b.input("mask", (*mask, tokens), "fp16"))
    weights = b.softmax(x=scores, axis=-1)
    made = b.matmul(x=b.reshape(x=weights, shape=[*joined, tokens]) if flat else weights, y=operand("v"))
    made = b.reshape(x=made, shape=[*whole, dims]) if flat else made
    rows = b.reshape(x=b.transpose(x=made, perm=[0, 2, 1, 3]), shape=[images, tokens, heads * dims])
    b.output(b.relu(x=rows, name="y"))
    return b.graph


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("mask", [None, (1, 1, 48), (1, 1, 1), (3, 1, 48)])
@pytest.mark.parametrize("flat", [False, True])
def test_heads_of_several_images(chip, mask, flat):
    """Those of one image with as many times the heads, unless each image has a mask of its own."""
    graph = attention_of_images(3, 48, 2, 32, flat=flat, mask=mask)
    program, inputs = hexane.compile(graph, chip), inputs_of(graph)
    assert is_turned(program) == (mask != (3, 1, 48)) and [s.kind for s in program.segments] == ["engine"]
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)
    if is_turned(program):
        assert program.estimate().engine_us < hexane.compile(graph, chip, without=(NAME,)).estimate().engine_us


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("mask", [None, "shared", "row"])
def test_some_queries_at_a_time(chip, mask):
    """Scores of one head beyond L2: blocks of queries, the last one shorter; never slower than through memory."""
    graph = attention(840, 800, 2, 16, mask=mask)
    program, inputs = hexane.compile(graph, chip), inputs_of(graph)
    assert is_turned(program) and [s.kind for s in program.segments] == ["engine"]
    for plans in engine_plans(program):
        boxes_hold(plans)
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)
    plain = hexane.compile(graph, chip, without=(BLOCKS,))
    assert not is_turned(plain) and program.estimate().engine_us < plain.estimate().engine_us


def test_blocks_of_queries_in_a_program_of_255_tasks():
    """More blocks than a program from H14 on has tasks for: as it was, on the engine and not on the host."""
    graph = attention(1500, 1500, 8, 16, mask=None)
    assert is_turned(hexane.compile(graph))
    program = hexane.compile(graph, "M4")
    assert not is_turned(program) and [s.kind for s in program.segments] == ["engine"]


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("given", ["keys", "columns"])
def test_keys_and_values_beyond_l2_are_staged_some_tokens_at_a_time(chip, given):
    graph = attention(16, 2048, 8, 80, mask=None, given=given)
    program, inputs = hexane.compile(graph, chip), inputs_of(graph)
    assert is_turned(program) and [s.kind for s in program.segments] == ["engine"]
    staged = [
        plan.result.dma
        for plan in program.segments[0].plans
        if plan.result.dma is not None and plan.result.dma.interleave > 1
    ]
    assert len(staged) > 2 == len({walk.buffer for walk in staged})
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)


@pytest.mark.parametrize("heads", [2, 3])
def test_no_task_for_several_heads_is_apples(heads):
    """Copies and products of all heads at once are inferred, however few heads there are."""
    program = hexane.compile(attention(32, 32, heads, 64, rows=False))
    several = [plan for plan in program.segments[0].plans if plan.groups == heads]
    assert len(several) > 2 and {plan.evidence for plan in several} == {Evidence.INFERRED}


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_blocks_of_queries(data):
    """With less room in L2 for scores, so that small attention goes in blocks of queries too."""
    case = dict(
        queries=data.draw(st.sampled_from([40, 64, 77, 130, 200])),
        keys=data.draw(st.sampled_from([32, 36, 64, 100, 196])),
        heads=data.draw(st.sampled_from([2, 3, 5])),
        dims=data.draw(st.sampled_from([16, 32, 80])),
        mask=data.draw(st.sampled_from(["shared", None, "constant", "row"])),
        rows=data.draw(st.booleans()),
        divisor=data.draw(st.sampled_from([None, 3.0])),
    )
    if case["rows"]:
        case["given"] = data.draw(st.sampled_from(["keys", "columns"]))
    chip = data.draw(st.sampled_from(["M1", "M2", "M4", "A19"]))
    off = data.draw(st.sampled_from([(), ("heads-as-groups",), ("hand-over",), ("halved-maxima",)]))
    room = data.draw(st.sampled_from([48 << 10, 96 << 10, 160 << 10]))
    graph = attention(**case)
    at_once = Sizes.at_once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sizes, "at_once", lambda sizes, limits: at_once(sizes, replace(limits, l2_bytes=room)))
        program = hexane.compile(graph, chip, without=off)
    inputs = inputs_of(graph)
    for plans in engine_plans(program):
        boxes_hold(plans)
    agreed(program, inputs)


def test_products_of_batches():
    graph = attention_of_batches()
    program, inputs = hexane.compile(graph), inputs_of(graph)
    assert is_turned(program)
    # the input as rows; a copy and three products, three copies, two products and five of softmax, the product behind
    assert program.stats()["tasks"] <= 1 + 1 + 3 + 3 + 2 + 5 + 1
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)


def test_faster_and_switched_off():
    graph = attention(**CASES["twelve heads"])
    program = hexane.compile(graph)
    apple, off = hexane.compile(graph, dialect="apple"), hexane.compile(graph, without=(NAME,))
    assert not is_turned(apple) and not is_turned(off)
    assert apple.stats()["tasks"] >= off.stats()["tasks"] > program.stats()["tasks"]
    assert program.estimate().engine_us < 0.6 * apple.estimate().engine_us
    inputs = inputs_of(graph)
    agreed(off, inputs)


def test_task_count():
    """The mask turned; three copies, its copy and sum, two products per head or in all, five of softmax, one behind."""
    graph = attention(**CASES["twelve heads"])
    assert hexane.compile(graph).stats()["tasks"] == 1 + 3 + 2 + 2 + 5 + 1
    assert hexane.compile(graph, without="heads-as-groups").stats()["tasks"] == 1 + 3 + 2 + 2 * 12 + 5 + 1


@pytest.mark.parametrize(
    "case",
    [
        dict(queries=32, keys=32, heads=2, dims=32, mask="each"),
        dict(queries=32, keys=32, heads=1, dims=32),
        dict(queries=16, keys=64, heads=3, dims=64),  # few queries: k and v as kernels cost more
        dict(queries=32, keys=33, heads=2, dims=32),
        dict(queries=32, keys=32, heads=2, dims=32, second="weights"),
    ],
)
def test_not_done(case):
    graph = attention(**case)
    program, inputs = hexane.compile(graph), inputs_of(graph)
    assert not is_turned(program)
    agreed(program, inputs)


def masked(mask_value, keys=250):
    """Attention whose mask hides the later keys, and all keys of the third query; the inputs, with a huge score."""
    graph = attention(512, keys, 4, 32, scale=0.5)
    inputs = inputs_of(graph)
    mask = np.triu(np.full((512, keys), mask_value, np.float16), 1)
    mask[2] = mask_value
    inputs["mask"] = mask.reshape(1, 1, 512, keys)
    inputs["q"][0, 7] *= np.float16(40)
    return graph, inputs


@pytest.mark.parametrize("mask_value", [-np.inf, -65504, -1e4, np.nan])
def test_maxima_of_halves(mask_value):
    """Halves of the keys compared give the bits of one maximum: infinities, hidden rows and NaN, odd counts too."""
    graph, inputs = masked(mask_value)
    program, plain = hexane.compile(graph), hexane.compile(graph, without="halved-maxima")
    assert program.stats()["tasks"] > plain.stats()["tasks"]
    assert program.estimate().engine_us < plain.estimate().engine_us
    tasks = agreed(program, inputs)["y"]
    np.testing.assert_array_equal(tasks, plain.run(inputs)["y"])
    with np.errstate(invalid="ignore"):
        wanted = graph.evaluate(inputs)["y"]
    known = np.isfinite(wanted)
    assert known.mean() > 0.3  # NaN spoils the queries that it hides keys of
    known[:, 2] = False  # where all keys are hidden fp16 has lost the scores behind the mask
    np.testing.assert_allclose(tasks[known], wanted[known], atol=0.02)


@pytest.mark.parametrize(("given", "rows"), [("keys", True), ("keys", False), ("columns", True)])
@pytest.mark.parametrize("mask", [None, "shared", "constant", "row"])
def test_odd_keys(mask, given, rows):
    """Keys of zeros behind the last one, which a mask hides: their weights are 0, also of a row hidden whole."""
    graph = attention(64, 77, 4, 32, mask=mask, given=given, rows=rows)
    program, plain = hexane.compile(graph), hexane.compile(graph, without="padded-keys")
    assert is_turned(program) and not is_turned(plain) and [s.kind for s in program.segments] == ["engine"]
    assert program.estimate().engine_us < plain.estimate().engine_us
    inputs = inputs_of(graph)
    if mask == "shared":
        inputs["mask"][0, 0, 3] = -65504
        inputs["mask"][0, 0, 5, 1:] = -np.inf
    tasks = agreed(program, inputs)["y"]
    wanted = graph.evaluate(inputs)["y"]
    if mask == "shared":  # fp16 has lost the scores behind the mask: all keys count alike
        wanted[0, 3] = tasks[0, 3]
        np.testing.assert_allclose(tasks[0, 3], plain.run(inputs)["y"][0, 3], atol=0.02)
    np.testing.assert_allclose(tasks, wanted, atol=0.02)


def test_moves_of_values_alone():
    """Of three operands only v comes by moves, which attention takes: q and k are made of heads by other ops."""
    b = GraphBuilder()
    q, k = (b.relu(x=b.input(name, (1, 2, 64, 32), "fp16")) for name in "qk")
    rows = b.relu(x=b.input("v", (1, 64, 64), "fp16"))
    v = b.transpose(x=b.reshape(x=rows, shape=[1, 64, 2, 32]), perm=[0, 2, 1, 3])
    weights = b.softmax(x=b.matmul(x=q, y=k, transpose_y=True), axis=-1)
    b.output(b.identity(x=b.matmul(x=weights, y=v), name="y"))
    program, inputs = hexane.compile(b.graph), inputs_of(b.graph)
    assert is_turned(program) and [s.kind for s in program.segments] == ["engine"]
    agreed(program, inputs)
