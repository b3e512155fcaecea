"""A bias or factor that a recipe leaves to an op of its own is rounded there, at both levels."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder
from hexane.lowering.fusion import CUT_RUNS

from .levels import agreed


def product(rows, features, results, *, factor=None, function=None):
    """x W + b, then a factor and a function; and inputs."""
    rng = np.random.default_rng(rows + results)
    b = GraphBuilder()
    weight = (rng.normal(size=(features, results)) / features**0.5).astype(np.float16)
    y = b.matmul(x=b.input("x", (1, rows, features), "fp16"), y=weight)
    y = b.add(x=y, y=rng.normal(size=results).astype(np.float16))
    if factor is not None:
        y = b.mul(x=y, y=np.float16(factor))
    if function is not None:
        y = b.op(function, x=y)
    b.output(y)
    return b.graph, {"x": rng.normal(size=(1, rows, features)).astype(np.float16)}


@pytest.mark.parametrize("options", [{}, {"dialect": "apple"}], ids=str)
@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize(
    "given",
    [
        {"rows": 10, "features": 16, "results": 51},
        {"rows": 10, "features": 16, "results": 51, "factor": 0.3, "function": "relu"},
        {"rows": 10, "features": 16, "results": 33, "function": "gelu"},
        {"rows": 64, "features": 256, "results": 256},
    ],
    ids=str,
)
def test_both_levels_round_where_the_program_does(given, chip, options):
    graph, inputs = product(**given)
    made = agreed(hexane.compile(graph, chip, **options), inputs)
    for name, wanted in graph.evaluate(inputs).items():
        np.testing.assert_allclose(made[name], wanted, atol=0.02)


def test_strict_programs_too():
    """Apple's programs show this product without its bias only."""
    graph, inputs = product(64, 512, 512)
    program = hexane.compile(graph, "M1", strict=True)
    assert program.segments[0].source.metadata[CUT_RUNS]
    agreed(program, inputs)


def test_a_whole_run_is_not_named():
    graph, _ = product(64, 64, 64)
    assert not hexane.compile(graph, "M1").segments[0].source.metadata[CUT_RUNS]
