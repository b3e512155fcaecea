"""Programs for an engine with an eighth of L2: every region stays in it, and the numbers are the same."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from codegen.test_residency import boxes_hold, engine_plans
from hexane import chips
from hexane.codegen.driver import compile_for, context_of
from hexane.codegen.targets.h13 import H13
from hexane.emulator.engine import Engine
from hexane.emulator.program import EmulatedProgram
from hexane.errors import EmulationError
from hexane.graph import GraphBuilder
from hexane.passes.prices import dense_sum, planar

ROOM = 256 << 10
LIMITS = replace(H13().limits, l2_bytes=ROOM)


class Small(H13):
    limits = LIMITS


class SmallChip(chips.Chip):
    generation = LIMITS


def on_engine(segment, x, l2_bytes):
    """The segment's output on an emulated engine with so many bytes of L2."""
    program = EmulatedProgram.of(segment.image)
    engine = Engine(program.memory(segment.surfaces({"x": x})), l2_bytes)
    for registers in program.chain():
        engine.execute(registers)
    return next(iter(segment.declared(program.results(engine.memory)).values()))


def network(name):
    rng = np.random.default_rng(7)
    builder = GraphBuilder()
    x = builder.input("x", (1, 16, 72, 128) if name != "product" else (1, 1, 256, 384), "fp16")
    if name == "conv":
        y = builder.conv(x=x, weight=rng.normal(size=(16, 16, 3, 3)).astype(np.float16) / 32, pad_type="same")
    elif name == "pool":
        y = builder.max_pool(x=x, kernel_sizes=(3, 3), strides=(2, 2), pad_type="valid")
    elif name == "sum":
        y = builder.add(x=builder.tanh(x=x), y=builder.relu(x=x))
    elif name == "turn":
        y = builder.transpose(x=x, perm=(0, 2, 3, 1))
    elif name == "softmax":
        y = builder.softmax(x=x, axis=-1)
    else:
        y = builder.linear(x=x, weight=rng.normal(size=(128, 384)).astype(np.float16) / 32)
    builder.output(y)
    return builder.graph


@pytest.mark.parametrize("name", ["conv", "pool", "sum", "turn", "softmax", "product"])
def test_a_smaller_l2(name):
    graph, context = network(name), context_of("M1")
    x = np.random.default_rng(1).normal(size=graph.main.inputs[0].shape).astype(np.float16)
    whole = compile_for(graph, context)
    small = compile_for(graph, replace(context, target=Small()))
    assert all(segment.plans for segment in small.segments)
    for plans in engine_plans(small):
        boxes_hold(plans, ROOM)
    expected, result = (next(iter(p.run({"x": x}).values())) for p in (whole, small))
    np.testing.assert_array_equal(result, expected)
    (segment,), (wide,) = small.segments, whole.segments
    np.testing.assert_array_equal(on_engine(segment, x, ROOM), expected)
    if max(chart.end for chart in whole.l2_maps()) > ROOM:
        with pytest.raises(EmulationError, match=r"0x40000 bytes"):
            on_engine(wide, x, ROOM)


def test_prices_ask_the_chip():
    large = chips.get("M1")
    small = SmallChip(**{field.name: getattr(large, field.name) for field in fields(large)})
    for chip, away in ((large, False), (small, True)):
        assert planar("unary", 100_000, chip).reads_input is away
        assert dense_sum(1000, 100, 10, chip).reads_input is away
        assert dense_sum(1000, 10, 100, chip).writes_output is away
