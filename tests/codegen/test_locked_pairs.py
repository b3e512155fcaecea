"""Locked pairs: which tasks are, with the same bits, a smaller price, and none where Apple's forms are asked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import hexane
from codegen.test_residency import boxes_hold, engine_plans, pairs_hold
from hexane.codegen.residency.pairs import LOCKED
from hexane.graph import GraphBuilder

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
    return sum(bool(plan.reads.after & LOCKED) for plans in engine_plans(program) for plan in plans)


def checked(program, inputs):
    for plans in engine_plans(program):
        boxes_hold(plans)
        pairs_hold(plans)
    agreed(program, inputs)


@pytest.mark.parametrize("function", [residual, exchanged, table_and_product, squares_and_sum])
def test_pairs(function):
    graph, inputs = build(function)
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
            if plan.reads.after & LOCKED and leader.unit != plan.unit:
                assert not (plan.op.startswith(follower) and function is difference)
                assert plan.kh == 1 and leader.cout <= 256


@pytest.mark.parametrize("shape", [(1, 64, 7, 7), (1, 24, 5, 300), (2, 32, 16, 16), (1, 32, 200, 200)])
def test_odd_maps(shape):
    for function in (residual, exchanged, table_and_product):
        graph, inputs = build(function, shape)
        checked(hexane.compile(graph), inputs)
