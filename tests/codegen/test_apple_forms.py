"""Forms of Apple's compiler on networks beside those that are decoded: other extents, the same bits, engine only."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed


def apples(build, shapes, chip, rtol=0.0):
    """A network's program in dialect apple, and what both levels give of random positive inputs; moves are exact."""
    b = GraphBuilder()
    b.output(build(b, *(b.input(name, shape, "fp16") for name, shape in zip("xz", shapes))), name="y")
    program = hexane.compile(b.graph, chip, dialect="apple")
    assert {segment.kind for segment in program.segments} == {"engine"}
    rng = np.random.default_rng(0)
    inputs = {name: rng.uniform(0.2, 2, shape).astype(np.float16) for name, shape in zip("xz", shapes)}
    made = agreed(program, inputs)["y"]
    np.testing.assert_allclose(made, b.graph.evaluate(inputs)["y"], rtol=rtol)
    return program


PIXELS = [(2, 4, 32, 32), (4, 3, 8, 8), (4, 2, 5, 7), (2, 1, 16, 256), (8, 2, 7, 33), (3, 5, 20, 24)]


@pytest.mark.parametrize(("block", "c", "h", "w"), PIXELS)
def test_depth_to_space_is_three_copies(block, c, h, w):
    shape = (1, c * block * block, h, w)
    program = apples(lambda b, x: b.depth_to_space(x=x, block_size=block), [shape], "M4")
    assert program.stats()["tasks"] == 3


@pytest.mark.parametrize("op", ["depth_to_space", "space_to_depth"])
@pytest.mark.parametrize("shape", [(2, 16, 12, 20), (1, 64, 128, 128), (1, 16, 8, 20)])
def test_other_maps_of_pixels_are_turned(op, shape):
    """A batch, a map beyond L2, columns that fill no lane: the composed form, on the engine too."""
    apples(lambda b, x: b.op(op, x=x, block_size=4), [shape], "M4")


MAPS = [(3, 224, 224), (5, 64, 96), (1, 128, 128), (2, 40, 70), (7, 40, 33), (16, 16, 40), (20, 12, 200), (3, 1, 50)]


POWER = 0.004
"""Two roundings of an exponent below 8, times ln 2, and one of the result."""


@pytest.mark.parametrize("chip", ["A17 Pro", "A18", "A19"])
@pytest.mark.parametrize("shape", MAPS)
def test_powers(shape, chip):
    program = apples(lambda b, x, z: b.pow(x=x, y=z), [(1, *shape)] * 2, chip, POWER)
    assert program.stats()["tasks"] == 3


ROWS = [(1, 128, 128), (1, 64, 256), (1, 200, 512), (1, 7, 160), (1, 33, 96), (4, 32, 128)]


@pytest.mark.parametrize("chip", ["M2", "M4", "M5"])
@pytest.mark.parametrize("shape", ROWS)
def test_rows_of_a_function_are_reduced_where_they_stand(shape, chip):
    two_roundings = 2.0**-10  # of what is summed, and of the sum
    program = apples(
        lambda b, x: b.reduce_sum(x=b.exp(x=x), axes=[3], keep_dims=True), [(1, *shape)], chip, two_roundings
    )
    last = program.images[0].tasks[-1].registers()
    columns = last["Common.InDim"] & 0xFFFF if chip == "M2" else last["Common.Win"]
    assert columns == (shape[2] // 4 if shape[2] >= 128 else shape[2])
