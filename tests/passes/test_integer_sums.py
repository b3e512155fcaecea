"""Networks quantised at run time: sums of 8-bit products are millions, their factors tiny, the product is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")
helper, T = onnx.helper, onnx.TensorProto


def test_a_dynamically_quantised_layer_is_near_its_definition(tmp_path: Path) -> None:
    """MatMulInteger, a bias in whole numbers, Cast, Mul: what quantize_dynamic of a product of 512 terms gives."""
    rng = np.random.default_rng(0)
    held = [
        onnx.numpy_helper.from_array(rng.integers(-127, 128, (512, 24)).astype(np.int8), "w"),
        onnx.numpy_helper.from_array(np.array(2e-4, np.float32), "w_scale"),
        onnx.numpy_helper.from_array(rng.standard_normal(24).astype(np.float32), "bias"),
    ]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["sums"]),
        helper.make_node("Mul", ["scale", "w_scale"], ["factor"]),
        helper.make_node("Div", ["bias", "factor"], ["b"]),
        helper.make_node("Floor", ["b"], ["bf"]),
        helper.make_node("Cast", ["bf"], ["bi"], to=T.INT32),
        helper.make_node("Add", ["sums", "bi"], ["all"]),
        helper.make_node("Cast", ["all"], ["f"], to=T.FLOAT),
        helper.make_node("Mul", ["f", "factor"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, T.FLOAT, s) for n, s in (("x", [4, 512]), ("y", [4, 24])))
    graph = helper.make_graph(nodes, "q", [x], [y], held)
    path = tmp_path / "q.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    given = {"x": (rng.standard_normal((4, 512)) + 1).astype(np.float32)}
    (wanted,) = reference.ReferenceEvaluator(str(path)).run(None, given)  # sums in NumPy's int32, on any processor
    found = hexane.compile(hexane.load(path)).run(given)["y"]
    assert np.isfinite(found).all()
    error = np.sqrt(np.mean((found - wanted) ** 2)) / np.sqrt(np.mean(wanted**2))
    assert error < 0.02, error
