"""Locked pairs: which tasks are, with the same bits, a smaller price, and none where Apple's forms are asked for.

Those that Apple's programs show are APPLE; others have to gain clearly.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import hexane
from codegen.test_residency import boxes_hold, engine_plans, pairs_hold
from hexane import chips
from hexane.chips import Evidence
from hexane.codegen.memory.pipelining import LOCKED, UNSHOWN, is_shown
from hexane.codegen.operations import After
from hexane.codegen.price import price_us
from hexane.graph import GraphBuilder
from kernels import apple

from .levels import agreed


def convolution(b, x, cout, rng, k=1):
    cin = x.shape[1]
    weight = (rng.normal(size=(cout, cin, k, k)) / (cin * k * k) ** 0.5).astype(np.float16)
    return b.conv(x=x, weight=weight, bias=rng.normal(size=cout).astype(np.float16), pad_type="same")


def residual(b, x, rng):
    return b.add(x=x, y=convolution(b, x, x.shape[1], rng, 3))


def exchanged(b, x, rng):
    return b.mul(x=b.relu(x=convolution(b, x, x.shape[1], rng)), y=x)


def table_and_product(b, x, rng):
    return b.mul(x=x, y=b.tanh(x=x))


def squares_and_sum(b, x, rng):
    return convolution(b, b.square(x=x), 32, rng)


def difference(b, x, rng):
    """Not commutative, and the map is the second operand."""
    return b.sub(x=x, y=convolution(b, x, x.shape[1], rng))


def many_outputs(b, x, rng):
    """The kernels do not fit the cores at once."""
    return b.square(x=convolution(b, x, 512, rng, 3))


def window(b, x, rng):
    """A sum over neighbours needs more than its own patch."""
    return convolution(b, b.square(x=x), 32, rng, 3)


def build(function, shape=(1, 64, 24, 30)):
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", shape, "fp16")
    first = convolution(b, x, shape[1], rng)
    b.output(
        b.relu(x=convolution(b, function(b, first, rng), 32, rng)),
    )
    return b.graph, {"x": rng.normal(size=shape).astype(np.float16)}


def locked(program):
    return sum(bool(plan.source.after & LOCKED) for plans in engine_plans(program) for plan in plans)


def checked(program, inputs):
    for plans in engine_plans(program):
        boxes_hold(plans)
        pairs_hold(plans)
    agreed(program, inputs)


@pytest.mark.parametrize("shape", [(1, 64, 24, 30), (1, 64, 28, 28), (1, 64, 20, 30), (1, 64, 32, 32)])
@pytest.mark.parametrize("function", [residual, exchanged, table_and_product, squares_and_sum])
def test_pairs(function, shape):
    """Also where Apple's patches would need more room than the tasks have alone."""
    graph, inputs = build(function, shape)
    program = hexane.compile(graph)
    checked(program, inputs)
    assert locked(program) >= 1
    registers = [task.get("L2.SourceCfg.Dependent") for s in program.segments if s.image for task in s.image.tasks]
    assert sum(map(bool, registers)) == locked(program)
    plain = hexane.compile(graph, without=("locked-pairs",))
    assert not locked(plain)
    assert hexane.estimate(program).engine_us < hexane.estimate(plain).engine_us
    for other in (hexane.compile(graph, strict=True), hexane.compile(graph, dialect="apple")):
        assert not locked(other)


@pytest.mark.parametrize("chip", ["M2", "M3", "M4", "A19"])
def test_later_generations(chip):
    """The operand that is followed is source 1, whose word says so on every generation."""
    for function in (residual, exchanged, table_and_product, squares_and_sum):
        graph, inputs = build(function)
        program, plain = hexane.compile(graph, chip), hexane.compile(graph, chip, without=("locked-pairs",))
        checked(program, inputs)
        assert hexane.estimate(program, chip).engine_us <= hexane.estimate(plain, chip).engine_us
        registers = [task.get("L2.SourceCfg.Dependent") for task in program.segments[0].image.tasks]
        assert sum(map(bool, registers)) == locked(program)
        if function is residual:
            assert locked(program)


@pytest.mark.parametrize("function", [difference, many_outputs, window])
def test_no_pairs_where_a_patch_is_not_enough(function):
    graph, inputs = build(function)
    program, plain = hexane.compile(graph), hexane.compile(graph, without=("locked-pairs",))
    checked(program, inputs)
    before, after = (p.stats()["tasks"] for p in (plain, program))
    assert before == after
    follower = {"difference": "sub", "many_outputs": "square", "window": "conv"}[function.__name__]
    for plans in engine_plans(program):
        for leader, plan in pairwise(plans):
            if plan.source.after & LOCKED and leader.unit != plan.unit:
                assert not (plan.op.startswith(follower) and function is difference)
                assert plan.window.kh == 1 and (plan if leader.unit == "PE" else leader).cout <= 256


@pytest.mark.parametrize("shape", [(1, 64, 7, 7), (1, 24, 5, 300), (2, 32, 16, 16), (1, 32, 200, 200)])
def test_odd_maps(shape):
    for function in (residual, exchanged, table_and_product):
        graph, inputs = build(function, shape)
        checked(hexane.compile(graph), inputs)


def difference_and_table(b, x, rng):
    """Of a softmax: Apple's programs show the pair."""
    return b.exp2(x=difference(b, x, rng))


def square_and_mean(b, x, rng):
    """Of a norm: the sum takes a fraction of what its squares do."""
    mean = b.conv(x=b.square(x=x), weight=np.full((1, x.shape[1], 1, 1), 1 / x.shape[1], np.float16))
    return b.mul(x=x, y=b.sigmoid(x=mean))


def pairs_of(program):
    for plans in engine_plans(program):
        for leader, plan in pairwise(plans):
            if plan.source.after & LOCKED and leader.unit != plan.unit:
                yield leader, plan


@pytest.mark.parametrize("function", [residual, exchanged, table_and_product, squares_and_sum, difference_and_table])
def test_only_shown_pairs_are_apples_and_others_gain_clearly(function):
    graph, inputs = build(function)
    program = hexane.compile(graph)
    checked(program, inputs)
    found = list(pairs_of(program))
    assert found
    for leader, plan in found:
        free = plan.reading(after=After.NOTHING)
        apart, together = (price_us((leader, task), chips.get("M1")) for task in (free, plan))
        assert apart / together > (1 if is_shown(leader, plan) else UNSHOWN)
        assert (plan.evidence is Evidence.APPLE) == is_shown(leader, plan), plan.note
    assert any(is_shown(*pair) for pair in found) == (function is difference_and_table)


def test_a_thin_gain_is_none():
    """Neither the pair nor room kept for it: the tasks are those of Apple's forms."""
    graph, inputs = build(square_and_mean, (1, 384, 1, 128))
    program = hexane.compile(graph)
    checked(program, inputs)
    (plans,) = engine_plans(program)
    at = next(i for i, plan in enumerate(plans) if plan.op.startswith("square"))
    assert plans[at + 1].cout == 1 and not plans[at + 1].source.after & LOCKED
    assert plans[at].evidence is plans[at + 1].evidence is Evidence.APPLE


@pytest.mark.parametrize("generation", ["h13", "h14"])
def test_apples_programs_show_a_table_behind_planar_work(facts, generation):
    """Programs where the cores' table follows a planar task of two operands, on each generation that is cited."""
    paths = [*facts.glob(f"apple/{generation}/*.json"), *facts.glob(f"apple/more/{generation}/*.json")]
    shown = set()
    for path in paths:
        tasks = apple.tasks(apple.load(path))
        for leader, task in pairwise(tasks):
            behind = task.get("Common.TaskInfo.NID") and task.get("L2.SourceCfg.Dependent") == 2
            if behind and leader.get("Common.Cfg.PEKind") == 3 and task.get("NE.MACCfg.OpMode") == 4:
                assert task.get("NE.MACCfg.NonlinearMode") == 2 or task.get("Common.Cfg.OutTrans")
                shown.add((path.stem, task.get("NE.MACCfg.NonlinearMode") == 2))
    assert sum(table for _, table in shown) >= 5
