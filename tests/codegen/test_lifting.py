"""Functions before moves and shuffles in weights: fewer tasks, the bits of graph level, the same network."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

NAMES = ("lifted-functions", "shuffled-weights")
OFF = ("layouts",)  # which changes the moves themselves


def tasks(program):
    return sum(len(image.tasks) for image in program.images)


def require_same(graph, *, fewer, chip="M1"):
    rng = np.random.default_rng(3)
    inputs = {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs}
    program, plain = (hexane.compile(graph, chip, without=off) for off in (OFF, OFF + NAMES))
    wanted, before = program.run(inputs, level="graph"), plain.run(inputs, level="graph")
    for name, array in wanted.items():
        assert np.array_equal(program.run(inputs)[name], array)
        assert np.array_equal(plain.run(inputs)[name], before[name])
        assert np.array_equal(array, before[name]), "a move or a shuffle changed a bit"
    assert (tasks(program) < tasks(plain)) == fewer


def conv(b, x, cout, groups=1):
    rng = np.random.default_rng(cout)
    weight = rng.normal(size=(cout, x.shape[1] // groups, 1, 1)).astype(np.float16) / np.float16(4)
    bias = rng.normal(size=cout).astype(np.float16)
    return b.conv(x=x, weight=weight, bias=bias, groups=groups)


MOVES = {
    "transpose": lambda b, x: b.transpose(x=x, perm=[0, 1, 3, 2]),
    "pixel_shuffle": lambda b, x: b.pixel_shuffle(x=x, upscale_factor=2),
    "reshape": lambda b, x: b.reshape(x=x, shape=[1, 4, 4, *x.shape[2:]]),
    "two": lambda b, x: b.transpose(x=b.reshape(x=x, shape=[16, 1, *x.shape[2:]]), perm=[1, 0, 3, 2]),
}


@pytest.mark.parametrize("function", ["relu", "sigmoid", "relu6"])
@pytest.mark.parametrize("move", MOVES)
def test_a_function_behind_a_move(move, function):
    b = GraphBuilder()
    y = conv(b, b.input("x", (1, 8, 6, 10), "fp16"), 16)
    b.output(b.op(function, x=MOVES[move](b, y)))
    require_same(b.graph, fewer=True)


def test_relu_behind_a_concatenation():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 6), "fp16")
    b.output(b.relu(x=b.concat(values=(conv(b, x, 16), b.add(x=x, y=b.abs(x=x))), axis=1)))
    require_same(b.graph, fewer=True)


def test_what_is_used_elsewhere_stays():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 6), "fp16")
    y = conv(b, x, 16)
    moved = b.transpose(x=y, perm=[0, 1, 3, 2])
    b.output(b.relu(x=moved), y, b.relu(x=b.concat(values=(x, conv(b, x, 4)), axis=1)))
    require_same(b.graph, fewer=False)


def shuffle(b, x, parts):
    n, c, h, w = x.shape
    y = b.reshape(x=x, shape=[parts, c // parts, h, w])
    return b.reshape(x=b.transpose(x=y, perm=[1, 0, 2, 3]), shape=[n, c, h, w])


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("groups", "cout"), [(1, 24), (4, 24), (2, 20)])
def test_shuffled_channels(groups, cout, relu):
    b = GraphBuilder()
    y = conv(b, b.input("x", (1, 16, 6, 6), "fp16"), cout, groups)
    b.output(b.abs(x=shuffle(b, b.relu(x=y) if relu else y, 4)))
    require_same(b.graph, fewer=True)


def test_a_loop_over_groups_and_depthwise_keep_their_order():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 6, 6), "fp16")
    loop = shuffle(b, conv(b, x, 64, 2), 2)  # 32 outputs per group: one task, with strides
    b.output(b.abs(x=loop), b.abs(x=shuffle(b, conv(b, x, 32, 32), 4)))
    require_same(b.graph, fewer=False)


@pytest.mark.parametrize("chip", ["M2", "M4"])
def test_later_chips(chip):
    b = GraphBuilder()
    y = conv(b, b.input("x", (1, 16, 6, 6), "fp16"), 24, 4)
    b.output(b.relu(x=b.pixel_shuffle(x=conv(b, shuffle(b, y, 4), 16), upscale_factor=2)))
    require_same(b.graph, fewer=True, chip=chip)
