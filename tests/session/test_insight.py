"""Losses of sums and the errors of layers, against exact counts and plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexane
from hexane.arithmetic.counters import product_losses
from hexane.graph import GraphBuilder
from hexane.numerics.insight import _Numbers, every_value, examine
from hexane.numerics.losses import by_term, dropped_share, sum_losses
from hexane.session.execute import execute
from report.networks import small


def _parts(program):
    return [(segment.kind, segment.source or segment.graph) for segment in program.segments]


def _conv(weight: np.ndarray, extent: int = 6, groups: int = 1):
    b = GraphBuilder()
    x = b.input("x", (1, weight.shape[1] * groups, extent, extent), "fp16")
    b.output(b.conv(x=x, weight=weight, strides=(1, 1), pad_type="valid", dilations=(1, 1), groups=groups, name="y"))
    return b.graph


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2]), st.integers(-9, 0), st.integers(-9, 0))
def test_dropped_products_of_a_1x1_convolution_are_counted_exactly(seed, groups, low_x, low_w) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((1, 4, 6, 6)) * 2.0**low_x).astype(np.float16)
    w = (rng.standard_normal((6, 4 // groups, 1, 1)) * 2.0**low_w).astype(np.float16)
    (op,) = _conv(w, groups=groups).ops
    _, dropped = product_losses(x, w, groups=groups)
    pairs = sum(
        np.count_nonzero(x[:, g * (4 // groups) + c]) * np.count_nonzero(w[g * 6 // groups : (g + 1) * 6 // groups, c])
        for g in range(groups)
        for c in range(4 // groups)
    )
    assert dropped_share(*by_term(op, x, w)) == (dropped / pairs if pairs else 0.0)


def test_headroom_and_scale_of_a_layer_that_overflows() -> None:
    w = np.full((1, 4, 1, 1), 128, np.float16)
    (op,) = _conv(w).ops
    x = np.full((1, 4, 6, 6), 128, np.float16)
    losses = sum_losses(op, x, w)
    assert losses.headroom_bits == losses.worst_bits == -1.0
    assert losses.scale_bits == -2
    assert sum_losses(op, x / np.float16(1024), w).scale_bits == 0


def test_a_layer_of_tiny_weights_is_to_be_scaled_up() -> None:
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((8, 8, 1, 1)) * 2.0**-10).astype(np.float16)
    (op,) = _conv(w).ops
    x = (rng.standard_normal((1, 8, 6, 6)) * 2.0**-6).astype(np.float16)
    losses = sum_losses(op, x, w)
    assert losses.dropped > 0.3 and losses.scale_bits > 6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 30, 400]))
def test_errors_are_those_of_the_values_that_are_finite_in_both(seed, broken) -> None:
    rng = np.random.default_rng(seed)
    got, wanted = (rng.standard_normal((20, 20)).astype(np.float32) for _ in range(2))
    for values in (got, wanted):
        values.ravel()[rng.choice(400, broken, replace=False)] = rng.choice([np.inf, -np.inf, np.nan], broken)
    both = np.isfinite(got) & np.isfinite(wanted)
    a, b = got[both].astype(np.float64), wanted[both].astype(np.float64)
    with np.errstate(all="ignore"):
        relative, largest, cosine = _Numbers(got).error(wanted)
    if not a.size:
        assert (relative, largest, cosine) == (0.0, 0.0, 1.0)
        return
    assert np.isclose(relative, np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)), rtol=1e-12)
    assert largest == np.max(np.abs(a - b))
    assert np.isclose(cosine, a @ b / np.linalg.norm(a) / np.linalg.norm(b), rtol=1e-12, atol=1e-14)


def test_layers_of_a_network() -> None:
    graph = small()
    program = hexane.compile(graph)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float16)}
    insight = examine(_parts(program), inputs, every_value(graph, inputs))
    assert [layer.name for layer in insight.layers] == ["r", "s", "out"]
    assert [layer.op for layer in insight.layers] == ["conv+relu", "sigmoid", "add"]
    last = program.run(inputs)["out"].astype(np.float32)
    wanted = graph.evaluate(inputs)["out"].astype(np.float32)
    assert np.isclose(insight.layers[-1].largest, np.max(np.abs(last - wanted)), atol=1e-3)
    assert insight.first_wrong is None
    assert insight.layers[0].dropped is not None and insight.layers[1].table_ends is not None


def test_the_first_layer_that_goes_wrong_is_found() -> None:
    w = np.full((4, 4, 1, 1), 100, np.float16)
    graph = _conv(w)
    program = hexane.compile(graph)
    inputs = {"x": np.full((1, 4, 6, 6), 100, np.float16)}
    insight = examine(_parts(program), inputs, every_value(graph, inputs))
    assert insight.first_wrong is not None and insight.first_wrong.name == "y"
    assert insight.first_wrong.nonfinite == 4 * 36
    assert insight.scaling["y"] < 0


@pytest.mark.filterwarnings("error")
def test_inputs_beyond_fp16_are_looked_through_without_a_word_of_numpys() -> None:
    graph = small()
    inputs = {"x": np.full((1, 16, 8, 8), 1e6, np.float32)}
    insight = examine(_parts(hexane.compile(graph)), inputs, every_value(graph, {"x": inputs["x"]}))
    assert [layer.name for layer in insight.layers] == ["r", "s", "out"] and np.isinf(insight.values["out"]).all()


def test_layers_of_a_state_that_tasks_write_in_place() -> None:
    """The contents are zero, as a first call finds them."""
    from codegen.test_states import at_a_place
    from hexane.session.run import run_network

    row = np.random.default_rng(0).standard_normal((1, 4, 1, 64)).astype(np.float16)
    done = run_network(at_a_place(), {"row": row}, name="state", insight=True)
    assert done.insight is not None and done.verdict is not None and done.verdict.word in ("same", "close")


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_terms_of_products_meet_each_other(turned):
    """Summed over the terms, the outer products of the rows are the op's own result."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4, 5))
    b = GraphBuilder()
    b.output(b.matmul(
        x=b.input("x", (2, 4, 3) if turned[0] else (2, 3, 4), "fp32"),
        y=b.input("y", (2, 5, 4) if turned[1] else (2, 4, 5), "fp32"), transpose_x=turned[0], transpose_y=turned[1],
    ))  # fmt: skip
    (op,) = b.graph.ops
    left, right = by_term(op, x.swapaxes(1, 2) if turned[0] else x, w.swapaxes(1, 2) if turned[1] else w)
    sums = np.einsum("km,kn->mn", left, right).reshape(2, 3, 2, 5)
    np.testing.assert_allclose(np.stack([sums[0, :, 0], sums[1, :, 1]]), x @ w)


def test_terms_of_layers_meet_each_other():
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((2, 3, 4)), rng.standard_normal((5, 4))
    b = GraphBuilder()
    b.output(b.linear(x=b.input("x", (2, 3, 4), "fp32"), weight=w.astype(np.float32)))
    (op,) = b.graph.ops
    left, right = by_term(op, x, w)
    np.testing.assert_allclose((left.T @ right).reshape(2, 3, 5), x @ w.T)
    x, w = rng.standard_normal((1, 4, 6, 6)), rng.standard_normal((6, 2, 1, 1))
    (op,) = _conv(w.astype(np.float16), groups=2).ops
    left, right = by_term(op, x, w)
    for group in (0, 1):
        part = slice(2 * group, 2 * group + 2)
        expected = np.einsum("chw,oc->ohw", x[0, part], w[3 * group : 3 * group + 3, :, 0, 0])
        np.testing.assert_allclose((right[part].T @ left[part]).reshape(3, 6, 6), expected)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_convolutions_of_a_run_are_not_computed_again(scale, monkeypatch) -> None:
    graph = small()
    program = hexane.compile(graph)
    inputs = {"x": (scale * np.random.default_rng(0).standard_normal((1, 16, 8, 8))).astype(np.float16)}
    reference = every_value(graph, inputs)
    insight = examine(_parts(program), inputs, reference)
    results = execute(program, inputs, observe=True).convolutions
    monkeypatch.setattr("hexane.numerics.sums.conv2d", None)  # a call would be an error
    again = examine(_parts(program), inputs, reference, "M1", results)
    assert again.layers == insight.layers
    assert again.values["out"].tobytes() == insight.values["out"].tobytes()
    other = {"x": inputs["x"] + np.float16(1)}
    with pytest.raises(TypeError):
        examine(_parts(program), other, every_value(graph, other), "M1", results)
