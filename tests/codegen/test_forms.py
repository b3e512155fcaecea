"""Tasks by form: what a form has in it, and that its tasks are those that were made without it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.codegen import encode
from hexane.codegen.bare import bare, form_of
from hexane.codegen.context import Context
from hexane.codegen.driver import context_of
from hexane.codegen.forms import BY_BITS, by_form
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.operations import KernelWindow, Mac, Planar
from hexane.codegen.plan import Buffer, Plan, Space, TaskKernel
from hexane.codegen.recipes import conv, elementwise
from hexane.codegen.recipes.blocks import Convolution
from hexane.codegen.weights import Weights
from hexane.errors import UnsupportedError
from hexane.graph import Graph, GraphBuilder
from hexane.lowering.fusion import Epilogue

ENDS = ("source", "second", "result")


def surface(name: str, c: int = 32, h: int = 8, w: int = 8) -> Tensor:
    return Tensor(Buffer(name, Space.SURFACE), 1, c, h, w)


def convolution(x: str, y: str) -> Convolution:
    weights = Weights(np.random.default_rng(1).standard_normal((32, 32, 1, 1)).astype(np.float16))
    bias = np.arange(32, dtype=np.float16)
    return Convolution(surface(x), surface(y), weights, bias, KernelWindow(), Epilogue(relu=True))


def told(fragment: Fragment) -> list[dict[str, object]]:
    """Every field of every task."""
    tasks = [dict(vars(plan)) for plan in fragment.plans]
    for task in tasks:
        if task["kernel"] is not None:
            task["kernel"] = tuple(getattr(task["kernel"], field.name) for field in fields(TaskKernel))
    return tasks


def test_tasks_are_those_without_a_form() -> None:
    context, lower = context_of("M1"), by_form(conv.lower)
    first, other = convolution("a", "b"), convolution("c", "d")
    other = replace(other, weights=first.weights)
    for record in (first, other, first, other):
        assert told(lower(record, context)) == told(conv.lower(record, context))
    assert len(context.forms) == 1
    assert not context_of("M1").forms


def test_tasks_of_a_form_are_made_once_and_have_kernels_of_their_own() -> None:
    calls = []

    @by_form
    def two_with_one_kernel(x: Tensor, context: Context) -> Fragment:
        calls.append(x.buffer.name)
        kernel = TaskKernel(b"1", (0,), (64,), source=x.buffer)
        fragment = Fragment(context, [Plan(kernel=kernel), Plan(kernel=kernel).reading(dma=x.dma())], {"const0": b"2"})
        fragment.workspace(64)
        return fragment

    context = context_of("M1")
    one, two = (two_with_one_kernel(surface(name), context) for name in "ab")
    assert len(calls) == 1
    assert not set(calls) & {"a", "b"}
    for name, fragment in zip("ab", (one, two)):
        kernel = fragment.plans[0].kernel
        assert kernel is fragment.plans[1].kernel
        assert kernel.source.name == fragment.plans[1].source.dma.buffer.name == name
        assert (fragment.constants, fragment.scratch) == ({"const0": b"2"}, {"scratch0": 64})
    assert one.plans[0].kernel is not two.plans[0].kernel
    one.plans.clear()
    one.constants.clear()
    assert len(two_with_one_kernel(surface("c"), context).plans) == 2
    assert two_with_one_kernel(surface("d"), context).constants


@pytest.mark.parametrize(
    "change",
    [
        {"x": surface("x", w=7)},
        {"x": surface("y")},
        {"y": replace(surface("y"), offset=64)},
        {"weights": Weights(np.zeros((32, 32, 1, 1), np.float16))},
        {"bias": None},
        {"bias": np.zeros(32, np.float16)},
        {"bias": -np.zeros(32, np.float16)},
        {"window": KernelWindow(sy=2)},
        {"epilogue": Epilogue()},
        {"epilogue": Epilogue(scale=0.0)},
        {"epilogue": Epilogue(scale=-0.0)},
        {"groups": 2},
        {"uniform": 0.5},
        {"uniform": -0.0},
        {"parts": 2},
    ],
    ids=str,
)
def test_every_field_is_in_the_form(change: dict[str, object]) -> None:
    @by_form
    def nothing(record: Convolution, context: Context) -> Fragment:
        return Fragment(context)

    context, record = context_of("M1"), convolution("x", "y")
    nothing(record, context)
    nothing(replace(record, **change), context)
    assert len(context.forms) == 2


def test_one_tensor_twice_is_another_form() -> None:
    def added(x: Tensor, y: Tensor, out: Tensor, context: Context) -> Fragment:
        return Fragment(context, [elementwise.two_surfaces(context.target, "add", x, y, out, False)])

    context, x, y, out = context_of("M1"), surface("x"), surface("y"), surface("out")
    for second in (y, x):
        assert told(by_form(added)(x, second, out, context)) == told(added(x, second, out, context))
    assert len(context.forms) == 2


def test_the_form_of_a_task_has_every_field_but_names() -> None:
    kernel = TaskKernel(b"12", (0,), (64,), source=surface("k").buffer)
    plan = Plan(kernel=kernel).reading(dma=surface("x").dma()).writing(dma=surface("y").dma())
    renamed = plan.but(op="other", kernel=replace(kernel, data=b"3", source=surface("l").buffer))
    renamed = renamed.reading(dma=surface("z").dma()).writing(dma=surface("z").dma())
    assert form_of(plan) == form_of(renamed)
    assert told(Fragment(context_of("M1"), [bare(plan)])) == told(Fragment(context_of("M1"), [bare(renamed)]))
    others = [
        plan.but(**{field.name: object()})
        for field in fields(Plan)
        if field.name not in ("op", "pe", "ne", "kernel", "unit", *ENDS)
    ]
    others += [plan.but(ne=replace(plan.ne, **{field.name: 9})) for field in fields(Mac)]
    others += [plan.but(pe=replace(plan.pe, **{f.name: 9})) for f in fields(Planar) if f.name != "kind"]
    for name in ENDS:
        end = getattr(plan, name)
        others += [plan.but(**{name: end._replace(**{part: object()})}) for part in end._fields if part != "dma"]
    walk = plan.source.dma
    others += [plan.reading(dma=replace(walk, **{f.name: -1})) for f in fields(walk) if f.name != "buffer"]
    named = ("data", "source")
    others += [plan.but(kernel=replace(kernel, **{f.name: -1})) for f in fields(kernel) if f.name not in named]
    others += [plan.but(kernel=replace(kernel, source=None)), plan.but(kernel=replace(kernel, data=b""))]
    others += [plan.computing(acc_bias=-0.0), plan.computing(post_scale=-0.0)]
    others += [plan.but(pe=replace(plan.pe, **{name: -0.0})) for name in ("bias", "scale", "epsilon", "final")]
    forms = [form_of(other) for other in others]
    assert form_of(plan) not in forms
    assert len(set(forms)) == len(forms) > 80


def test_large_arrays_count_by_their_place() -> None:
    @by_form
    def nothing(array: np.ndarray, context: Context) -> Fragment:
        return Fragment(context)

    context, array = context_of("M1"), np.zeros((2, BY_BITS), np.uint8)
    for same in (array, array.view(), array.reshape(2, BY_BITS)):
        nothing(same, context)
    assert len(context.forms) == 1
    for other in (array.copy(), array[:, ::2], array.view(np.int8), array.T):
        nothing(other, context)
    assert len(context.forms) == 5


def test_what_is_refused_is_refused_again() -> None:
    context, weights = context_of("M1"), Weights(np.zeros((32, 32, 1, 99), np.float16))
    wide = replace(convolution("x", "y"), window=KernelWindow(kw=99), weights=weights)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="99 pixels wide"):
            by_form(conv.lower)(wide, context)
    assert not context.forms


def _blocks(count: int) -> Graph:
    """Layers that are alike but for their weights: a gate, a residual, a constant of either sign of zero."""
    rng, b = np.random.default_rng(0), GraphBuilder()
    x = b.input("x", (1, 32, 8, 8), "fp16")
    for block in range(count):
        weight = rng.standard_normal((32, 32, 1, 1)).astype(np.float16)
        y = b.conv(x=x, weight=weight, bias=np.full(32, block % 2 - 0.5, np.float16))
        y = b.mul(x=y, y=b.sigmoid(x=y))
        y = b.add(x=b.mul(x=y, y=np.float16(0.5)), y=np.float16(-0.0 if block % 2 else 0.0))
        x = b.relu(x=b.add(x=x, y=b.reduce_mean(x=y, axes=[2, 3], keep_dims=True)))
    b.output(x)
    return b.graph


@pytest.mark.parametrize(
    ("chip", "dialect"), [("M1", "default"), ("M1", "zin4"), *((chip, "default") for chip in ("M2", "M3", "M4", "M5"))]
)
def test_words_of_a_form_are_those_of_each_task(chip: str, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    equal: list[int] = []

    def each_alone(plans: list[Plan], around: list[Hashable], write: Callable[[Plan, Any], Any]) -> list[Any]:
        equal.append(len(plans) - len(set(zip(map(form_of, plans), around))))
        return [write(plan, beside) for plan, beside in zip(plans, around)]

    program = hexane.compile(_blocks(8), chip, dialect)
    monkeypatch.setattr(encode, "each_form", each_alone)
    alone = hexane.compile(_blocks(8), chip, dialect)
    assert [image.rebuild() for image in alone.images] == [image.rebuild() for image in program.images]
    assert sum(equal) > 8
