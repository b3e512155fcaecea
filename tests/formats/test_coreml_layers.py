"""Layers whose parameters or operands are constants of the file: against NumPy, as Core ML's format describes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.test_coreml_network import Network, fill

from hexane.errors import HexaneError, UnsupportedError

pytest.importorskip("coremltools.proto", reason="coremltools is not installed")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 5, 6)).astype(np.float32)
TABLE = RNG.standard_normal((7, 3)).astype(np.float32)
GAMMA, BETA = RNG.standard_normal((2, 4, 5, 6)).astype(np.float32)
WORDS = np.array([[6, 0, 3], [2, 2, 5]], np.float32)
COND = np.array([[0, 1, 1, 0, 2, 0]], np.float32)


def network(kind: str, inputs: list[np.ndarray], constants: list[Any], fields: dict, outputs: int = 1) -> Network:
    """One layer of inputs x0, x1 ... and then constants of the file, c0, c1 ..., which ``loadConstantND`` loads."""
    net = Network()
    names = [f"x{n}" for n in range(len(inputs))]
    for name, array in zip(names, inputs):
        net.array(name, array.shape)
    for n, constant in enumerate(constants):
        array = np.array(constant, np.float32)
        names.append(f"c{n}")
        params = net.layer("loadConstantND", [], names[-1:])
        params.shape.extend(array.shape)
        fill(params.data, array)
    results = [f"y{n}" for n in range(outputs)]
    params = net.layer(kind, names, results)
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            fill(getattr(params, name), value)
        elif isinstance(value, list):
            getattr(params, name).extend(value)
        else:
            setattr(params, name, value)
    net.output(*results)
    return net


def case(kind: str, f: Callable[..., Any], *inputs: np.ndarray, constants: Any = (), **fields: Any) -> Any:
    label = "-".join(str(v) for v in (*fields.values(), *constants) if not isinstance(v, np.ndarray))
    return pytest.param(kind, list(inputs), list(constants), fields, f, id=f"{kind}-{label}")


def normal(span: int, eps: float) -> Any:
    """Layer normalisation over the last ``span`` axes."""
    shape, axes = list(X.shape[-span:]), tuple(range(-span, 0))
    gamma, beta = (np.resize(values, shape) for values in (GAMMA, BETA))

    def f(x: np.ndarray) -> np.ndarray:
        return gamma * (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps) + beta

    return case("layerNormalization", f, X, normalizedShape=shape, gamma=gamma, beta=beta, eps=eps)


def best(axis: int, k: int, bottom: bool, constants: Any = ()) -> Any:
    """The ``k`` largest or smallest elements along an axis, and their places; a second input goes before ``K``."""

    def f(x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.argsort(x if bottom else -x, axis, kind="stable").take(range(k), axis)
        return np.take_along_axis(x, places, axis), places

    return case("topK", f, X, constants=constants, axis=axis, K=1 if constants else k, useBottomK=bottom)


def embedding(words: np.ndarray, bias: bool) -> Any:
    more = {"hasBias": True, "bias": TABLE[0] + 1} if bias else {}
    return case(
        "embeddingND",
        lambda x: TABLE[x[..., 0].astype(int)] + (TABLE[0] + 1 if bias else 0),
        words[..., None],
        vocabSize=7,
        embeddingSize=3,
        weights=TABLE.T,
        **more,
    )


@pytest.mark.parametrize(
    ("kind", "inputs", "constants", "fields", "f"),
    [
        *(case("argMin", lambda x, a=axis, r=remove: np.expand_dims(x.argmin(a), () if r else a), X, axis=axis,
               removeDim=remove) for axis in (0, 2, -1, -3) for remove in (False, True)),
        *(case(kind, lambda x, k=kind: np.array([getattr(x, k.lower())()]), X[0, 0, 0], axis=0, removeDim=remove)
          for kind in ("argMin", "argMax") for remove in (False, True)),
        *(case("broadcastToDynamic", lambda x, s: np.broadcast_to(x, s.astype(int)), x, constants=[shape])
          for x, shape in ((X, [3, 2, 4, 5, 6]), (X[:1, :, :1], [2, 4, 7, 6]), (X[0, 0, :, :1], [5, 3]))),
        *(case("reshapeDynamic", lambda x, s: x.reshape(s.astype(int)), X, constants=[shape])
          for shape in ([240], [8, 30], [2, -1, 3], [1, 2, 4, 5, 6])),
        *(case("fillDynamic", lambda s, v=value: np.full(s.astype(int), v), constants=[shape], value=value)
          for shape, value in (([3], 0.0), ([2, 3, 1], -2.5))),
        *(case("rangeDynamic", lambda *_, v=values: np.array(v), constants=numbers, startValue=1.5, stepSizeValue=2.0)
          for numbers, values in (([7], [1.5, 3.5, 5.5]), ([[5.5]], [1.5, 3.5]), ([7, 2], [2, 4, 6]),
                                  ([-3, [2], -1.5], [2, 0.5, -1, -2.5]), ([7, 8, 1], []))),
        *(case("sliceBySize", lambda x, b, a=axis, n=size: x.take(range(int(b), int(b) + n), a), X, constants=[begin],
               axis=axis, size=size) for axis, begin, size in ((1, 1, 2), (-1, 0, 6), (-2, 4, 1), (0, 1, 1))),
        *(case("splitND", lambda x, a=axis: np.split(x, 2, a), X, axis=axis, numSplits=2) for axis in (1, -1, -4)),
        *(case("splitND", lambda x, a=axis, s=sizes: np.split(x, np.cumsum(s)[:-1], a), X, axis=axis, splitSizes=sizes)
          for axis, sizes in ((-3, [3, 1]), (2, [1, 3, 1]), (-1, [2, 4]))),
        *(best(axis, k, bottom) for axis, k in ((1, 4), (-1, 3), (-2, 1), (0, 2)) for bottom in (False, True)),
        best(-1, 3, False, [3]), best(2, 2, True, [[2]]),
        *(embedding(words, bias) for words in (WORDS[0], WORDS, WORDS[:, None], WORDS[None, None]) for bias in (0, 1)),
        *(normal(span, eps) for span in (1, 2, 3, 4) for eps in (1e-5, 0.5)),
        *(case("whereBroadcastable", lambda c, a, b: np.where(c, a, b), *arrays)
          for arrays in ((X > 0, X, -2 * X), (COND, X, X[:, :1, :, :1]), (X[:, :1] > 0, X[0, 0], X[0, :, :1]))),
        case("whereBroadcastable", lambda x, a, b: np.where(x, a, b), X > 0,
             constants=[2.5, [[-1], [1], [2], [3], [4]]]),
        *(case("crop", lambda x, y, h=top, w=left: x[..., h : h + y.shape[-2], w : w + y.shape[-1]], x,
               np.zeros((*x.shape[:-2], 3, 2), np.float32), offset=[top, left])
          for x in (X, X[0], X[None]) for top, left in ((0, 0), (2, 4), (1, 0))),
    ],
)  # fmt: skip
def test_layers_are_those_of_numpy(
    tmp_path: Path, kind: str, inputs: list[np.ndarray], constants: list[Any], fields: dict, f: Callable
) -> None:
    inputs = [np.asarray(array, np.float32) for array in inputs]
    expected = f(*inputs, *(np.array(constant, np.float32) for constant in constants))
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    net = network(kind, inputs, constants, fields, len(expected))
    results = net.load(tmp_path).evaluate({f"x{n}": array for n, array in enumerate(inputs)})
    for n, array in enumerate(expected):
        assert results[f"y{n}"].shape == np.shape(array)
        np.testing.assert_allclose(results[f"y{n}"], array, rtol=1e-6, atol=3e-7)


def test_a_crop_of_one_input_takes_its_borders_away(tmp_path: Path) -> None:
    net = network("crop", [X], [], {})
    for start, end in ((1, 2), (0, 3)):
        net.network.layers[0].crop.cropAmounts.borderAmounts.add(startEdgeSize=start, endEdgeSize=end)
    np.testing.assert_array_equal(net.load(tmp_path).evaluate({"x0": X})["y0"], X[..., 1:3, 0:3])
    net.network.layers[0].crop.cropAmounts.borderAmounts.add()
    with pytest.raises(HexaneError, match=r"crop.*3 borders"):
        net.load(tmp_path)


def grid(method: int, extent: int, count: int) -> np.ndarray:
    """Places where each method of sampling reads ``count`` values out of ``extent``."""
    spacing = max(1, extent - 1) / count
    start, end = [
        (0, extent - 1),
        (0, extent - 1) if count > 1 else ((extent - 1) / 2,) * 2,
        (0, extent - extent / count),
        (0.5 * spacing, (count - 0.5) * spacing),
    ][method]
    return np.minimum(extent - 1, np.linspace(start, end, count))


def stretched(x: np.ndarray, axis: int, places: np.ndarray) -> np.ndarray:
    """Values at places between those of an axis, linearly."""
    return np.apply_along_axis(lambda line: np.interp(places, range(len(line)), line), axis, x)


@pytest.mark.parametrize("method", range(4))
@pytest.mark.parametrize("size", [(10, 12), (9, 4), (3, 13), (1, 6), (5, 1), (2, 2), ()])
@pytest.mark.parametrize("x", [X, X[0], X[None], X[:, :, :1, :]], ids=lambda x: str(x.ndim))
def test_grids_of_bilinear_resizing(tmp_path: Path, method: int, size: tuple[int, ...], x: np.ndarray) -> None:
    net = network("resizeBilinear", [x], [], {"targetSize": list(size)})
    net.network.layers[0].resizeBilinear.mode.samplingMethod = method
    expected = x
    for axis, count in zip((-2, -1), size or (1, 1)):
        expected = stretched(expected, axis, grid(method, x.shape[axis], count))
    result = net.load(tmp_path).evaluate({"x0": x})["y0"]
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("exact", [False, True])
def test_a_constant_of_five_axes(tmp_path: Path, exact: bool) -> None:
    """[1, 1, C, H, W]: beside inputs of four axes a result has five, and networks of five axes declare three."""
    net = Network(exact)
    net.array("x", X.shape[1:])
    params = net.layer("loadConstant", [], ["c"])
    params.shape.extend(X.shape[1:])
    fill(params.data, X[1])
    net.layer("add", ["x", "c"], ["y"])
    net.output("y")
    result = net.load(tmp_path).evaluate({"x": X[0]})["y"]
    assert result.shape == ((1, 1) if exact else ()) + X.shape[1:]
    np.testing.assert_allclose(result.reshape(X.shape[1:]), X[0] + X[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "arrays", "fields", "message"),
    [
        ("topK", [X, X[0, 0, 0, :1]], {"axis": 1}, "topK.*number of elements.*run time"),
        ("reshapeDynamic", [X, X[0, 0, 0]], {}, "reshapeDynamic.*shape.*run time"),
        ("broadcastToDynamic", [X, X[0, 0, 0]], {}, "broadcastToDynamic.*shape.*run time"),
        ("fillDynamic", [X[0, 0, 0]], {}, "fillDynamic.*shape.*run time"),
        ("rangeDynamic", [X[0, 0, 0, :1]], {"stepSizeValue": 1.0}, "rangeDynamic.*range.*run time"),
        ("sliceBySize", [X, X[0, 0, 0, :1]], {"size": 1}, "sliceBySize.*start.*run time"),
    ],
)
def test_extents_of_run_time_are_refused(
    tmp_path: Path, kind: str, arrays: list[np.ndarray], fields: dict, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        network(kind, arrays, [], fields, 1 + (kind == "topK")).load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "arrays", "constants", "fields", "message"),
    [
        ("argMin", [X], [], {"axis": 4}, "argMin.*axis"),
        ("sliceBySize", [X], [3], {"axis": 1, "size": 2}, "2 elements from 3 on do not lie"),
        ("sliceBySize", [X], [[1, 1]], {"axis": 1, "size": 2}, "sliceBySize.*a start of 2 numbers"),
        ("sliceBySize", [X], [0], {"axis": 4, "size": 2}, "sliceBySize.*axis 4"),
        ("splitND", [X], [], {"axis": 1, "splitSizes": [3, 2]}, "splitND.*do not add up to 4"),
        ("splitND", [X], [], {"axis": 2, "numSplits": 2}, "splitND.*5 does not split"),
        ("topK", [X], [], {"axis": 1, "K": 5}, "topK.*k 5 of 4"),
        ("topK", [X], [[]], {"axis": 1}, "topK.*a number of elements of 0 numbers"),
        ("crop", [X, X], [], {"offset": [1, 0]}, "crop.*from 0 on"),
        ("crop", [X, X[0, 0, 0]], [], {}, "crop.*2 offsets and 1 extents"),
        ("crop", [X, X], [], {"offset": [0]}, "crop.*1 offsets and 2 extents"),
        ("broadcastToDynamic", [X], [[4, 5, 6]], {}, "broadcastToDynamic.*does not broadcast"),
        ("reshapeDynamic", [X], [[7, -1]], {}, "reshapeDynamic.*cannot be reshaped"),
        ("fillDynamic", [], [[2, -1]], {}, "fillDynamic.*does not broadcast"),
        ("fillDynamic", [], [[1e6, 1e6]], {}, "fillDynamic.*elements; the limit is"),
        ("rangeDynamic", [], [1e9], {"stepSizeValue": 1e-9}, "rangeDynamic.*elements; the limit is"),
        ("rangeDynamic", [], [], {"stepSizeValue": 1.0}, "rangeDynamic.*lacks input 0"),
        ("rangeDynamic", [], [7], {}, "rangeDynamic.*steps of 0"),
        ("embeddingND", [X], [], {"vocabSize": 7, "embeddingSize": 3, "weights": TABLE.T}, "embeddingND.*240 elements"),
        ("layerNormalization", [X], [], {"normalizedShape": [5], "gamma": GAMMA[0, 0, :5], "beta": BETA[0, 0, :5]},
         "layerNormalization.*gamma has shape"),
        ("layerNormalization", [X[0, 0, 0]], [], {"normalizedShape": [5, 6], "gamma": GAMMA[0, 0], "beta": BETA[0, 0]},
         "layerNormalization.*2 axes in a tensor of 1"),
        ("whereBroadcastable", [X, X, X[..., :2]], [], {}, "whereBroadcastable.*do not broadcast"),
        ("resizeBilinear", [X], [], {"targetSize": [3]}, "resizeBilinear.*1 numbers"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, kind: str, arrays: list[np.ndarray], constants: list[Any], fields: dict, message: str
) -> None:
    with pytest.raises(HexaneError, match=message):
        network(kind, arrays, constants, fields, 1 + (kind in ("topK", "splitND"))).load(tmp_path)
