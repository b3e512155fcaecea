"""Fragments that stand for runs of ops that are alike are those that the recipes give."""

from dataclasses import fields

import numpy as np
import pytest

import hexane
from hexane.codegen.alike import Alike
from hexane.codegen.driver import canonical, context_of
from hexane.codegen.partition import units_of
from hexane.codegen.recipes.registry import Recipe
from hexane.codegen.select import load_recipes, lowered, recipes_for
from hexane.graph import GraphBuilder

ROUNDS = 4


def weights(*shape):
    return np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float16)


def convolutions(b):
    """Bottlenecks and depthwise windows, one of them with weights of its own."""
    x = b.input("x", (1, 32, 14, 14), "fp16")
    for i in range(ROUNDS):
        kernel = weights(32, 32, 3, 3)
        if i == 2:
            kernel[3, 4, 1, 1] += 1
        y = b.relu(x=b.conv(x=x, weight=kernel, pad_type="same"))
        y = b.sigmoid(x=b.conv(x=y, weight=weights(32, 1, 3, 3), groups=32, pad_type="same"))
        y = b.max_pool(x=y, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same")
        x = b.add(x=b.mul(x=x, y=y), y=b.reduce_mean(x=y, axes=[2, 3], keep_dims=True))
    return x


def attention(b):
    """Self-attention of four heads, with a norm and a scaled add."""
    x = b.input("x", (1, 64, 128), "fp16")
    for _ in range(ROUNDS):
        n = b.layer_norm(x=x, axes=[-1], gamma=np.ones(128, np.float16), epsilon=1e-5)
        rows = (b.reshape(x=b.linear(x=n, weight=weights(128, 128)), shape=(1, 64, 4, 32)) for _ in range(3))
        q, k, v = (b.transpose(x=y, perm=(0, 2, 1, 3)) for y in rows)
        s = b.softmax(x=b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(32**-0.5)), axis=-1)
        y = b.reshape(x=b.transpose(x=b.matmul(x=s, y=v), perm=(0, 2, 1, 3)), shape=(1, 64, 128))
        x = b.add(x=x, y=b.mul(x=b.linear(x=y, weight=weights(128, 128)), y=np.float16(0.5)))
    return x


def others(b):
    """Quotients, powers, comparisons, cuts and joins."""
    x = b.input("x", (1, 16, 24, 40), "fp16")
    for _ in range(ROUNDS):
        y = b.real_div(x=b.pow(x=b.abs(x=x), y=np.float16(1.5)), y=b.add(x=b.square(x=x), y=np.float16(1)))
        parts = b.split(x=b.select(cond=b.greater(x=x, y=y), a=x, b=y), num_splits=2, axis=1)
        turned = b.transpose(x=b.concat(values=parts[::-1], axis=1), perm=(0, 1, 3, 2))
        x = b.softmax(x=b.transpose(x=b.pad(x=turned, pad=[0, 0, 0, 0]), perm=(0, 1, 3, 2)), axis=1)
    return x


def network(make):
    b = GraphBuilder()
    b.output(make(b))
    return b.graph


def content(fragment):
    """All that a fragment holds, but which objects."""
    plans = []
    for plan in fragment.plans:
        row = dict(vars(plan))
        kernel = row.pop("kernel")
        row["kernel"] = kernel and [getattr(kernel, field.name) for field in fields(kernel)]
        plans.append(row)
    kernels = [plan.kernel for plan in fragment.plans]
    same = [kernels.index(kernel) for kernel in kernels]
    return plans, same, fragment.constants, fragment.scratch


@pytest.mark.parametrize("dialect", ["default", "apple"])
@pytest.mark.parametrize("chip", ["M1", "M3", "M5"])
@pytest.mark.parametrize("make", [convolutions, attention, others])
def test_what_is_reused_is_what_the_recipe_gives(make, chip, dialect, monkeypatch):
    reused = []

    def compared(self, recipe, ops, context):
        lowerings = []

        def noted(*run):
            lowerings.append(run)
            return lowered(*run)

        self.lower = noted
        fragment = call(self, recipe, ops, context)
        if not any(run[1] is ops for run in lowerings):
            reused.append(recipe.name)
            assert content(fragment) == content(lowered(recipe, ops, context))
        return fragment

    call = Alike.__call__
    monkeypatch.setattr(Alike, "__call__", compared)
    context = context_of(chip, dialect)
    graph = canonical(network(make), context)
    units_of(graph.main, context)
    assert len(reused) >= ROUNDS - 1


def relu_chain():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    for _ in range(5):
        x = b.relu(x=x)
    b.output(x)
    return list(b.graph.main.ops)


@pytest.mark.parametrize(
    "look",
    [
        lambda op: list(op.output.users),
        lambda op: op.output.is_output,
        lambda op: op.arg("x").op,
        lambda op: op.arg("x").users,
        lambda op: op.block.ops,
    ],
    ids=["users", "output", "producer", "siblings", "block"],
)
def test_a_recipe_that_looks_beyond_its_ops_sees_each_of_them(look):
    load_recipes()
    usual = next(recipe for recipe in recipes_for("relu") if recipe.rank == 10)
    lowerings = []

    def lower(ops, context):
        look(ops[0])
        lowerings.append(ops)
        return usual.lower(ops, context)

    recipe = Recipe("looks", ("relu",), usual.match, lower, 10)
    alike, context, ops = Alike(lowered), context_of(), relu_chain()
    for op in ops:
        alike(recipe, (op,), context)
    assert [run[0] for run in lowerings] == ops


def test_a_name_in_a_note_is_that_of_the_op():
    load_recipes()
    usual = next(recipe for recipe in recipes_for("relu") if recipe.rank == 10)

    def lower(ops, context):
        fragment = usual.lower(ops, context)
        fragment.evidence(hexane.chips.Evidence.INFERRED, f"as {ops[0].output.name}")
        return fragment

    recipe = Recipe("names", ("relu",), usual.match, lower, 10)
    alike, context = Alike(lowered), context_of()
    for op in relu_chain():
        (plan,) = alike(recipe, (op,), context).plans
        assert plan.note == f"as {op.output.name}"


def test_constants_that_differ_in_a_sign_of_zero_are_not_alike():
    b = GraphBuilder()
    x = b.input("x", (1, 64, 4, 4), "fp16")
    kernels = [np.zeros((64, 64, 1, 1), np.float16) for _ in range(4)]
    kernels[3][5, 6] = -0.0
    for kernel in kernels:
        x = b.conv(x=x, weight=kernel)
    b.output(x)
    context = context_of()
    units = units_of(b.graph.main, context)
    data = [unit.choice.fragment.plans[0].kernel.data for unit in units]
    assert data[0] == data[1] == data[2] != data[3]
