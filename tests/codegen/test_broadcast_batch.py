"""Two operands that are both broadcast, one of them along the batch, image by image; results and operands beyond L2."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed, near

SHAPES = [
    ((1, 3, 4, 1), (2, 1, 4, 5)),
    ((1, 3, 4, 5), (2, 1, 1, 5)),
    ((3, 2, 4, 1), (1, 1, 1, 5)),
    ((1, 2, 7, 40), (4, 1, 7, 40)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["sub", "less", "select"])
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_operands_of_one_sample(op, shapes, chip):
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x, y = (b.input(name, shape, "fp16") for name, shape in zip("xy", shapes))
    b.output(b.select(cond=b.less(x=x, y=y), a=x, b=y) if op == "select" else b.op(op, x=x, y=y))
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    inputs = {name: rng.normal(size=shape).astype(np.float16) for name, shape in zip("xy", shapes)}
    (made,) = agreed(program, inputs).values()
    first, second = inputs.values()
    wanted = {
        "sub": first - second,
        "less": first < second,
        "select": np.minimum(first, second),
    }[op]
    np.testing.assert_allclose(made.astype(np.float32), wanted.astype(np.float32), rtol=1e-3)


@pytest.mark.parametrize("shapes", [((1, 24, 300, 1), (1, 24, 1, 256)), ((1, 24, 1, 250), (1, 24, 300, 1))], ids=str)
def test_a_result_larger_than_l2_is_made_in_tiles_that_fill_it(shapes):
    b = GraphBuilder()
    x, y = (b.input(name, shape, "fp16") for name, shape in zip("xy", shapes))
    b.output(b.sub(x=x, y=y))
    program = near(b.graph)
    wide = next(plan for plan in program.segments[0].plans if plan.tile)
    patch, room = 1 << wide.patch[1], 2 * 1024 * 1024 - wide.result.region.base
    assert wide.tile % patch == 0
    assert wide.tile * wide.result.region.row <= room < (wide.tile + patch) * wide.result.region.row


@pytest.mark.parametrize(("columns", "readers"), [(900, 1), (2048, 2)])
def test_a_matrix_that_does_not_fit_l2_is_read_again_by_every_block_of_rows(columns, readers):
    """Of 20 rows 4 are one task and 16 the next; 1024 rows of 900 values stay in L2 between them."""
    b = GraphBuilder()
    x, y = b.input("x", (1, 1, 20, 1024), "fp16"), b.input("y", (1, 1, 1024, columns), "fp16")
    b.output(b.matmul(x=x, y=y))
    (segment,) = near(b.graph).segments
    assert [plan.cout for plan in segment.plans] == [4, 16]
    assert sum(plan.source.dma is not None for plan in segment.plans) == readers
