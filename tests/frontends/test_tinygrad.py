"""hexane.from_tinygrad: what must be the engine's is, against NumPy and SciPy; a sample of tinygrad's own tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError, UsageError
from tool import tool_named

os.environ.setdefault("DEV", "PYTHON")  # tinygrad's device that needs no compiler
tinygrad = pytest.importorskip("tinygrad")
signal = pytest.importorskip("scipy.signal")
Tensor = tinygrad.Tensor
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "test_matmul test_relu test_softmax test_simple_conv2d test_max_pool2d_simple test_where".split()


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float16).astype(np.float32)


def correlated(x: np.ndarray, w: np.ndarray, stride: int = 1, dilation: int = 1) -> np.ndarray:
    """The convolution of deep learning, by SciPy, one channel at a time."""
    wide = np.zeros((*w.shape[:2], *(dilation * (n - 1) + 1 for n in w.shape[2:])), np.float32)
    wide[:, :, ::dilation, ::dilation] = w
    rows = [[sum(signal.correlate2d(c, k, "valid") for c, k in zip(image, kernel)) for kernel in wide] for image in x]
    return np.array(rows)[:, :, ::stride, ::stride]


WEIGHT, DEPTH, MATRIX = draw(6, 4, 3, 3, seed=1) / 4, draw(4, 1, 3, 3, seed=2) / 2, draw(8, 5, seed=3)
IMAGE, BATCH = draw(1, 4, 9, 9), draw(2, 4, 9, 9)
ENGINE: dict[str, tuple[Any, list[np.ndarray], Any, set[str]]] = {
    # the seed's library: relu, sigmoid, sum, conv, gemm, concat
    "relu": (lambda x: x.relu(), [IMAGE], lambda x: np.maximum(x, 0), {"relu"}),
    "sigmoid": (lambda x: x.sigmoid(), [IMAGE], lambda x: 1 / (1 + np.exp(-x)), {"sigmoid"}),
    "sum": (lambda x: x.sum(1), [IMAGE], lambda x: x.sum(1), {"reduce_sum"}),
    "conv": (lambda x: x.conv2d(Tensor(WEIGHT)), [IMAGE], lambda x: correlated(x, WEIGHT), {"conv"}),
    "gemm": (lambda x: x @ Tensor(MATRIX), [draw(4, 8)], lambda x: x @ MATRIX, {"matmul"}),
    "concat": (lambda x, y: x.cat(y, dim=1), [IMAGE, IMAGE[:, :2]], lambda x, y: np.concatenate([x, y], 1), {"concat"}),
    # the same in other forms
    "conv, stride 2, batch 2": (
        lambda x: x.conv2d(Tensor(WEIGHT), stride=2),
        [BATCH],
        lambda x: correlated(x, WEIGHT, 2),
        {"conv"},
    ),
    "conv, dilation 2": (
        lambda x: x.conv2d(Tensor(WEIGHT), dilation=2),
        [IMAGE],
        lambda x: correlated(x, WEIGHT, 1, 2),
        {"conv"},
    ),
    "conv, one channel each": (
        lambda x: x.conv2d(Tensor(DEPTH), groups=4),
        [BATCH],
        lambda x: np.concatenate([correlated(x[:, i : i + 1], DEPTH[i : i + 1]) for i in range(4)], 1),
        {"conv"},
    ),
    "conv, padding, bias, relu": (
        lambda x: x.conv2d(Tensor(WEIGHT), Tensor(draw(6)), padding=1).relu(),
        [IMAGE],
        lambda x: np.maximum(
            correlated(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), WEIGHT) + draw(6).reshape(1, 6, 1, 1), 0
        ),
        {"conv", "add", "relu"},
    ),
    "products of two, batched": (lambda x, y: x @ y, [draw(3, 4, 8), draw(3, 8, 5)], np.matmul, {"matmul"}),
    "a product turned": (lambda x, y: x @ y.T, [draw(4, 8), draw(5, 8)], lambda x, y: x @ y.T, {"matmul", "transpose"}),
    "largest of windows": (
        lambda x: x.max_pool2d(3, stride=3),
        [IMAGE],
        lambda x: x.reshape(1, 4, 3, 3, 3, 3).max((3, 5)),
        {"max_pool"},
    ),
    "padding with another number": (
        lambda x: x.pad(((0, 0), (0, 0), (1, 2), (0, 3)), value=1.5),
        [IMAGE],
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 3)), constant_values=1.5),
        {"pad"},
    ),
    "tanh": (lambda x: x.tanh(), [IMAGE], np.tanh, {"tanh"}),
    "size": (lambda x: x.abs(), [IMAGE], np.abs, {"abs"}),
    "sign times value": (lambda x: x.sign() * x, [IMAGE], np.abs, {"abs"}),
    "softmax": (
        lambda x: x.softmax(-1),
        [draw(4, 8)],
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        {"reduce_max", "sub", "exp", "reduce_sum", "real_div", "reshape"},
    ),
}


@pytest.mark.parametrize("name", ENGINE)
def test_what_the_engine_does(name: str) -> None:
    function, arrays, truth, kinds = ENGINE[name]
    graph = hexane.from_tinygrad(function, *map(Tensor, arrays))
    given = {f"x{i}": array for i, array in enumerate(arrays)}
    wanted = truth(*arrays)
    np.testing.assert_allclose(graph.evaluate(given)["result"], wanted, rtol=1e-4, atol=1e-4)
    program = hexane.compile(graph)
    assert not program.stats()["host_ops"]
    assert {op.partition(" ")[0] for segment in program.segments for op in segment.ops} <= kinds
    got = program.run(given)["result"]
    np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=4e-3 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize(("batch", "groups", "wide", "stride", "padding"), [
    (1, 4, 4, 1, 1), (1, 2, 8, 2, 1), (2, 4, 4, 1, 0), (1, 16, 1, 1, 1), (3, 2, 3, 1, 2),
])  # fmt: skip
def test_convolutions_by_groups_between_norms(batch: int, groups: int, wide: int, stride: int, padding: int) -> None:
    """``wide`` results a group; tinygrad spells a group's channels and the groups by one axis of its source."""
    nn = tinygrad.nn
    first, second = nn.GroupNorm(groups, 16), nn.GroupNorm(groups, wide * groups)
    weight = draw(wide * groups, 16 // groups, 3, 3, seed=5) / 4
    x = draw(batch, 16, 9, 9, seed=6)

    def network(x: Any) -> Any:
        return second(first(x).conv2d(Tensor(weight), groups=groups, stride=stride, padding=padding).relu())

    graph = hexane.from_tinygrad(network, Tensor(x))
    program = hexane.compile(graph)
    assert not program.stats()["host_ops"] and [op.type for op in graph.ops].count("conv") == 1

    def normed(x: np.ndarray) -> np.ndarray:
        parts = x.reshape(batch, groups, -1)
        parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
        return parts.reshape(x.shape)

    inner = np.pad(normed(x), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    each = 16 // groups
    parts = [
        correlated(inner[:, g * each : g * each + each], weight[g * wide : g * wide + wide], stride)
        for g in range(groups)
    ]
    wanted = normed(np.maximum(np.concatenate(parts, 1), 0))
    np.testing.assert_allclose(graph.evaluate({"x0": x})["result"], wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(program.run({"x0": x})["result"], wanted, atol=0.03)


def test_results_names_and_constants() -> None:
    weight = Tensor(draw(8, 5))
    x = Tensor(draw(4, 8))
    graph = hexane.from_tinygrad(lambda a, b: (a @ weight, [b][0] + 1), x, x, input_names=["left", "right"])
    assert list(graph.inputs) == ["left", "right"] and list(graph.outputs) == ["result_0", "result_1"]
    made = graph.evaluate({"left": x.numpy(), "right": 2 * x.numpy()})
    np.testing.assert_allclose(made["result_0"], x.numpy() @ weight.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made["result_1"], 2 * x.numpy() + 1, rtol=1e-6)
    again = hexane.from_tinygrad(lambda a: (a @ weight).sum(), x)  # the weight has been realised meanwhile
    np.testing.assert_allclose(
        again.evaluate({"x0": x.numpy()})["result"], (x.numpy() @ weight.numpy()).sum(), rtol=1e-4
    )
    same = hexane.from_tinygrad(lambda a: a, x)
    np.testing.assert_array_equal(same.evaluate({"x0": x.numpy()})["result"], x.numpy())


@pytest.mark.parametrize(
    ("function", "truth", "array"),
    [
        (lambda x: x.int() // 3, lambda x: x.astype(np.int32) // 3, draw(4, 5) * 9),
        (lambda x: x.trunc(), np.trunc, draw(4, 5) * 9),
        (lambda x: x.flip(0)[1:, ::2], lambda x: x[::-1][1:, ::2], draw(4, 5)),
        (lambda x: x.sum((0, 2)), lambda x: x.sum((0, 2)), draw(3, 4, 5)),
        (lambda x: (x > 0).any(1), lambda x: (x > 0).any(1), draw(4, 5)),
        (lambda x: x.argmax(1), lambda x: x.argmax(1).astype(np.int32), draw(4, 5)),
        (lambda x: x.diagonal(), np.diagonal, draw(4, 4)),
        (lambda x: (x * x).mean(), lambda x: (x * x).mean(), draw(4, 5)),
        (lambda x: x.reciprocal(), lambda x: 1 / x, np.float32([0.5, -0.25, 4])),
    ],
)  # fmt: skip
def test_other_forms(function: Any, truth: Any, array: np.ndarray) -> None:
    array = array.astype(np.float32)
    made = hexane.from_tinygrad(function, Tensor(array)).evaluate({"x0": array})["result"]
    wanted = truth(array)
    assert made.shape == wanted.shape and made.dtype == wanted.dtype
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_condition_that_is_known(chosen: bool) -> None:
    """A choice between arrays and numbers of Python by a condition that holds one number everywhere."""
    x, y = draw(4, 5), draw(4, 5, seed=1)

    def network(a: Any, b: Any) -> Any:
        condition = Tensor.full((4, 5), chosen)
        picks = (condition.where(a, b), condition.where(a, 2.0), condition.where(3.0, b))
        return tuple(pick * 2 for pick in picks)

    made = hexane.from_tinygrad(network, Tensor(x), Tensor(y)).evaluate({"x0": x, "x1": y})
    for got, wanted in zip(made.values(), (np.where(chosen, x, y), np.where(chosen, x, 2), np.where(chosen, 3, y))):
        np.testing.assert_array_equal(got, np.float32(2) * wanted.astype(np.float32))


def test_weights_that_nobody_used_yet_are_the_callers() -> None:
    layer = tinygrad.nn.Conv2d(3, 8, 3)
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    first, again = (hexane.from_tinygrad(layer, Tensor.empty(2, 3, 8, 8)).evaluate({"x0": x})["result"] for _ in "ab")
    assert np.array_equal(first, again)
    np.testing.assert_allclose(first, layer(Tensor(x)).numpy(), atol=1e-5)


def test_wrong_uses() -> None:
    x = Tensor(draw(4, 5))
    with pytest.raises(UsageError, match="is no function"):
        hexane.from_tinygrad(3, x)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"not a tinygrad\.Tensor"):
        hexane.from_tinygrad(lambda a: a, draw(3))
    with pytest.raises(UsageError, match="different names"):
        hexane.from_tinygrad(lambda a, b: a + b, x, x, input_names=["a", "a"])
    with pytest.raises(UsageError, match="gives a int"):
        hexane.from_tinygrad(lambda a: 3, x)
    with pytest.raises(UnsupportedError, match="cannot be traced"):
        hexane.from_tinygrad(lambda a: a @ a, x)
    with pytest.raises(UnsupportedError):
        hexane.from_tinygrad(lambda a: a.cast("bfloat16") + 1, x)


@pytest.mark.slow  # they compare with torch
def test_a_sample_of_tinygrads_own_tests() -> None:
    pytest.importorskip("torch")
    if not tool_named("tinygrad_ops").TESTS.is_file():
        pytest.skip("models/tinygrad/test_ops.py (tinygrad's test/backend/test_ops.py) is not there")
    for name in SAMPLE:
        (outcome,) = [o for o in tool_named("tinygrad_ops").outcomes(only=name) if o.name == name]
        assert outcome.kind == "pass", outcome


@pytest.mark.slow
def test_all_of_tinygrads_own_tests() -> None:
    pytest.importorskip("torch")
    if not tool_named("tinygrad_ops").TESTS.is_file():
        pytest.skip("models/tinygrad/test_ops.py (tinygrad's test/backend/test_ops.py) is not there")
    found = list(tool_named("tinygrad_ops").outcomes())
    bad = [outcome for outcome in found if outcome.kind in ("wrong", "crash")]
    known = {"test_tan"}  # docs/tinygrad-ops.md: the poles of a tangent
    assert {outcome.name for outcome in bad} <= known, bad
    assert sum(outcome.kind == "pass" for outcome in found) >= 0.85 * len(found)
