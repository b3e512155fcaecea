"""Both levels of a program: its tasks on the emulated engine, and the arithmetic of its graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import hexane
from hexane.graph.ir import Graph
from hexane.program import Program


def agreed(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results of the tasks, which have to be those of graph level to the bit (a NaN is a NaN)."""
    made, bits = program.run(inputs), program.run(inputs, level="graph")
    assert list(made) == list(bits)
    for name, array in bits.items():
        np.testing.assert_array_equal(made[name], array, err_msg=name, strict=True)
    return made


def near(graph: Graph, chip: str = "M1", **options: object) -> Program:
    """A graph compiled; its results of random inputs agree and are those of float32 but for 1 % of the largest."""
    rng = np.random.default_rng(1)
    inputs = {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs}
    program = hexane.compile(graph, chip, **options)
    made, wanted = agreed(program, inputs), graph.evaluate(inputs)
    for name, array in made.items():
        error = np.abs(array.astype(np.float32) - wanted[name]).max()
        assert error < 0.01 * max(1.0, np.abs(wanted[name]).max()), name
    return program
