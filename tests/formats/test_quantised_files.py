"""Quantised activations in files that other tools wrote: coremltools' pairs, onnxruntime's four kinds of graphs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hexane
from hexane import numerics
from hexane.graph import GraphBuilder

RNG = np.random.default_rng(0)
SHAPE = (1, 16, 10, 10)
GIVEN = {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}


def agree(graph, given, wanted, chip, tolerance=0.05):
    """The engine's bits are those of graph level, and the result is near the quantised network's own."""
    program = hexane.compile(graph, chip)
    (out,), (same,) = program.run(given).values(), numerics.evaluate(program.graph, given, chip).values()
    np.testing.assert_array_equal(out, same)
    assert np.abs(out.astype(np.float64) - wanted).max() < tolerance * np.abs(wanted).max()
    return program


def weights(*shape):
    return RNG.normal(0, 1 / np.sqrt(max(np.prod(shape[1:]), 8)), shape)


@pytest.mark.parametrize("mode", ["linear_symmetric", "linear"])
def test_coremltools_pairs(mode, tmp_path, monkeypatch):
    """coremltools' own insertion of pairs; the ranges, which it measures on a Mac, are measured by the reference."""
    ct = pytest.importorskip("coremltools")
    cto = pytest.importorskip("coremltools.optimize.coreml")
    from coremltools.optimize.coreml import _post_training_quantization as passes

    b = GraphBuilder()
    x = b.input("x", SHAPE, "fp16")
    half = lambda *shape: weights(*shape).astype(np.float16)  # noqa: E731
    y = b.relu(x=b.conv(x=x, weight=half(32, 16, 3, 3), bias=half(32), pad_type="same"))
    y = b.relu(x=b.add(x=b.conv(x=y, weight=half(32, 32, 1, 1)), y=y))
    y = b.reduce_mean(x=b.conv(x=y, weight=half(64, 32, 3, 3), pad_type="same"), axes=[2, 3], keep_dims=False)
    b.output(b.linear(x=y, weight=half(10, 64)))
    b.graph.save(tmp_path / "plain.mlpackage")
    plain = hexane.load(tmp_path / "plain.mlpackage")

    def ranges(*_):
        found = {"x": {"rmin": float(GIVEN["x"].min()), "rmax": float(GIVEN["x"].max())}}
        for op in plain.main.ops:
            (value,) = plain.cut([op.output.name]).evaluate(GIVEN).values()
            found[op.output.name] = {"rmin": float(value.min()), "rmax": float(value.max())}
        return found

    monkeypatch.setattr(passes, "_get_activation_calibration_stats", ranges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ct.models.MLModel(str(tmp_path / "plain.mlpackage"), skip_model_load=True)
        config = cto.OptimizationConfig(global_config=cto.OpLinearQuantizerConfig(mode=mode))
        model = cto.linear_quantize_activations(model, config, [GIVEN])
        config = cto.OptimizationConfig(cto.OpLinearQuantizerConfig(mode="linear_symmetric", weight_threshold=64))
        cto.linear_quantize_weights(model, config).save(str(tmp_path / "small.mlpackage"))
    graph = hexane.load(tmp_path / "small.mlpackage")
    assert sum(op.type == "quantize" for op in graph.main.ops) >= 5
    (wanted,), (exact,) = graph.evaluate(GIVEN).values(), plain.evaluate(GIVEN).values()
    assert np.abs(wanted - exact).max() < 0.1 * np.abs(exact).max()
    for chip in ("M1", "M4"):
        assert agree(graph, GIVEN, wanted, chip).stats()["macs_on_engine"] == 1.0


def onnx_network(folder):
    """Convolutions with a residual, strides and a product, as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    h, numbers = onnx.helper, onnx.numpy_helper
    shapes = {"w1": (32, 16, 3, 3), "b1": (32,), "w2": (32, 32, 1, 1), "w3": (32, 32, 3, 3), "w4": (32, 40)}
    inits = [numbers.from_array(weights(*shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        h.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]), h.make_node("Relu", ["a"], ["r"]),
        h.make_node("Conv", ["r", "w2"], ["c"]), h.make_node("Add", ["c", "r"], ["d"]),
        h.make_node("Conv", ["d", "w3"], ["e"], pads=[1, 1, 1, 1], strides=[2, 2]),
        h.make_node("GlobalAveragePool", ["e"], ["f"]), h.make_node("Flatten", ["f"], ["g"]),
        h.make_node("MatMul", ["g", "w4"], ["y"]),
    ]  # fmt: skip
    ends = [h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", SHAPE), ("y", (1, 40)))]
    graph = h.make_graph(nodes, "network", ends[:1], ends[1:], inits)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "plain.onnx")
    return folder / "plain.onnx"


KINDS = {
    "pairs, int8": ("QDQ", True),
    "pairs, uint8": ("QDQ", False),
    "operators, int8": ("QOperator", True),
    "operators, uint8": ("QOperator", False),
    "dynamic": ("dynamic", False),
}


REDUCED = True
"""Weights of 7 bits: without VNNI onnxruntime adds pairs of products of uint8 and int8 in 16 bits, which saturate. Sums
of 8-bit weights have an exact truth in tests/passes/test_integer_sums.py."""


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_quantised(kind, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    q = pytest.importorskip("onnxruntime.quantization")
    form, symmetric = KINDS[kind]
    source, target = onnx_network(tmp_path), tmp_path / "small.onnx"

    class Samples(q.CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": RNG.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    if form == "dynamic":
        q.quantize_dynamic(source, target, weight_type=q.QuantType.QInt8, reduce_range=REDUCED)
    else:
        q.quantize_static(
            source, target, Samples(), quant_format=q.QuantFormat[form], per_channel=True,
            weight_type=q.QuantType.QInt8, reduce_range=REDUCED,
            activation_type=q.QuantType.QInt8 if symmetric else q.QuantType.QUInt8,
            extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
        )  # fmt: skip
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, GIVEN)
    graph = hexane.load(target)
    (reference,) = graph.evaluate(GIVEN).values()
    np.testing.assert_allclose(reference, wanted, rtol=0, atol=0.02 * np.abs(wanted).max())
    for chip in ("M1", "M4"):
        program = agree(graph, GIVEN, wanted, chip)
        # scales that follow from the data are no constants: such products are exact on the host
        assert program.stats()["macs_on_engine"] == (0.0 if form == "dynamic" else 1.0)


def test_onnxruntime_sums_bytes_exactly_where_it_is_compared_with() -> None:
    """Two products of bytes exceed 16 bits, in which processors without VNNI add them."""
    from hexane.graph.ops.onnx_foreign import open_session

    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h, rng = onnx.helper, np.random.default_rng(0)
    x, w = rng.integers(0, 256, (4, 64), np.uint8), rng.integers(-128, 128, (64, 8), np.int8)
    infos = [
        [h.make_tensor_value_info("x", onnx.TensorProto.UINT8, [4, 64])],
        [h.make_tensor_value_info("y", onnx.TensorProto.INT32, [4, 8])],
    ]
    graph = h.make_graph(
        [h.make_node("MatMulInteger", ["x", "w"], ["y"])], "g", *infos, [onnx.numpy_helper.from_array(w, "w")]
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    (y,) = open_session(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y, x.astype(np.int32) @ w.astype(np.int32))
