"""Powers of negative numbers: the engine's own power is that of a logarithm, which has none."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, -1.0, -2.0, -3.0, 0.0, 17.0, 18.0])
def test_whole_exponents(exponent: float) -> None:
    x = np.linspace(-1.2, 1.3, 16).astype(np.float16).astype(np.float32).reshape(1, 2, 8)
    b = GraphBuilder()
    value = b.input("x", (1, 2, 8), "fp32")
    b.output(b.rename(b.pow(x=value, y=np.float32(exponent)), "y"))
    wanted = b.graph.evaluate({"x": x})["y"]
    got = hexane.compile(b.graph).run({"x": x})["y"]
    np.testing.assert_allclose(wanted, x**exponent, rtol=1e-4)
    np.testing.assert_allclose(got, wanted, rtol=2e-2 if abs(exponent) < 10 else 1e-1, atol=1e-3)


BASES = {
    "any": lambda b, x: x,
    "a sum": lambda b, x: b.add(x=b.abs(x=x), y=x),
    "leaky": lambda b, x: b.leaky_relu(x=x, alpha=0.1),
    "shifted": lambda b, x: b.sub(x=b.sigmoid(x=x), y=np.float16(0.5)),
}
SAFE = {
    "abs": lambda b, x: b.abs(x=x),
    "clip": lambda b, x: b.clip(x=x, alpha=0.25, beta=4.0),
    "floor": lambda b, x: b.maximum(x=x, y=np.float16(0.25)),
    "turned": lambda b, x: b.transpose(x=b.sigmoid(x=x), perm=[0, 2, 1]),
}


def power(make) -> hexane.graph.Graph:
    b = GraphBuilder()
    x, y = b.input("x", (1, 4, 4), "fp16"), b.input("y", (1, 4, 4), "fp16")
    b.output(b.rename(b.pow(x=make(b, x), y=y), "z"))
    return b.graph


INPUTS = {
    "x": np.array([-3, -2, -1.5, -0.5, 0.5, 1, 2, 3] * 2, np.float16).reshape(1, 4, 4),
    "y": np.array([2, 3, 1, 2, -1, 0, 2, 0.5] * 2, np.float16).reshape(1, 4, 4),
}


@pytest.mark.parametrize("name", BASES)
def test_computed_power_of_a_base_that_may_be_negative(name: str) -> None:
    graph = power(BASES[name])
    program = hexane.compile(graph)
    assert [s.reason for s in program.segments if s.kind == "host"] == [
        "a power whose base may be negative: the engine's is 2^(y log2 x)"
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = graph.evaluate(INPUTS)["z"]
    for level in ("engine", "graph"):
        np.testing.assert_allclose(program.run(INPUTS, level=level)["z"], wanted, rtol=0.02, atol=0.01)
    with pytest.raises(UnsupportedError, match="may be negative"):
        hexane.compile(graph, strict=True)


@pytest.mark.parametrize("name", SAFE)
def test_computed_power_of_other_bases(name: str) -> None:
    graph = power(SAFE[name])
    program = hexane.compile(graph)
    assert {s.kind for s in program.segments} == {"engine"}
    np.testing.assert_allclose(program.run(INPUTS)["z"], graph.evaluate(INPUTS)["z"], rtol=0.02, atol=0.01)


def test_apples_power_is_that_of_logarithms() -> None:
    for how in ({"dialect": "apple"}, {"without": ("guarded-powers",)}):
        program = hexane.compile(power(BASES["any"]), **how)
        assert {s.kind for s in program.segments} == {"engine"}
        np.testing.assert_array_equal(program.run(INPUTS)["z"], program.run(INPUTS, level="graph")["z"])
