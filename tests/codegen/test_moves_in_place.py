"""Copies without a task: fewer tasks, the same bits, nothing that the emulator's sanitizer objects to."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.chips import Evidence
from hexane.graph import GraphBuilder

from .levels import agreed

OFF = ("in-place-moves", "strided-moves")


class Mover:
    """A graph of random moves between random sums and maps; every value that nobody uses is an output."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = GraphBuilder()
        shape = (int(self.rng.integers(1, 3)), int(self.rng.integers(2, 9)), *map(int, self.rng.integers(2, 12, 2)))
        self.values = [self.b.input("x", shape, "fp16")]

    def some(self):
        return self.values[int(self.rng.integers(max(0, len(self.values) - 4), len(self.values)))]

    def conv(self, x):
        cout = int(self.rng.integers(1, 20))
        weight = self.rng.normal(size=(cout, x.shape[1], 3, 3)).astype(np.float16) / np.float16(9)
        return [self.b.conv(x=x, weight=weight, pad_type="same")]

    def relu(self, x):
        return [self.b.relu(x=x)]

    def add(self, x):
        return [self.b.add(x=x, y=self.b.abs(x=x))]

    def concat(self, x):
        axis = int(self.rng.integers(0, 4))
        others = [v for v in self.values if all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)]
        parts = [others[int(i)] for i in self.rng.integers(0, len(others), 3)]
        return [self.b.concat(values=tuple(parts), axis=axis)]

    def split(self, x):
        axis = int(self.rng.integers(0, 4))
        if x.shape[axis] < 2:
            return []
        first = int(self.rng.integers(1, x.shape[axis]))
        return list(self.b.op("split", x=x, split_sizes=[first, x.shape[axis] - first], axis=axis))

    def cut(self, x):
        begin = [int(self.rng.integers(0, n)) for n in x.shape]
        size = [int(self.rng.integers(1, n - b + 1)) for n, b in zip(x.shape, begin)]
        return [self.b.slice_by_size(x=x, begin=begin, size=size)]

    def every_second(self, x):
        stride = [1, *(1 + int(i) for i in self.rng.integers(0, 2, 2)), 1]
        return [self.b.slice_by_index(x=x, begin=[0] * 4, end=list(x.shape), stride=stride)]

    def swap(self, x):
        perm = [[0, 2, 1, 3], [1, 0, 2, 3], [0, 3, 2, 1]][int(self.rng.integers(0, 3))]
        return [self.b.transpose(x=x, perm=perm)]

    def fold(self, x):
        n, c, h, w = x.shape
        return [
            self.b.reshape(x=x, shape=[[n, c * h, 1, w], [1, n * c, h, w], [n, 1, c * h, w]][int(self.rng.integers(3))])
        ]

    def shuffle(self, x):
        n, c, h, w = x.shape
        if n != 1 or c % 2:
            return []
        inner = self.b.transpose(x=self.b.reshape(x=x, shape=[2, c // 2, h, w]), perm=[1, 0, 2, 3])
        return [self.b.reshape(x=inner, shape=[1, c, h, w])]

    def graph(self, count: int = 9):
        kinds = (self.conv, self.relu, self.add, self.concat, self.concat, self.split, self.cut, self.every_second)
        kinds += (self.swap, self.fold, self.shuffle)
        while len(self.values) < count:
            made = kinds[int(self.rng.integers(len(kinds)))](self.some())
            self.values += [v for v in made if v is not None and np.prod(v.shape) < 20_000]
        unused = [v for v in self.values[1:] if not v.users]
        self.b.output(*unused)
        return self.b.graph


def tasks(program) -> int:
    return sum(len(image.tasks) for image in program.images)


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs}


def require_same(graph, chip, **switches):
    """The program and the one without the transformation give the bits of graph level."""
    inputs = inputs_of(graph)
    program, plain = hexane.compile(graph, chip, **switches), hexane.compile(graph, chip, without=OFF)
    wanted = program.run(inputs, level="graph")
    for made in (program.run(inputs), plain.run(inputs)):
        for name, array in wanted.items():
            assert np.array_equal(made[name], array, equal_nan=True), name
    assert tasks(program) <= tasks(plain)
    return program, plain


@pytest.mark.parametrize("seed", range(30))
def test_random_moves(seed):
    require_same(Mover(seed).graph(), "M1")


@pytest.mark.parametrize("chip", ["M2", "M3", "M4", "M5"])
@pytest.mark.parametrize("seed", (100, 101, 102))
def test_random_moves_on_later_chips(seed, chip):
    require_same(Mover(seed).graph(), chip)


def fire(b, x, cout):
    """Two convolutions side by side, joined along channels."""
    rng = np.random.default_rng(cout)
    weights = [rng.normal(size=(cout, x.shape[1], k, k)).astype(np.float16) / np.float16(9) for k in (1, 3)]
    return b.concat(values=tuple(b.relu(x=b.conv(x=x, weight=w, pad_type="same")) for w in weights), axis=1)


def test_branches_write_into_their_concatenation():
    b = GraphBuilder()
    y = b.conv(x=fire(b, b.input("x", (1, 8, 9, 9), "fp16"), 16), weight=np.ones((4, 32, 1, 1), np.float16))
    b.output(b.relu(x=y))
    program, plain = require_same(b.graph, "M1")
    assert (tasks(program), tasks(plain)) == (3, 5)
    in_dram = hexane.compile(b.graph, "M1", without=("l2-parts",))
    assert {plan.evidence for plan in in_dram.segments[0].plans} == {Evidence.APPLE}


def test_nested_concatenations_are_one_buffer():
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 8, 7, 5), "fp16"))
    for _ in range(3):
        weight = np.full((4, x.shape[1], 3, 3), 0.05, np.float16)
        x = b.concat(values=(x, b.conv(x=x, weight=weight, pad_type="same")), axis=1)
    b.output(b.relu(x=x))
    program, plain = require_same(b.graph, "M1")
    assert (tasks(program), tasks(plain)) == (5, 11)


def test_an_input_is_copied_and_an_output_written_in_place():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 5, 5), "fp16")
    b.output(b.concat(values=(x, b.relu(x=x), x), axis=1))
    program, plain = require_same(b.graph, "M1")
    assert (tasks(program), tasks(plain)) == (3, 4)


def test_a_shuffle_of_channels_is_in_the_strides_of_a_grouped_convolution():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 6, 6), "fp16")
    weight = np.random.default_rng(1).normal(size=(32, 16, 1, 1)).astype(np.float16)
    y = b.relu(x=b.conv(x=x, weight=weight, groups=2))
    y = b.transpose(x=b.reshape(x=y, shape=[2, 16, 6, 6]), perm=[1, 0, 2, 3])
    b.output(b.abs(x=b.reshape(x=y, shape=[1, 32, 6, 6])))
    program, plain = require_same(b.graph, "M1")
    assert (tasks(program), tasks(plain)) == (2, 3)
    assert Evidence.INFERRED in {plan.evidence for plan in program.segments[0].plans}
    halfway, _ = require_same(b.graph, "M1", without=("strided-moves",))
    assert tasks(halfway) == 3


def test_strict_keeps_to_pieces():
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 4, 6, 40), "fp16"))
    b.output(b.abs(x=b.transpose(x=x, perm=[0, 2, 1, 3])))
    assert tasks(hexane.compile(b.graph, strict=True)) == 3
    assert tasks(hexane.compile(b.graph)) == 2


def test_apple_joins_in_place_too():
    b = GraphBuilder()
    b.output(b.relu(x=fire(b, b.input("x", (1, 8, 9, 9), "fp16"), 16)))
    apple = {
        without: tasks(hexane.compile(b.graph, dialect="apple", without=without))
        for without in ((), ("in-place-moves",))
    }
    assert (apple[()], apple[("in-place-moves",)]) == (3, 5)


def test_what_is_read_again_from_another_place_is_not_dropped():
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 48, 64, 64), "fp16"))
    parts = b.op("split", x=x, split_sizes=[16, 32], axis=1)
    b.output(b.abs(x=x), *(b.square(x=part) for part in parts))
    program, _ = require_same(b.graph, "M1", without=("hand-over", "l2-parts"))
    plans = program.segments[0].plans
    assert [str(plan.source.hint.cache) for plan in plans[1:]] == ["alloc", "drop", "drop"]


def test_a_reader_of_an_output_waits_for_it():
    b = GraphBuilder()
    y = b.relu(x=b.input("x", (1, 16, 64, 64), "fp16"))
    b.output(y, b.abs(x=y))
    program = hexane.compile(b.graph, without=("hand-over", "l2-parts"))
    assert [plan.source.hint.after_task for plan in program.segments[0].plans] == [False, True]


@pytest.mark.parametrize("chip", ["M2", "M5"])
def test_copies_that_vanish_do_not_fill_a_program(chip):
    """Fourteen stages of ten convolutions side by side: 280 tasks with the copies of concat, more than 255."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    value = b.input("x", (1, 20, 4, 4), "fp16")
    for _ in range(14):
        weights = (0.3 * rng.standard_normal((10, 2, 20, 1, 1))).astype(np.float16)
        value = b.concat(values=[b.conv(x=value, weight=w) for w in weights], axis=1)
    b.output(b.relu(x=value, name="y"))
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    assert program.stats()["tasks"] < 150
    assert len(hexane.compile(b.graph, chip, without=("in-place-moves",)).segments) > 1
    x = rng.standard_normal((1, 20, 4, 4)).astype(np.float16)
    agreed(program, {"x": x})
