"""Marks of evidence: what Apple's compiler was seen to write, and what ``strict`` refuses."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.chips import Evidence
from hexane.codegen.plan import OWN_DMA, Plan
from hexane.codegen.recipes.registry import all_recipes
from hexane.codegen.select import load_recipes
from hexane.codegen.targets.table import targets
from hexane.errors import Reason, UnsupportedError
from hexane.graph import GraphBuilder

from .levels import agreed


def comparison(op: str):
    b = GraphBuilder()
    x, y = b.input("x", (1, 16, 8, 8), "fp16"), b.input("y", (1, 16, 8, 8), "fp16")
    b.output(b.op(op, x=x, y=y), name="z")
    return b.graph


def test_less_of_two_tensors_is_apples() -> None:
    (segment,) = hexane.compile(comparison("less"), strict=True).segments
    assert set(segment.evidence.values()) == {"APPLE"}


@pytest.mark.parametrize("op", ["less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_other_comparisons_are_inferred_and_strict_refuses_them(op: str) -> None:
    (segment,) = hexane.compile(comparison(op)).segments
    assert segment.kind == "engine" and set(segment.evidence.values()) == {"INFERRED"}
    with pytest.raises(UnsupportedError) as caught:
        hexane.compile(comparison(op), strict=True)
    assert caught.value.code == Reason.EVIDENCE and "INFERRED" in (caught.value.hint or "")


def test_a_task_is_inferred_until_a_target_shows_its_recipe() -> None:
    plan = Plan()
    assert plan.evidence is Evidence.INFERRED and plan.doubt
    example = plan.but(recipe_doubt="")
    assert example.evidence is Evidence.APPLE and not example.doubt
    assert example.inferred("first").inferred("second").doubt == "first"
    beside = plan.inferred(OWN_DMA).but(note="")  # what residency does when it finds the operand in L2
    assert beside.evidence is Evidence.INFERRED


def test_what_targets_show_are_recipes() -> None:
    load_recipes()
    names = {recipe.name for recipe in all_recipes()}
    assert not {name for target in targets() for name in target.examples} - names


def norm_of_squares(bias: np.ndarray, k: int = 1):
    """1 / sqrt of weighted sums of squares: a table behind the sums, and their bias."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 96, 4, 20), "fp16")
    weight = rng.uniform(0.01, 0.02, (bias.size, 96, k, k)).astype(np.float16)
    sums = b.conv(x=b.square(x=x), weight=weight, bias=bias.astype(np.float16), pad_type="same")
    b.output(b.rsqrt(x=sums, epsilon=0.0))
    return b.graph, {"x": rng.normal(size=(1, 96, 4, 20)).astype(np.float16)}


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize("outputs", [1, 64])
def test_a_bias_equal_for_all_outputs_is_one_number_as_in_apples_products(outputs: int, chip: str) -> None:
    graph, inputs = norm_of_squares(np.full(outputs, 0.125))
    program = hexane.compile(graph, chip)
    agreed(program, inputs)
    (plan,) = (plan for plan in program.segments[0].plans if plan.table)
    task = program.segments[0].image.tasks[program.segments[0].plans.index(plan)]
    assert plan.ne.acc_bias == 0.125 and task.get("NE.MACCfg.BiasMode") == 0
    assert outputs > 1 or plan.evidence is Evidence.APPLE


@pytest.mark.parametrize("bias, k", [([0.125, 0.25], 1), ([0.125, 0.125], 3), ([np.nan, 0.5], 1)])
def test_other_biases_are_a_row_in_front_of_the_weights(bias: list[float], k: int) -> None:
    graph, inputs = norm_of_squares(np.array(bias), k)
    program = hexane.compile(graph)
    agreed(program, inputs)
    (plan,) = (plan for plan in program.segments[0].plans if plan.table)
    assert plan.ne.acc_bias == 0 and "table before bias" in plan.note


def a_part_is_read(b: GraphBuilder, x, y):
    part = b.slice_by_size(x=y, begin=[0, 8, 0, 0], size=[1, 8, 16, 16])
    return b.relu(x=part), b.conv(x=y, weight=np.ones((16, 32, 1, 1), np.float16))


def parts_are_written(b: GraphBuilder, x, y):
    joined = b.concat(values=(b.tanh(x=y), y), axis=1)
    return (b.conv(x=joined, weight=np.ones((16, 64, 1, 1), np.float16)),)


@pytest.mark.parametrize(("users", "marked"), [(a_part_is_read, [0, 1, 0]), (parts_are_written, [1, 1, 0])])
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_tasks_that_use_a_part_of_a_resident_tensor_are_inferred(users, marked: list[int], chip: str) -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 32, 16, 16), "fp16")
    y = b.conv(x=x, weight=np.ones((32, 32, 3, 3), np.float16), pad_type="same")
    b.output(*users(b, x, y))
    (segment,) = hexane.compile(b.graph, chip).segments
    assert [plan.evidence is Evidence.INFERRED for plan in segment.plans] == [bool(mark) for mark in marked]
    assert ["part of a tensor that stays in L2" in plan.note for plan in segment.plans] == [bool(m) for m in marked]
