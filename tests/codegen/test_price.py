"""The price of a plan is that of the task made from it."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from codegen import test_heads
from codegen.programs import converter, every_program, expected_tasks, graph_of, load
from hexane import chips
from hexane.chips.measured import constants
from hexane.codegen.price import facts_of, price_us
from hexane.cost.model import time_work
from hexane.errors import HexaneError
from hexane.formats import onnx
from hexane.timing.from_tasks import facts_of as facts_of_task
from hexane.timing.from_tasks import work_of_tasks

LATER = {"h14": "M2", "h15": "M3", "h16": "M4", "h17": "M5", "h18": "A19"}
"""A chip of each generation after H13."""


def require_same(program):
    chip = chips.get(program.chip)
    for segment in program.segments:
        if segment.image is None:
            continue
        tasks = segment.image.tasks
        for index, (plan, task) in enumerate(zip(segment.plans, tasks, strict=True)):
            assert facts_of(plan, chip.generation_name) == facts_of_task(task), f"task {index}: {plan.op}"
    if len(program.segments) == 1:
        engine = program.estimate()
        assert sum(t.us for t in engine.tasks) == pytest.approx(price_us(program.segments[0].plans, chip), rel=1e-12)


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


@pytest.mark.parametrize("generation", LATER)
def test_later_generations(shared, generation):
    """Networks of Apple's programs, every fifth, compiled for each generation after H13."""
    paths = every_program(shared / "apple", "h13")
    to_mil = converter(paths[0])
    done = 0
    for path in paths[list(LATER).index(generation) :: len(LATER)]:
        try:
            require_same(hexane.compile(graph_of(load(path), to_mil), LATER[generation]))
        except HexaneError:
            continue
        done += 1
    assert done > 30


@pytest.mark.parametrize(("folder", "chip"), [("h14", "M2"), ("h15", "M3"), ("h16", "A17 Pro"), ("h16g", "M4")])
def test_apple_tasks(shared, folder, chip):
    """Tasks by Apple's compiler of later generations: about the time of the network's layers."""
    paths = every_program(shared / "apple", folder)
    to_mil = converter(paths[0])
    ratios = []
    for path in paths:
        program = load(path)
        try:
            graph = graph_of(program, to_mil)
        except HexaneError:
            continue
        work = work_of_tasks(expected_tasks(program))
        numbers = {name: constant.value for name, constant in constants(chip).items()}
        us = sum(item.us for item in time_work(work, chips.get(chip), numbers))
        ratios.append(us / sum(op.us for op in hexane.estimate(graph, chip).ops))
    assert 0.9 < np.median(ratios) < 1.1


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
