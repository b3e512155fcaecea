"""Local response normalisation in four tasks: bits of graph level, error, range, and what switches it off."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.kernels import known_table, scaled_table

from .levels import agreed


def network(c, *, beta=0.75, alpha=1e-4, k=1.0, size=5, front=("relu",), users=1):
    rng = np.random.default_rng(c)
    b = GraphBuilder()
    x = b.input("x", (1, c, 13, 18), "fp16")
    y = x
    if front:
        weight = (rng.normal(size=(c, c, 1, 1)) / c**0.5).astype(np.float16)
        y = b.conv(x=x, weight=weight, bias=rng.normal(size=c).astype(np.float16))
        if "relu" in front:
            y = b.relu(x=y)
        if "max_pool" in front:
            y = b.max_pool(x=y, kernel_sizes=(3, 3), strides=(2, 2), pad_type="same")
    b.output(b.local_response_norm(x=y, size=size, alpha=alpha, beta=beta, k=k))
    if users > 1:
        b.output(b.abs(x=y))
    return b.graph


def compared(graph, magnitude=1.0, **options):
    """The program's largest error over the largest result; its bits are those of graph level."""
    rng = np.random.default_rng(5)
    inputs = {"x": (magnitude * rng.normal(size=graph.main.inputs[0].shape)).astype(np.float16)}
    program = hexane.compile(graph, **options)
    assert not program.stats()["host_segments"]
    made, wanted = agreed(program, inputs), graph.evaluate(inputs)
    errors = []
    for name, result in made.items():
        errors.append(np.abs(result.astype(float) - wanted[name]).max() / np.abs(wanted[name]).max())
    return max(errors), program


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"front": ("relu", "max_pool")},
        {"front": ("conv",)},
        {"front": ()},
        {"users": 2},
        {"beta": 0.5},
        {"beta": 1.0, "k": 2.0},
        {"beta": 0.6, "alpha": 3.0, "size": 4},
        {"alpha": 0.0},
    ],
    ids=str,
)
def test_bits_and_errors(given):
    error, _ = compared(network(24, **given))
    assert error < 2.5e-3


def test_four_tasks_instead_of_seven():
    graph = network(32)
    _, short = compared(graph)
    _, plain = compared(graph, without=("local-norms",))
    assert short.stats()["tasks"] == 1 + 4 and plain.stats()["tasks"] == 1 + 6
    _, strict = compared(graph, strict=True)
    assert strict.stats()["tasks"] == 1 + 6


@pytest.mark.parametrize("magnitude", [1e-2, 3e2, 5e3])
def test_large_and_small_maps(magnitude):
    """Squares of 256 and more leave fp16; those of a map that is scaled first do not."""
    error, _ = compared(network(16), magnitude)
    assert error < 4e-3


@pytest.mark.parametrize("options", [{}, {"without": ("local-norms",)}, {"chip": "M4"}], ids=str)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"k": 2.0},
        {"beta": 0.5},
        {"beta": 0.6},
        {"beta": 1.3},
        {"alpha": 0.1},
        {"alpha": 1.0},
        {"alpha": 1.0, "beta": 0.5},
        {"alpha": 1.0, "beta": 1.0, "k": 2.0},
        {"alpha": 3.0, "beta": 0.6, "size": 4},
        {"alpha": 40.0, "k": 64.0},
        {"alpha": 0.02, "k": 1e-4, "size": 3},
        {"alpha": 0.5, "beta": 0.25},
    ],
    ids=str,
)
def test_right_for_all_of_fp16(given, options):
    """Of all channels at their largest; where the sum was infinite the map came out as it was, far too large."""
    graph = network(8, front=(), **given)
    op = next(op for op in graph.main.ops if op.type == "local_response_norm")
    values = np.geomspace(2.0**-4, 65504, 13 * 18).astype(np.float16)
    x = np.broadcast_to(values.reshape(1, 1, 13, 18), (1, 8, 13, 18)).copy()
    program = hexane.compile(graph, **options)
    assert not program.stats()["host_segments"]
    made = agreed(program, {"x": x})
    wide = x[0].astype(np.float64)
    before, size = (op.arg("size") - 1) // 2, op.arg("size")
    neighbours = np.array([min(c + size - before, 8) - max(c - before, 0) for c in range(8)]).reshape(8, 1, 1)
    share = op.arg("alpha") / size
    wanted = wide * (op.arg("k") + share * neighbours * wide**2) ** -op.arg("beta")
    (result,) = made.values()
    np.testing.assert_allclose(result[0], wanted, rtol=8e-3, atol=2e-5)


@pytest.mark.parametrize("given", [{"alpha": 300.0, "k": 1e-3}, {"beta": -0.5}, {"k": 0.0}], ids=str)
def test_what_no_scale_holds_is_the_host_s(given):
    program = hexane.compile(network(8, front=(), **given))
    ((_, reason),) = program.stats()["host_reasons"].items()
    assert "local response norm" in reason


@pytest.mark.parametrize("chip", ["M2", "M4"])
def test_other_chips(chip):
    assert compared(network(16), chip=chip)[0] < 2.5e-3


@pytest.mark.parametrize("name", ["exp2", "rsqrt", "recip"])
def test_tables_with_an_exponent_take_powers_of_two(name):
    table = known_table(name)
    x = np.linspace(0.01, 8, 777).astype(np.float16)
    assert np.array_equal(scaled_table(table, 32.0, 0.0)(x), 32 * table(x).astype(np.float32))
    for scale, shift in ((3.0, 0.0), (2.0, 1.0), (-2.0, 0.0)):
        with pytest.raises(UsageError):
            scaled_table(table, scale, shift)
