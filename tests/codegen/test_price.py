"""The price of a plan is that of the task made from it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import hexane
from codegen import test_heads
from codegen.programs import every_program, expected_tasks, graph_of, load
from hexane import chips
from hexane.chips.measured import constants
from hexane.codegen.operations import NeOp
from hexane.codegen.price import facts_of, price_us, sum_us
from hexane.cost.model import time_work
from hexane.cost.task import layer_of
from hexane.cost.work import Work
from hexane.errors import HexaneError
from hexane.formats import onnx
from hexane.graph import GraphBuilder
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
def test_apple_programs(dialect):
    paths = every_program("h13")
    done = 0
    for path in paths:
        try:
            program = hexane.compile(graph_of(load(path)), dialect=dialect)
        except HexaneError:
            continue
        require_same(program)
        done += 1
    assert done > 200


@pytest.mark.parametrize("generation", LATER)
def test_later_generations(generation):
    """Networks of Apple's programs, every fifth, compiled for each generation after H13."""
    paths = every_program("h13")
    done = 0
    for path in paths[list(LATER).index(generation) :: len(LATER)]:
        try:
            require_same(hexane.compile(graph_of(load(path)), LATER[generation]))
        except HexaneError:
            continue
        done += 1
    assert done > 30


@pytest.mark.parametrize(("folder", "chip"), [("h14", "M2"), ("h15", "M3"), ("h16", "A17 Pro"), ("h16g", "M4")])
def test_apple_tasks(folder, chip):
    """Tasks by Apple's compiler of later generations: about the time of the network's layers."""
    paths = every_program(folder)
    ratios = []
    for path in paths:
        program = load(path)
        try:
            graph = graph_of(program)
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


# -- choices that the price leaves to Apple's rules --------------------------------------------------------------------


@cache
def convolutions():
    """Plans of dense, strided and grouped convolutions, whole and in blocks of outputs, in L2 and in tiles."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 32, 96, 96), "fp16")
    y = x
    for cout, k, stride, groups in [(64, 3, 1, 1), (96, 3, 2, 1), (520, 3, 1, 1), (520, 1, 1, 4), (128, 5, 2, 1)]:
        cin = y.shape[1]
        weight = (rng.normal(size=(cout, cin // groups, k, k)) / (cin * k * k) ** 0.5).astype(np.float16)
        y = b.relu(x=b.conv(x=y, weight=weight, strides=[stride, stride], pad_type="same", groups=groups))
    b.output(y)
    return [plan for plan in hexane.compile(b.graph).segments[0].plans if plan.ne.op is NeOp.SUM]


def test_tiles_patches_and_output_groups_cost_the_same():
    """No register that the model reads: what Apple's compiler takes stays, at equal cost."""
    chip = chips.get("M1")
    for plan in convolutions():
        price = price_us([plan], chip)
        for given in ({"tile": 4}, {"ocg": plan.ocg ^ 1}, {"shape": (0, 0, 0)}, {"cores_log2": 2}, {"fat_tile": True}):
            assert price_us([replace(plan, **given)], chip) == price


@pytest.mark.parametrize("cin, cout, k", [(64, 64, 3), (512, 512, 3), (256, 1000, 1), (24, 40, 5)])
@pytest.mark.parametrize("pixels", [1, 49, 196, 3136])
def test_more_blocks_of_outputs_never_cost_less(pixels, cin, cout, k):
    """So that as few blocks as the cores' kernel memory allows are the cheapest."""
    chip = chips.get("M1")
    whole = sum_us(chip, pixels, (cin, cout), (k, k, 1), 1.0)
    for parts in (2, 4, 8):
        assert parts * sum_us(chip, pixels, (cin, -(-cout // parts)), (k, k, 1), 1.0) >= whole


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize("k, n", [(4096, 4096), (9216, 4096), (1024, 1000), (384, 1536)])
def test_weights_as_the_map_cost_more_than_as_the_kernel(rows, k, n):
    """The swapped product of a fully connected layer reads as many bytes, and kernels that are computed run slower."""
    chip = chips.get("M1")
    facts = facts_of(convolutions()[0])
    common = dict(hin=1, din=1, hout=1, kh=1, kw=1, stride=1, groups=1, writes=False, follows=False, stored="fp16")
    plain = dict(win=rows, wout=rows, cin=k, cout=n, read_bytes=None, kernel_bytes=2 * k * n, computed=False)
    swapped = dict(win=n, wout=n, cin=k, cout=rows, read_bytes=2.0 * k * n, kernel_bytes=2 * rows * k, computed=True)
    numbers = {name: constant.value for name, constant in constants(chip).items()}
    first, second = (
        time_work(Work((layer_of(facts._replace(**common, **given), ""),)), chip, numbers)[0].us
        for given in (plain, swapped)
    )
    assert first <= second
