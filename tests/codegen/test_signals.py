"""Long filters along signals as few taps over windows; windows as one copy."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips
from hexane.graph import GraphBuilder

from .levels import near


def filtered(length, taps, step, *, cin=1, cout=12, pad=(0, 0), bias=True):
    rng = np.random.default_rng(taps)
    b = GraphBuilder()
    x = b.input("x", (1, cin, 1, length), "fp16")
    weight = (rng.normal(size=(cout, cin, 1, taps)) / np.sqrt(taps * cin)).astype(np.float16)
    given = {"bias": rng.normal(size=cout).astype(np.float16)} if bias else {}
    b.output(b.conv(x=x, weight=weight, strides=[1, step], pad_type="custom", pad=[0, 0, *pad], **given))
    return b.graph


CASES = {
    "every sample": (427, 256, 1, {}),
    "every second": (598, 256, 2, {}),
    "every eighth": (1626, 256, 8, {}),
    "steps of rows": (5736, 256, 32, {"cout": 36}),
    "an odd step": (700, 100, 3, {"pad": (5, 9)}),
    "a prime number of taps": (640, 211, 4, {"bias": False}),
    "several channels": (500, 64, 2, {"cin": 3}),
    "more taps than windows hold": (300, 37, 5, {"pad": (36, 0)}),
}


def kinds(program):
    return {op.type for op in program.graph.main.ops}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_filters(name, chip):
    length, taps, step, more = CASES[name]
    program = near(filtered(length, taps, step, **more), chip)
    assert "sliding_windows" in kinds(program)
    assert [segment.kind for segment in program.segments] == ["engine"]


def test_windows_are_taken_where_less_is_moved():
    """One filter over a long signal stays in blocks: windows would repeat the signal many times."""
    assert "sliding_windows" not in kinds(hexane.compile(filtered(12000, 256, 2, cout=1)))
    now, before = (hexane.compile(filtered(427, 256, 1, cout=36), without=w) for w in ((), ("signal-frames",)))
    assert "sliding_windows" in kinds(now) and "sliding_windows" not in kinds(before)
    assert hexane.estimate(now).engine_us < 0.5 * hexane.estimate(before).engine_us


@pytest.mark.parametrize("shape, axis, size, stride", [
    ((20, 40), 0, 5, 1),
    ((1, 9, 33), 1, 3, 2),
    ((2, 7, 33), 0, 2, 1),
    ((4, 12, 6), -2, 12, 1),
    ((1, 3, 10, 20), 2, 4, 3),
    ((3, 200), 1, 64, 32),
])  # fmt: skip
def test_windows(shape, axis, size, stride):
    b = GraphBuilder()
    x = b.input("x", shape, "fp16")
    b.output(b.sliding_windows(x=x, axis=axis, size=size, stride=stride))
    assert [segment.kind for segment in near(b.graph).segments] == ["engine"]


def test_windows_within_rows_are_the_hosts():
    b = GraphBuilder()
    b.output(b.sliding_windows(x=b.input("x", (1, 40), "fp16"), axis=1, size=5, stride=1))
    assert "host" in [segment.kind for segment in near(b.graph).segments]


def test_a_factor_behind_moves_of_a_convolution():
    """It is the scale of the convolution's task, whatever moves the result before."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 64), "fp16")
    y = b.conv(x=x, weight=rng.normal(size=(16, 8, 1, 1)).astype(np.float16))
    y = b.reshape(x=b.transpose(x=y, perm=[0, 2, 1, 3]), shape=[1, 1, 96, 64])
    b.output(b.mul(x=y, y=np.full((1, 1, 1, 1), -0.5, np.float16)))
    order = [op.type for op in near(b.graph).graph.main.ops]
    assert order.index("mul") == order.index("conv") + 1


# -- chains along one signal -------------------------------------------------------------------------------------------


def random_chain(rng, x, b):
    """Cuts and paddings of a signal [1, 1, L]."""
    for _ in range(int(rng.integers(1, 5))):
        length = x.shape[-1]
        if rng.random() < 0.5:
            begin = int(rng.integers(0, min(length, 100)))
            size = int(rng.integers(max(1, length - begin - 90), length - begin + 1))
            x = b.slice_by_size(x=x, begin=[0, 0, begin], size=[1, 1, size])
        else:
            mode = str(rng.choice(["constant", "constant", "reflect", "replicate"]))
            most = length - 1 if mode == "reflect" else 140
            widths = [int(w) for w in rng.integers(0, min(most, 140) + 1, 2)]
            x = b.pad(x=x, pad=widths, mode=mode, constant_val=float(rng.choice([0.0, 0.5])))
        if rng.random() < 0.3:
            x = b.reshape(x=x, shape=[1, 1, 1, x.shape[-1]])
            x = b.squeeze(x=x, axes=[0])
    return x


@pytest.mark.parametrize("seed", range(24))
def test_random_chains(seed):
    """From rows or columns of rows, through one or two chains, to rows again."""
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(2, 40)), int(rng.integers(8, 70))
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 1, rows, width), "fp16"))
    if rng.random() < 0.5:
        x = b.transpose(x=x, perm=[0, 1, 3, 2])
    flat = b.reshape(x=x, shape=[1, 1, rows * width])
    for _ in range(int(rng.integers(1, 3))):
        y = random_chain(rng, flat, b)
        length = y.shape[-1]
        parts = [n for n in range(1, 50) if length % n == 0]
        n = int(rng.choice(parts))
        y = b.reshape(x=y, shape=[1, 1, n, length // n])
        if rng.random() < 0.5:
            y = b.transpose(x=y, perm=[0, 1, 3, 2])
        b.output(b.abs(x=y))
    program = near(b.graph)
    assert [segment.kind for segment in program.segments] == ["engine"]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_signal_longer_than_a_tensor(chip):
    """The samples exist in one row between tasks only; the network's own surfaces are rows."""
    rows = chips.get(chip).generation.max_width // 64 + 9
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 1, rows, 64), "fp16"))
    flat = b.reshape(x=x, shape=[1, 1, rows * 64])
    padded = b.pad(x=flat, pad=[127, 1], mode="reflect", constant_val=0.0)
    b.output(b.reshape(x=padded, shape=[1, 1, rows + 2, 64]))
    cut = b.slice_by_size(x=flat, begin=[0, 0, 3], size=[1, 1, (rows - 1) * 64])
    b.output(b.reshape(x=cut, shape=[1, 1, rows - 1, 64]))
    program = near(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    assert "host" in [segment.kind for segment in near(b.graph, chip, without=("signal-lines",)).segments]


def test_a_chain_is_one_copy_there_and_one_back():
    b = GraphBuilder()
    x = b.input("x", (1, 1, 50, 32), "fp16")
    y = b.pad(x=b.reshape(x=x, shape=[1, 1, 1600]), pad=[7, 9], mode="constant", constant_val=0.0)
    y = b.pad(x=b.slice_by_size(x=y, begin=[0, 0, 1], size=[1, 1, 1590]), pad=[1, 9], mode="constant", constant_val=0.0)
    b.output(b.reshape(x=y, shape=[1, 1, 25, 64]))
    program, plain = (hexane.compile(b.graph, without=without) for without in ((), ("signal-lines",)))
    assert sum(len(image.tasks) for image in program.images) == 6
    assert sum(len(image.tasks) for image in plain.images) > 6
    assert hexane.estimate(program).engine_us < hexane.estimate(plain).engine_us
