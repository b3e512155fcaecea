"""Classic Core ML networks, layer by layer, against plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, HexaneError, UnsupportedError
from hexane.formats.open_shapes import OpenShapes

pytest.importorskip("coremltools.proto", reason="coremltools is not installed")


class Network:
    """Builds a model file out of layers; ``exact`` chooses the newer mapping of ranks."""

    def __init__(self, exact: bool = True) -> None:
        from hexane.formats.coreml.protos import protos

        self.model = protos().model.Model()
        self.model.specificationVersion = 4 if exact else 1
        self.network = self.model.neuralNetwork
        self.network.arrayInputShapeMapping = int(exact)

    def array(self, name: str, shape: tuple[int, ...]) -> None:
        feature = self.model.description.input.add()
        feature.name = name
        feature.type.multiArrayType.shape.extend(shape)
        feature.type.multiArrayType.dataType = 65568

    def layer(self, kind: str, inputs: list[str], outputs: list[str]) -> Any:
        layer = self.network.layers.add()
        layer.name = f"{kind} of {outputs[0]}"
        layer.input.extend(inputs)
        layer.output.extend(outputs)
        getattr(layer, kind).SetInParent()
        return getattr(layer, kind)

    def output(self, *names: str) -> None:
        for name in names:
            feature = self.model.description.output.add()
            feature.name = name
            feature.type.multiArrayType.dataType = 65568

    def load(self, folder: Path) -> Any:
        (folder / "m.mlmodel").write_bytes(self.model.SerializeToString())
        return hexane.load(folder / "m.mlmodel")


def fill(params: Any, array: np.ndarray) -> None:
    params.floatValue.extend(array.reshape(-1).tolist())


RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6, 6)).astype(np.float32)


def tiles(x: np.ndarray) -> np.ndarray:
    """[2, 4, 6, 6] as [2, 4, 3, 2, 3, 2]: rows and columns in pairs."""
    return x.reshape(2, 4, 3, 2, 3, 2)


def stretched(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rows and columns of [2, 4, 6, 6] at places between them, linearly."""
    for axis in (2, 3):
        x = np.apply_along_axis(lambda line: np.interp(places, range(6), line), axis, x)
    return x


def unary(kind: str, f: Callable[[np.ndarray], np.ndarray], **fields: Any) -> Any:
    return pytest.param(kind, fields, f, id=f"{kind}-{'-'.join(map(str, fields.values()))}")


@pytest.mark.parametrize(
    ("kind", "fields", "f"),
    [
        unary("softmaxND", lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), axis=-1),
        unary("softmax", lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        unary("clip", lambda x: np.clip(x, -0.5, 0.5), minVal=-0.5, maxVal=0.5),
        unary("unary", lambda x: np.abs(2 * x + 1), type=6, scale=2.0, shift=1.0),
        unary("unary", lambda x: np.maximum(x, 0.25), type=7, alpha=0.25),
        unary("unary", lambda x: x**2, type=3, alpha=2.0),
        unary("erf", lambda x: np.vectorize(__import__("math").erf)(x)),
        unary("floor", np.floor),
        unary("asinh", np.arcsinh),
        unary("add", lambda x: x + 3, alpha=3.0),
        unary("multiply", lambda x: x * 3, alpha=3.0),
        unary("reduce", lambda x: x.mean((2, 3), keepdims=True), mode=1, axis=1),
        unary("reduce", lambda x: x.argmax(1, keepdims=True).astype(np.float32), mode=9, axis=2),
        unary("reduceMax", lambda x: x.max((1, 3)), axes=[1, 3]),
        unary("reduceSum", lambda x: x.sum(), reduceAll=True),
        unary("reduceL2", lambda x: np.sqrt((x * x).sum(-1, keepdims=True)), axes=[-1], keepDims=True),
        unary("argMax", lambda x: x.argmax(2).astype(np.float32), axis=2, removeDim=True),
        unary("transpose", lambda x: x.transpose(0, 2, 3, 1), axes=[0, 2, 3, 1]),
        unary("reshapeStatic", lambda x: x.reshape(2, 12, 12), targetShape=[2, 12, -1]),
        unary("flattenTo2D", lambda x: x.reshape(8, 36), axis=2),
        unary("expandDims", lambda x: x[:, None], axes=[1]),
        unary("tile", lambda x: np.tile(x, (1, 2, 1, 1)), reps=[1, 2, 1, 1]),
        unary("reverse", lambda x: x[:, ::-1], reverseDim=[False, True, False, False]),
        unary("cumSum", lambda x: np.cumsum(x, 1), axis=1),
        unary("slice", lambda x: x[:, :, 1:5:2], axis=1, startIndex=1, endIndex=5, stride=2),
        unary("slice", lambda x: x[:, 1:4], axis=0, startIndex=1, endIndex=-1, stride=1),
        unary("reorganizeData", lambda x: tiles(x).transpose(0, 3, 5, 1, 2, 4).reshape(2, 16, 3, 3), blockSize=2),
        unary("upsample", lambda x: x.repeat(2, 2).repeat(3, 3), scalingFactor=[2, 3]),
        unary("reorganizeData", lambda x: x.reshape(2, 2, 2, 1, 6, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 1, 12, 12),
              blockSize=2, mode=1),
        unary("reorganizeData", lambda x: x.reshape(2, 1, 2, 2, 6, 6).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 12, 12),
              blockSize=2, mode=2),
        unary("upsample", lambda x: stretched(x, np.arange(12) / 2), scalingFactor=[2, 2], mode=1),
        unary("upsample", lambda x: stretched(x, np.linspace(0, 5, 12)), scalingFactor=[2, 2], mode=1,
              linearUpsampleMode=1),
        unary("upsample", lambda x: stretched(x, np.arange(12) / 2 - 0.25), scalingFactor=[2, 2], mode=1,
              linearUpsampleMode=2),
        unary("flatten", lambda x: x.reshape(2, 144, 1, 1), mode=0),
        unary("flatten", lambda x: x.transpose(0, 2, 3, 1).reshape(2, 144, 1, 1), mode=1),
        unary("permute", lambda x: x.transpose(0, 3, 1, 2), axis=[0, 3, 1, 2]),
        unary("reshape", lambda x: x.reshape(2, 8, 3, 6), targetShape=[8, 3, 6]),
        unary("reshape", lambda x: x.transpose(0, 2, 3, 1).reshape(2, 3, 6, 8).transpose(0, 3, 1, 2),
              targetShape=[8, 3, 6], mode=1),
        unary("constantPad", lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2), (3, 0)), constant_values=0.5), value=0.5,
              padAmounts=[0, 0, 0, 0, 1, 2, 3, 0]),
        unary("sliceStatic", lambda x: x[1, :, 1:, 4::-2], beginIds=[1, 0, 1, 4], endIds=[2, 4, 1, 0],
              strides=[1, 1, 1, -2], beginMasks=[False, True, False, False], endMasks=[False, False, True, True],
              squeezeMasks=[True, False, False, False]),
        unary("getShape", lambda x: np.array(x.shape)),
        unary("fillLike", lambda x: np.full(x.shape, 2.5), value=2.5),
        unary("fillStatic", lambda x: np.full((2, 3), 2.5), value=2.5, targetShape=[2, 3]),
        unary("rangeStatic", lambda x: np.array([1, 1.5, 2, 2.5]), startValue=1.0, endValue=3.0, stepSizeValue=0.5),
        unary("lowerTriangular", lambda x: np.tril(x, 1), k=1),
        unary("upperTriangular", lambda x: np.triu(x, -1), k=-1),
        unary("matrixBandPart", lambda x: np.tril(np.triu(x, -1), 2), numLower=1, numUpper=2),
        unary("argSort", lambda x: np.argsort(-x, 1), axis=1, descending=True),
        unary("cumSum", lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1] - x, axis=1, excludeFinalSum=True, reverse=True),
        unary("slidingWindows", lambda x: np.stack([x[:, :, n : n + 3] for n in (0, 2)], 2), axis=2, windowSize=3,
              step=2),
        unary("globalPooling3d", lambda x: x.max((1, 2, 3), keepdims=True), type=0),
        unary("globalPooling3d", lambda x: x.mean((1, 2, 3), keepdims=True), type=1),
        unary("pooling", lambda x: np.sqrt((tiles(x) ** 2).sum((3, 5))), type=2, kernelSize=[2, 2], stride=[2, 2]),
        unary("pooling", lambda x: tiles(x).max((3, 5)), type=0, kernelSize=[2, 2], stride=[2, 2]),
        unary("pooling", lambda x: x.mean((2, 3), keepdims=True), type=1, globalPooling=True),
        unary("mvn", lambda x: x - x.mean((1, 2, 3), keepdims=True), acrossChannels=True),
        unary("broadcastToStatic", lambda x: np.broadcast_to(x, (3, 2, 4, 6, 6)), targetShape=[3, 2, 4, 6, 6]),
    ],
)  # fmt: skip
def test_layers_of_one_input(tmp_path: Path, kind: str, fields: dict, f: Callable) -> None:
    net = Network()
    net.array("x", X.shape)
    params = net.layer(kind, ["x"], ["y"])
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(params, name).extend(value)
        else:
            setattr(params, name, value)
    if kind == "pooling":
        params.valid.SetInParent()
    net.output("y")
    made = net.load(tmp_path).evaluate({"x": X})["y"]
    np.testing.assert_allclose(made, f(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "f"),
    [
        ("addBroadcastable", np.add),
        ("subtractBroadcastable", np.subtract),
        ("divideBroadcastable", np.divide),
        ("maxBroadcastable", np.maximum),
        ("lessThan", lambda a, b: (a < b).astype(np.float32)),
        ("batchedMatmul", np.matmul),
        ("average", lambda a, b: (a + b) / 2),
        ("concatND", lambda a, b: np.concatenate([a, np.broadcast_to(b, a.shape)], 0)),
    ],
)
def test_layers_of_two_inputs(tmp_path: Path, kind: str, f: Callable) -> None:
    a = RNG.standard_normal((3, 4, 4)).astype(np.float32)
    b = RNG.standard_normal((3, 4, 4) if kind in ("batchedMatmul", "concatND") else (4, 1)).astype(np.float32)
    net = Network()
    net.array("a", a.shape)
    net.array("b", b.shape)
    net.layer(kind, ["a", "b"], ["y"])
    net.output("y")
    np.testing.assert_allclose(net.load(tmp_path).evaluate({"a": a, "b": b})["y"], f(a, b), rtol=1e-5, atol=1e-6)


def several(kind: str, f: Callable[..., np.ndarray], *arrays: Any, **fields: Any) -> Any:
    return pytest.param(kind, fields, [np.array(array, np.float32) for array in arrays], f, id=kind)


def put(x: np.ndarray, place: Any, values: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[place] = values
    return x


TABLE = RNG.standard_normal((4, 5))
PLACES = (np.array([1, 3]), np.array([2, 0]))
COLUMNS = (np.arange(4)[:, None], np.array([[0, 4], [1, 2], [3, 0], [2, 4]]))


@pytest.mark.parametrize(
    ("kind", "fields", "arrays", "f"),
    [
        several("gather", lambda x, i: x[:, [4, 0, 4]], TABLE, [4, 0, 4], axis=1),
        several("gatherND", lambda x, i: x[PLACES], TABLE, np.transpose(PLACES)),
        several("gatherAlongAxis", lambda x, i: x[COLUMNS], TABLE, COLUMNS[1], axis=1),
        several("scatter", lambda x, i, u: x + put(0 * x, [2, 0], u), TABLE, [2, 0], TABLE[:2] + 1, axis=0, mode=1),
        several("scatterND", lambda x, i, u: put(x, PLACES, u), TABLE, np.transpose(PLACES), [7, 8]),
        several("scatterAlongAxis", lambda x, i, u: put(x, COLUMNS, x[COLUMNS] * u), TABLE, COLUMNS[1], TABLE[:, :2],
                axis=1, mode=3),
        several("oneHot", lambda i: 3 * np.eye(4)[[1, 0, 3]] - 1, [1, 0, 3], oneHotVectorSize=4, axis=-1, onValue=2.0,
                offValue=-1.0),
        several("logicalAnd", lambda a, b: [0, 0, 0, 1], [0, 0, 2, 2], [0, 3, 0, 3]),
        several("logicalOr", lambda a, b: [0, 1, 1, 1], [0, 0, 2, 2], [0, 3, 0, 3]),
        several("logicalXor", lambda a, b: [0, 1, 1, 0], [0, 0, 2, 2], [0, 3, 0, 3]),
        several("reshapeLike", lambda x, y: x.reshape(2, 10), TABLE, np.zeros((2, 10))),
        several("broadcastToLike", lambda x, y: np.tile(x, (3, 1, 1)), TABLE, np.zeros((3, 4, 5))),
    ],
)  # fmt: skip
def test_layers_of_places_and_shapes(
    tmp_path: Path, kind: str, fields: dict, arrays: list[np.ndarray], f: Callable
) -> None:
    net = Network()
    inputs = dict(zip("abc", arrays))
    for name, array in inputs.items():
        net.array(name, array.shape)
    params = net.layer(kind, list(inputs), ["y"])
    for name, value in fields.items():
        setattr(params, name, value)
    net.output("y")
    np.testing.assert_allclose(net.load(tmp_path).evaluate(inputs)["y"], f(*arrays), rtol=1e-5, atol=1e-6)


VOLUME = RNG.standard_normal((2, 4, 5, 6, 4)).astype(np.float32)
SIDES = {"Depth": ("Front", "Back"), "Height": ("Top", "Bottom"), "Width": ("Left", "Right")}
PADDINGS = ({"pads": [1, 0, 1, 0, 2, 1]}, {"auto_pad": "VALID"}, {"auto_pad": "SAME_UPPER"})
"""ONNX's attributes for the numbers that paddings have in Core ML."""


@pytest.mark.parametrize(
    ("op", "fields", "attributes", "padding"),
    [
        *(("MaxPool", {"type": 0}, {}, padding) for padding in range(3)),
        *(("AveragePool", {"type": 1}, {"count_include_pad": 1}, padding) for padding in range(3)),
        *(("AveragePool", {"type": 1, "countExcludePadding": True}, {}, padding) for padding in range(3)),
        *(("Conv", {"dilationDepth": 2}, {"dilations": [2, 1, 1]}, padding) for padding in range(2)),
        *(("Conv", {"nGroups": 2}, {"group": 2}, padding) for padding in range(3)),
        *(("ConvTranspose", {"nGroups": 2, "isDeconvolution": True}, {"group": 2}, padding) for padding in range(2)),
    ],
)
def test_layers_of_volumes_are_those_of_onnxruntime(
    tmp_path: Path, op: str, fields: dict, attributes: dict, padding: int
) -> None:
    helper, runtime = pytest.importorskip("onnx.helper"), pytest.importorskip("onnxruntime")
    kernel, strides, pooling = (2, 3, 2), (1, 2, 1), op.endswith("Pool")
    net = Network()
    net.array("x", VOLUME.shape)
    params = net.layer("pooling3d" if pooling else "convolution3d", ["x"], ["y"])
    params.paddingType = padding
    pads = zip(*np.reshape(PADDINGS[0]["pads"], (2, 3)))
    for (axis, sides), extent, step, widths in zip(SIDES.items(), kernel, strides, pads):
        setattr(params, f"kernel{axis}", extent)
        setattr(params, f"stride{axis}", step)
        for side, width in zip(sides, widths):
            setattr(params, f"customPadding{side}", width)
    for name, value in fields.items():
        setattr(params, name, value)
    weights = {}
    if not pooling:
        params.inputChannels, params.outputChannels, params.hasBias = 4, 6, True
        groups = attributes.get("group", 1)
        channels = (6, 4 // groups) if op == "Conv" else (4, 6 // groups)
        weights = {"w": RNG.standard_normal((*channels, *kernel)), "b": RNG.standard_normal(6)}
        fill(params.weights, weights["w"])
        fill(params.bias, weights["b"])
    net.output("y")
    node = helper.make_node(
        op, ["x", *weights], ["y"], kernel_shape=kernel, strides=strides, **attributes, **PADDINGS[padding]
    )
    x, y = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", VOLUME.shape), ("y", None)))
    constants = [helper.make_tensor(name, 1, array.shape, array.ravel()) for name, array in weights.items()]
    graph = helper.make_graph([node], "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": VOLUME})
    np.testing.assert_allclose(net.load(tmp_path).evaluate({"x": VOLUME})["y"], expected, rtol=1e-5, atol=1e-6)


def test_an_old_network_with_an_image(tmp_path: Path) -> None:
    """[batch, channels, height, width] inside, an image with scale and bias outside; weights quantised three ways."""
    net = Network(exact=False)
    feature = net.model.description.input.add()
    feature.name = "image"
    feature.type.imageType.width, feature.type.imageType.height, feature.type.imageType.colorSpace = 4, 4, 30
    scaler = net.network.preprocessing.add()
    scaler.featureName = "image"
    scaler.scaler.channelScale = 1 / 128
    scaler.scaler.redBias, scaler.scaler.greenBias, scaler.scaler.blueBias = -1.0, -0.5, 0.5
    conv = net.layer("convolution", ["image"], ["c"])
    conv.outputChannels, conv.kernelChannels, conv.nGroups, conv.hasBias = 2, 3, 1, True
    conv.kernelSize.extend([1, 1])
    conv.valid.SetInParent()
    indices = RNG.integers(0, 16, (2, 3))
    table = RNG.standard_normal(16).astype(np.float32)
    conv.weights.rawValue = np.packbits((indices.reshape(-1, 1) >> np.arange(3, -1, -1) & 1).astype(np.uint8)).tobytes()
    conv.weights.quantization.numberOfBits = 4
    conv.weights.quantization.lookupTableQuantization.floatValue.extend(table.tolist())
    conv.bias.float16Value = np.array([0.5, -0.25], "<f2").tobytes()
    norm = net.layer("batchnorm", ["c"], ["n"])
    norm.channels, norm.epsilon = 2, 1e-3
    gamma, beta, mean, variance = (RNG.uniform(0.5, 1.5, 2).astype(np.float32) for _ in range(4))
    for field, array in ((norm.gamma, gamma), (norm.beta, beta), (norm.mean, mean), (norm.variance, variance)):
        fill(field, array)
    act = net.layer("activation", ["n"], ["a"])
    act.leakyReLU.alpha = 0.1
    net.layer("flatten", ["a"], ["f"])
    dense = net.layer("innerProduct", ["f"], ["y"])
    dense.inputChannels, dense.outputChannels = 32, 5
    codes = RNG.integers(0, 256, (5, 32))
    scale, bias = RNG.uniform(0.01, 0.02, 5).astype(np.float32), RNG.standard_normal(5).astype(np.float32)
    dense.weights.rawValue = codes.astype(np.uint8).tobytes()
    dense.weights.quantization.numberOfBits = 8
    dense.weights.quantization.linearQuantization.scale.extend(scale.tolist())
    dense.weights.quantization.linearQuantization.bias.extend(bias.tolist())
    net.output("y")
    graph = net.load(tmp_path)
    assert graph.inputs["image"].shape == (1, 3, 4, 4) and graph.outputs["y"].shape == (5, 1, 1)
    assert graph.metadata["images"]["image"]["color"] == "BGR"
    image = RNG.integers(0, 256, (1, 3, 4, 4)).astype(np.float32)
    x = image / 128 + np.array([0.5, -0.5, -1.0], np.float32).reshape(1, 3, 1, 1)
    c = np.einsum("oi,nihw->nohw", table[indices], x) + np.array([0.5, -0.25]).reshape(1, 2, 1, 1)
    n = (c - mean.reshape(-1, 1, 1)) / np.sqrt(variance.reshape(-1, 1, 1) + 1e-3) * gamma.reshape(
        -1, 1, 1
    ) + beta.reshape(-1, 1, 1)
    a = np.where(n >= 0, n, 0.1 * n)
    y = (codes * scale[:, None] + bias[:, None]) @ a.reshape(-1)
    np.testing.assert_allclose(graph.evaluate({"image": image})["y"].reshape(-1), y, rtol=1e-4)


def test_every_unknown_layer_is_named(tmp_path: Path) -> None:
    net = Network()
    net.array("x", (2, 3))
    net.layer("whereNonZero", ["x"], ["a"])
    net.layer("custom", ["a"], ["y"])
    net.output("y")
    with pytest.raises(UnsupportedError, match=r"whereNonZero.*custom"):
        net.load(tmp_path)


def test_weights_of_a_wrong_size_are_refused(tmp_path: Path) -> None:
    net = Network()
    net.array("x", (1, 3, 4, 4))
    conv = net.layer("convolution", ["x"], ["y"])
    conv.outputChannels, conv.kernelChannels = 1 << 20, 1 << 20
    conv.weights.floatValue.extend([1.0])
    net.output("y")
    with pytest.raises(HexaneError):
        net.load(tmp_path)


def test_other_kinds_of_models_are_named(tmp_path: Path) -> None:
    from hexane.formats.coreml.protos import protos

    model = protos().model.Model()
    model.treeEnsembleRegressor.SetInParent()
    (tmp_path / "t.mlmodel").write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedError, match="treeEnsembleRegressor"):
        hexane.load(tmp_path / "t.mlmodel")
    (tmp_path / "e.mlmodel").write_bytes(b"")
    with pytest.raises(FormatError):
        hexane.load(tmp_path / "e.mlmodel")


def test_an_extent_of_0_is_open_and_asked_for(tmp_path: Path) -> None:
    """Line finders of kraken ship so: heights known, widths 0."""
    net = Network(exact=False)
    net.array("x", (2, 6, 0))
    net.layer("activation", ["x"], ["y"]).ReLU.SetInParent()
    net.output("y")
    with pytest.raises(OpenShapes, match=r"open dimensions: x \[2, 6, \?\]") as told:
        net.load(tmp_path)
    assert told.value.options == ("--shape x=2x6xA",)
    assert hexane.load(tmp_path / "m.mlmodel", shapes={"x": (2, 6, 4)}).inputs["x"].shape == (2, 6, 4)


def test_a_custom_layer_is_told_by_its_class(tmp_path: Path) -> None:
    net = Network()
    net.array("x", (2, 6, 4))
    net.layer("custom", ["x"], ["y"]).className = "groupnorm"
    net.output("y")
    with pytest.raises(UnsupportedError, match="custom layer, which the app's own class 'groupnorm' computes"):
        net.load(tmp_path)
