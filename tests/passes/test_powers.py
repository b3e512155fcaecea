"""Powers of negative numbers: the engine's own power is that of a logarithm, which has none."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
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
