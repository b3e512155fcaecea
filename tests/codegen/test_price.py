"""The price of a plan is that of the task made from it."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from codegen import test_heads
from codegen.programs import converter, every_program, graph_of, load
from hexane import chips
from hexane.codegen.price import facts_of, price_us
from hexane.errors import HexaneError
from hexane.formats import onnx
from hexane.timing.from_tasks import facts_of as facts_of_task


def require_same(program):
    for segment in program.segments:
        if segment.image is None:
            continue
        tasks = segment.image.tasks
        for index, (plan, task) in enumerate(zip(segment.plans, tasks, strict=True)):
            assert facts_of(plan) == facts_of_task(task), f"task {index}: {plan.op}"
    if len(program.segments) == 1:
        engine = program.estimate()
        assert sum(t.us for t in engine.tasks) == pytest.approx(
            price_us(program.segments[0].plans, chips.get("M1")), rel=1e-12
        )


@pytest.mark.parametrize("dialect", ["default", "apple"])
def test_apple_programs(shared, dialect):
    paths = every_program(shared / "apple", "h13")
    to_mil = converter(paths[0])
    done = 0
    for path in paths:
        try:
            program = hexane.compile(graph_of(load(path), to_mil), dialect=dialect)
        except HexaneError:
            continue
        require_same(program)
        done += 1
    assert done > 200


def test_attention():
    require_same(hexane.compile(test_heads.attention(**test_heads.CASES["twelve heads"])))


def test_network():
    from formats.zoo import light_model

    pytest.importorskip("onnx")
    require_same(hexane.compile(onnx.load(light_model("squeezenet"))))


def test_a_pair_overlaps():
    """A table behind a difference, patch by patch, takes no longer than the longer of the two."""
    program = hexane.compile(test_heads.attention(**test_heads.CASES["twelve heads"]))
    plans = program.segments[0].plans
    at = next(i for i, plan in enumerate(plans) if facts_of(plan).follows)
    alone = [price_us([plan], chips.get("M1")) for plan in plans[at - 1 : at + 1]]
    both = price_us(plans[at - 1 : at + 1], chips.get("M1"))
    assert max(alone) <= both < 0.8 * np.sum(alone)
