"""Shapes that only later results tell, and answers that fp16 and the engine's functions would get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import GraphError, HexaneError, UnsupportedError

onnx = pytest.importorskip("onnx")


def model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], version: int = 18) -> Any:
    h = onnx.helper

    def infos(given: dict[str, Any]) -> list[Any]:
        return [
            h.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)
            for name, (kind, shape) in given.items()
        ]

    graph = h.make_graph(nodes, "g", infos(inputs), infos(outputs))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", version)])


def load(made: Any) -> Any:
    from hexane.formats.onnx import load as load_onnx

    return load_onnx(made)


def node(*arguments: Any, **attributes: Any) -> Any:
    return onnx.helper.make_node(*arguments, **attributes)


def test_a_reduction_over_axes_of_run_time() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["s"], keepdims=1), node("Sqrt", ["s"], ["y"])]
    inputs = {"x": ("FLOAT", [2, 3]), "axes": ("INT64", [1])}
    graph = load(model(nodes, inputs, {"y": ("FLOAT", [2, 1])}))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = graph.evaluate({"x": x, "axes": np.array([1])})["y"]
    np.testing.assert_allclose(made, np.sqrt(x.sum(1, keepdims=True)))
    with pytest.raises(GraphError, match="where the file declares"):
        graph.evaluate({"x": x, "axes": np.array([0])})
    with pytest.raises(UnsupportedError, match="shape depends on axes"):
        load(model(nodes, inputs, {"y": ("FLOAT", None)}))


def test_one_symbol_is_one_extent() -> None:
    nodes = [
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Cos", ["r"], ["a"]),
        node("Sin", ["r"], ["b"]),
        node("Mul", ["a", "b"], ["m"]),
        node("Neg", ["m"], ["y"]),
    ]
    scalars = {name: ("FLOAT", []) for name in ("zero", "n", "one")}
    graph = load(model(nodes, scalars, {"y": ("FLOAT", [5])}))
    r = np.arange(5, dtype=np.float32)
    made = graph.evaluate({"zero": np.float32(0), "n": np.float32(5), "one": np.float32(1)})["y"]
    np.testing.assert_allclose(made, -np.cos(r) * np.sin(r), rtol=1e-5)


@pytest.mark.parametrize("other", [[5], [1, 5], [5, 1]])
def test_broadcasting_tells_nothing_that_it_need_not(other: list[int]) -> None:
    """[n] + [5] may be [5] with n 1 or 5; the shape of r stays open, and is not guessed."""
    nodes = [node("Range", ["zero", "n", "one"], ["r"]), node("Add", ["r", "o"], ["y"])]
    inputs = {**{name: ("FLOAT", []) for name in ("zero", "n", "one")}, "o": ("FLOAT", other)}
    with pytest.raises(UnsupportedError, match="shape depends on its inputs"):
        load(model(nodes, inputs, {"y": ("FLOAT", np.broadcast_shapes((5,), tuple(other)))}))


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_comparisons_with_infinity(chip: str) -> None:
    """Infinity less infinity is no number, so a difference cannot find that both are one."""
    nodes = [
        node("Constant", [], ["low"], value=onnx.numpy_helper.from_array(np.float32(-np.inf))),
        node("Equal", ["x", "low"], ["e"]),
        node("Where", ["e", "zero", "x"], ["y"]),
    ]
    made = model(nodes, {"x": ("FLOAT", [1, 8, 4, 4]), "zero": ("FLOAT", [1, 8, 4, 4])}, {"y": ("FLOAT", [1, 8, 4, 4])})
    x = np.random.default_rng(0).standard_normal((1, 8, 4, 4)).astype(np.float32)
    x[0, :3] = -np.inf
    got = hexane.compile(load(made), chip=chip).run({"x": x, "zero": np.zeros_like(x)})["y"]
    np.testing.assert_allclose(got, np.where(np.isinf(x), 0, x), rtol=1e-3)


def test_a_softmax_that_is_asked_for_nan() -> None:
    nodes = [
        node("Softmax", ["x"], ["s"], axis=-1),
        node("IsNaN", ["s"], ["n"]),
        node("Where", ["n", "zero", "s"], ["y"]),
    ]
    made = model(nodes, {"x": ("FLOAT", [1, 2, 4, 8]), "zero": ("FLOAT", [])}, {"y": ("FLOAT", [1, 2, 4, 8])})
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype(np.float32)
    x[0, 0, 1] = -np.inf
    program = hexane.compile(load(made))
    got = program.run({"x": x, "zero": np.float32(0)})["y"]
    assert not got[0, 0, 1].any()
    np.testing.assert_allclose(got[0, 1].sum(-1), 1, atol=5e-3)
    assert any("asked for NaN" in reason for reason in program.stats()["host_reasons"].values())


def test_dropout_draws_with_its_seed() -> None:
    inputs = {"x": ("FLOAT", [40, 50]), "ratio": ("FLOAT", []), "training": ("BOOL", [])}
    outputs = {"y": ("FLOAT", [40, 50]), "mask": ("BOOL", [40, 50])}
    graph = load(model([node("Dropout", list(inputs), list(outputs), seed=3)], inputs, outputs))
    x = np.ones((40, 50), np.float32)
    made = graph.evaluate({"x": x, "ratio": np.float32(0.25), "training": np.array(True)})
    kept = np.random.RandomState(3).uniform(0, 1, x.shape) >= 0.25
    np.testing.assert_array_equal(made["mask"], kept)
    np.testing.assert_allclose(made["y"], kept / 0.75, rtol=1e-6)
    made = graph.evaluate({"x": x, "ratio": np.float32(0.25), "training": np.array(False)})
    assert made["mask"].all() and (made["y"] == 1).all()
    with pytest.raises(UnsupportedError, match="no seed"):
        load(model([node("Dropout", list(inputs), list(outputs))], inputs, outputs))


def test_bits_are_no_numbers() -> None:
    """onnxruntime gives float8 as bits; 0.5 must not come out as 48."""
    nodes = [node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN)]
    with pytest.raises(UnsupportedError):
        load(model(nodes, {"x": ("FLOAT", [2])}, {"y": ("FLOAT8E4M3FN", [2])}, 19))


def picture(kind: str, **how: Any) -> np.ndarray:
    import io

    Image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (4, 6, 3), np.uint8)
    Image.fromarray(pixels).save(stream, kind, **how)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_a_picture_inside_a_network() -> None:
    data = picture("PNG")
    made = model(
        [node("ImageDecoder", ["x"], ["y"], pixel_format="BGR")],
        {"x": ("UINT8", [len(data)])},
        {"y": ("UINT8", [4, 6, 3])},
        20,
    )
    graph = load(made)
    wanted = np.random.default_rng(0).integers(0, 255, (4, 6, 3), np.uint8)[:, :, ::-1]
    np.testing.assert_array_equal(graph.evaluate({"x": data})["y"], wanted)
    broken = data.copy()
    broken[:8] = 0
    with pytest.raises(HexaneError, match="cannot be decoded"):
        graph.evaluate({"x": broken})
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    with pytest.raises(HexaneError, match="where the file declares"):
        load(made).evaluate({"x": data})
