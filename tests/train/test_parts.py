"""Losses, optimisers, schedules, scales and batches, each against something that is not ours or that can be said."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.errors import UsageError
from hexane.train import SGD, Adam, AdamW, Batches, Schedule, cross_entropy, mse
from hexane.train.batches import indices_of, pieces
from hexane.train.optimizers import clipped
from hexane.train.scale import PATIENCE, loss_scale_of


def numeric(loss, output, labels, step=1e-4):
    gradient = np.zeros_like(output)
    for at in np.ndindex(output.shape):
        ends = []
        for sign in (1, -1):
            moved = output.copy()
            moved[at] += sign * step
            ends.append(loss(moved, labels)[0])
        gradient[at] = (ends[0] - ends[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5), (2, 5, 1, 3)])
def test_cross_entropy_against_scikit_learn(shape):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    output = rng.standard_normal(shape) * 3
    axis = shape.index(5)
    labels = rng.integers(0, 5, shape[:axis] + shape[axis + 1 :])
    loss, gradient = cross_entropy(output, labels)
    flat = np.moveaxis(output, axis, -1).reshape(-1, 5)
    odds = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
    assert loss == pytest.approx(metrics.log_loss(labels.reshape(-1), odds, labels=range(5)))
    np.testing.assert_allclose(gradient, numeric(cross_entropy, output, labels), atol=1e-6)


def test_labels_below_zero_do_not_count():
    output, labels = np.random.default_rng(0).standard_normal((4, 5)), np.array([1, -1, 2, -1])
    loss, gradient = cross_entropy(output, labels)
    assert loss == pytest.approx(cross_entropy(output[::2], labels[::2])[0])
    assert not gradient[1::2].any()
    np.testing.assert_allclose(gradient, numeric(cross_entropy, output, labels), atol=1e-6)


def test_mse_and_what_does_not_fit():
    output = np.random.default_rng(0).standard_normal((3, 2))
    np.testing.assert_allclose(mse(output, output * 0)[1], numeric(mse, output, output * 0), atol=1e-6)
    for loss, labels, words in (
        (mse, np.zeros(3), "shape"),
        (cross_entropy, np.zeros(4, int), "shape"),
        (cross_entropy, np.zeros(3), "dtype"),
        (cross_entropy, np.array([0, 1, 2]), "class 2"),
    ):
        with pytest.raises(UsageError, match=words):
            loss(output, labels)


def run(optimizer, steps=20):
    rng = np.random.default_rng(1)
    weights = {"a": rng.standard_normal((3, 4)).astype(np.float32), "b": rng.standard_normal(5).astype(np.float32)}
    start = {name: array.copy() for name, array in weights.items()}
    moments = optimizer.begin(weights)
    gradients = []
    for count in range(1, steps + 1):
        gradients.append({n: rng.standard_normal(w.shape).astype(np.float32) for n, w in weights.items()})
        optimizer.apply(weights, gradients[-1], moments, optimizer.lr, count)
    return start, gradients, weights


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_against_scikit_learn(nesterov):
    other = pytest.importorskip("sklearn.neural_network._stochastic_optimizers")
    start, gradients, weights = run(SGD(0.1, momentum=0.9, nesterov=nesterov))
    params = [array.astype(np.float64) for array in start.values()]
    peer = other.SGDOptimizer(params, 0.1, momentum=0.9, nesterov=nesterov)
    for step in gradients:
        peer.update_params(params, list(step.values()))
    for ours, theirs in zip(weights.values(), params):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_adam_against_scikit_learn_and_adamw_decays_beside_it():
    other = pytest.importorskip("sklearn.neural_network._stochastic_optimizers")
    start, gradients, weights = run(Adam(0.01))
    params = [array.astype(np.float64) for array in start.values()]
    peer = other.AdamOptimizer(params, 0.01)
    for step in gradients:
        peer.update_params(params, list(step.values()))
    for ours, theirs in zip(weights.values(), params):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    zero = {"w": np.full(3, 2.0, np.float32)}
    AdamW(0.1, weight_decay=0.5).apply(zero, {"w": np.zeros(3)}, AdamW().begin(zero), 0.1, 1)
    np.testing.assert_allclose(zero["w"], 2 * (1 - 0.05))


def test_clipping_by_norm():
    gradients = {"a": np.array([3.0], np.float32), "b": np.array([4.0], np.float32)}
    smaller, norm = clipped(gradients, 1.0)
    assert norm == 5.0 and smaller["b"] == pytest.approx(0.8)
    assert clipped(gradients, 6.0)[0] is gradients


def test_schedules():
    cosine = Schedule("cosine", warm_up=4, steps=104, lowest=0.1)
    assert [cosine(n) for n in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert cosine(4) == 1.0 and cosine(54) == pytest.approx(0.55) and cosine(104) == cosine(500) == pytest.approx(0.1)
    assert [Schedule("step", every=3, factor=0.5)(n) for n in (0, 2, 3, 6)] == [1, 1, 0.5, 0.25]
    for wrong in ({"kind": "cosin"}, {"kind": "cosine"}, {"kind": "step"}):
        with pytest.raises(UsageError):
            Schedule(**wrong)


def test_a_dynamic_scale_halves_and_doubles():
    scale = loss_scale_of("dynamic")
    first = scale.value
    scale.after(False)
    assert (scale.value, scale.skipped) == (first / 2, 1)
    for _ in range(PATIENCE + 1):
        scale.after(True)
    assert scale.value == first
    fixed = loss_scale_of(256)
    fixed.after(False)
    assert (fixed.value, loss_scale_of(None).value, loss_scale_of("auto").is_due) == (256, 1, True)
    for wrong in ("large", 0, -1, float("inf"), True):
        with pytest.raises(UsageError):
            loss_scale_of(wrong)


def test_every_epoch_has_each_sample_once_and_steps_depend_on_their_number_alone():
    orders = [np.concatenate([indices_of(n, 10, 3, 7) for n in range(e * 3, e * 3 + 3)]) for e in (0, 1)]
    assert all(len(set(order.tolist())) == 9 for order in orders) and orders[0].tolist() != orders[1].tolist()
    data = Batches({"x": np.arange(10)}, np.arange(10) * 2, 3, seed=7)
    assert data[4]["x"].tolist() == indices_of(4, 10, 3, 7).tolist() and (data[4]["labels"] == 2 * data[4]["x"]).all()


def test_pieces_and_what_does_not_fit():
    from hexane.graph import TensorType

    one, two = {"x": TensorType("fp16", (2, 3))}, {"x": TensorType("fp16", (2, 3)), "z": TensorType("fp16", (2,))}
    x, y = np.zeros((6, 3)), np.arange(6)
    assert [piece[1].tolist() for piece in pieces((x, y), one)] == [[0, 1], [2, 3], [4, 5]]
    assert len(pieces({"x": x, "z": y, "anything": y}, two)) == 3
    wrong = (
        ({"x": x}, one), ({"x": x, "a": y, "b": y}, one), ((x, y), two), ((x[:3], y[:3]), one), ((x, y[:4]), one),
        ({"x": x, "z": y[:4], "y": y}, two), ({"z": y, "y": y}, two),
    )  # fmt: skip
    for batch, inputs in wrong:
        with pytest.raises(UsageError):
            pieces(batch, inputs)
