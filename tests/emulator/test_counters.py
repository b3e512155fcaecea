"""Counters of the trace against a count over products that are really formed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexane
from emulator import engine_numerics as engine
from hexane.arithmetic.counters import product_losses, table_ends
from hexane.emulator import run
from hexane.graph import GraphBuilder
from hexane.kernels import known_table


def _by_products(x: np.ndarray, w: np.ndarray, stride: int, pad: int, groups: int) -> tuple[int, int]:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kernel = w.shape[2]
    out = (padded.shape[2] - kernel) // stride + 1
    each, rounded, dropped = w.shape[0] // groups, 0, 0
    for o in range(w.shape[0]):
        for c in range(w.shape[1]):
            channel = o // each * w.shape[1] + c
            for ky in range(kernel):
                for kx in range(kernel):
                    tap = padded[:, channel, ky : ky + (out - 1) * stride + 1 : stride]
                    tap = np.ascontiguousarray(tap[:, :, kx : kx + (out - 1) * stride + 1 : stride])
                    weight = np.full_like(tap, w[o, c, ky, kx])
                    exact = engine.read(tap) * engine.read(weight) / engine.UNIT
                    got = engine.products(tap, weight)
                    lost = (got == 0) & (exact != 0) & (engine._exponent(tap) + engine._exponent(weight) <= -17)
                    dropped += int(lost.sum())
                    rounded += int(((got != exact) & ~lost).sum())
    return rounded, dropped


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3]),
    st.integers(0, 1),
    st.sampled_from([1, 2]),
)
def test_losses_of_a_convolution(seed: int, stride: int, kernel: int, pad: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((1, 4, 6, 6)) * 2.0 ** rng.integers(-14, 6, (1, 4, 6, 6))).astype(np.float16)
    w = (rng.standard_normal((4, 4 // groups, kernel, kernel)) * 2.0 ** rng.integers(-14, 3)).astype(np.float16)
    out = (6 + 2 * pad - kernel) // stride + 1
    got = product_losses(x, w, strides=(stride, stride), pads=(pad, pad), output=(out, out), groups=groups)
    assert got == _by_products(x, w, stride, pad, groups)


@pytest.mark.parametrize(
    ("name", "x", "count"), [("sigmoid", [-9.9375, -9.93, 0, 8.33, 100], 3), ("tanh", [0, 4, -4, 1], 3)]
)
def test_table_ends(name: str, x: list[float], count: int) -> None:
    table = np.frombuffer(known_table(name).to_bytes(), np.uint16)
    assert table_ends(table, np.array(x, np.float16)) == count


@pytest.mark.parametrize("chip", ["M1", "M5"])
@pytest.mark.parametrize("follow", ["none", "relu", "sigmoid"])
@pytest.mark.parametrize("scale", [1.0, 60.0, 3000.0])
def test_counting_events_changes_no_bit(chip: str, follow: str, scale: float) -> None:
    """Where sums meet their limit, they are computed once for their count and for the result."""
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((1, 16, 9, 9)) * scale).astype(np.float16)
    b = GraphBuilder()
    y = b.conv(x=b.input("x", x.shape, "fp16"), weight=rng.standard_normal((24, 16, 3, 3)).astype(np.float16))
    b.output(y if follow == "none" else getattr(b, follow)(x=y), name="y")
    (image,) = hexane.compile(b.graph, chip=chip).images
    plain, counted = (run(image, {"x": x}, observe=observe) for observe in (False, True))
    assert [a.tobytes() for a in plain.outputs.values()] == [a.tobytes() for a in counted.outputs.values()]
    counts = {name: sum(t.counters.get(name, 0) for t in counted.report.tasks) for name in ("sums overflowed",)}
    assert (counts["sums overflowed"] > 0) == (scale == 3000.0)
