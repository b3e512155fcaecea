"""Networks whose maps fill L2 to its last byte compile to programs that run, with the bits of graph level."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder, Value

CHIPS = ("M1", "M2", "M3", "A17 Pro", "M4", "M5", "A19")


def _conv(b: GraphBuilder, x: Value, cout: int, k: int, rng: np.random.Generator) -> Value:
    cin = x.shape[1]
    weight = (rng.standard_normal((cout, cin, k, k)) / np.sqrt(cin * k * k)).astype(np.float16)
    return b.conv(x=x, weight=weight, strides=(1, 1), pad_type="same", dilations=(1, 1), groups=1)


def residual(c: int, h: int, w: int) -> Graph:
    """Four 3x3 convolutions, an addition after every second."""
    rng, b = np.random.default_rng(0), GraphBuilder()
    y = b.input("x", (1, c, h, w), "fp16")
    for _ in range(2):
        skip = y
        y = b.relu(x=_conv(b, y, c, 3, rng))
        y = b.add(x=b.relu(x=_conv(b, y, c, 3, rng)), y=skip)
    b.output(b.relu(x=y, name="out"))
    return b.graph


def pair(c: int, h: int, w: int, k: int = 3) -> Graph:
    """Two convolutions, one after the other."""
    rng, b = np.random.default_rng(0), GraphBuilder()
    y = b.input("x", (1, c, h, w), "fp16")
    for _ in range(2):
        y = b.relu(x=_conv(b, y, c, k, rng))
    b.output(b.identity(x=y, name="out"))
    return b.graph


def joined(c: int, h: int, w: int) -> Graph:
    """A convolution whose result and operand are joined for the next."""
    rng, b = np.random.default_rng(0), GraphBuilder()
    x = b.input("x", (1, c, h, w), "fp16")
    y = b.concat(values=(x, b.relu(x=_conv(b, x, c, 3, rng))), axis=1, interleave=False)
    b.output(b.relu(x=_conv(b, y, c, 3, rng), name="out"))
    return b.graph


SMALL = {
    "residual 16x128x128": (lambda: residual(16, 128, 128), "M2"),
    "residual 64x64x64": (lambda: residual(64, 64, 64), "M4"),
    "pair 32x256x128": (lambda: pair(32, 256, 128), "M1"),
    "pair 255x64x64": (lambda: pair(255, 64, 64), "M5"),
}

RESIDUALS = (
    (64, 64, 64), (64, 64, 57), (64, 64, 60), (64, 64, 62), (16, 128, 128), (16, 256, 64), (64, 32, 128), (128, 32, 64),
    (8, 256, 128), (32, 128, 64), (32, 64, 128), (256, 32, 32), (128, 64, 32), (64, 128, 32), (64, 64, 56),
    (64, 64, 65), (64, 63, 64), (60, 64, 64), (65, 64, 64), (96, 64, 64), (128, 64, 64), (255, 64, 64), (127, 64, 128),
    (64, 65, 64),
)  # fmt: skip
PAIRS = (
    (32, 256, 128), (255, 64, 64), (256, 64, 64), (64, 128, 128), (128, 64, 64), (32, 128, 128), (16, 256, 128),
    (31, 256, 128), (32, 255, 128), (33, 256, 128),
)  # fmt: skip
GRID = {
    **{f"residual {'x'.join(map(str, s))}": (residual, s) for s in RESIDUALS},
    **{f"pair {'x'.join(map(str, s))}": (pair, s) for s in PAIRS},
    **{f"pair of 5x5 {'x'.join(map(str, s))}": (pair, (*s, 5)) for s in PAIRS},
    **{f"joined {'x'.join(map(str, s))}": (joined, s) for s in ((64, 128, 128), (64, 64, 64), (32, 128, 128))},
}


def _runs_as_the_graph(graph: Graph, chip: str) -> None:
    program = hexane.compile(graph, chip=chip)
    assert len(program.images) == 1 == len(program.segments)
    x = np.random.default_rng(1).standard_normal(graph.main.inputs[0].shape).astype(np.float16)
    got, expected = program.run({"x": x})["out"], program.run({"x": x}, level="graph")["out"]
    assert np.array_equal(got.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("name", SMALL)
def test_a_network_that_fills_l2_runs(name: str) -> None:
    make, chip = SMALL[name]
    _runs_as_the_graph(make(), chip)


CASES = [(name, chip) for name in GRID for chip in (("M1", "M4") if "5x5" in name else CHIPS)]
"""Kernels of five rows are tried on two chips."""


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_every_network_of_the_grid_compiles_to_a_program_within_l2(name: str, chip: str) -> None:
    make, shape = GRID[name]
    program = hexane.compile(make(*shape), chip=chip)
    assert all(each.end <= 1 << 21 for each in program.l2_maps())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chip"), CASES)
def test_every_network_of_the_grid_runs(name: str, chip: str) -> None:
    make, shape = GRID[name]
    _runs_as_the_graph(make(*shape), chip)
