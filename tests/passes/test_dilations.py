"""Long steps between taps: rows as long as a step, against onnxruntime."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hexane

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def _model(c: int, k: int, d: int, length: int, pads: list[int], groups: int) -> bytes:
    helper, rng = onnx.helper, np.random.default_rng(d)
    weight, bias = rng.normal(0, 0.1, (c, c // groups, k)), rng.normal(0, 1, c)
    constants = [onnx.numpy_helper.from_array(a.astype(np.float32), n) for a, n in ((weight, "w"), (bias, "b"))]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], dilations=[d], pads=pads, group=groups)
    sizes = length, length + sum(pads) - (k - 1) * d
    ends = [helper.make_tensor_value_info(n, 1, [1, c, size]) for n, size in zip("xy", sizes)]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize(
    ("c", "k", "d", "length", "pads", "groups"),
    [
        (128, 3, 512, 7500, [1024, 0], 1),  # a spindle detector's layers (causal, dilated)
        (16, 3, 1024, 7500, [2048, 0], 1),
        (16, 2, 4096, 7500, [4096, 0], 1),
        (32, 3, 64, 4096, [64, 64], 1),
        (16, 7, 33, 1000, [99, 99], 1),
        (16, 3, 40, 999, [0, 0], 16),
        (16, 3, 40, 999, [0, 150], 1),
        (8, 3, 37, 101, [0, 0], 2),
        (8, 3, 64, 640, [0, 0], 1),  # whole rows
    ],
)
def test_long_steps_run_on_the_engine(
    tmp_path, chip: str, c: int, k: int, d: int, length: int, pads: list[int], groups: int
) -> None:
    data = _model(c, k, d, length, pads, groups)
    (tmp_path / "m.onnx").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = hexane.compile(hexane.load(tmp_path / "m.onnx"), chip=chip)
    stats = program.stats()
    assert stats["macs_on_engine"] == 1 and set(stats["host_ops"]) <= {"pad"} and stats["tasks"] < 20
    x = np.random.default_rng(1).standard_normal((1, c, length)).astype(np.float32)
    (expected,) = ort.InferenceSession(data).run(None, {"x": x})
    found = program.run({"x": x})["y"]
    assert found.shape == expected.shape
    assert np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)) < 1e-3


def test_two_axes_keep_zeros_between_taps() -> None:
    b = hexane.graph.GraphBuilder()
    x = b.input("x", (1, 4, 80, 80), "fp16")
    weight = np.ones((4, 4, 3, 3), np.float16)
    b.output(b.conv(x=x, weight=weight, dilations=(32, 32), pad_type="valid", name="out"))
    program = hexane.compile(b.graph, chip="M1")
    values = np.arange(4 * 80 * 80).reshape(1, 4, 80, 80) % 7
    taps = [values[:, :, 32 * i :, 32 * j :][:, :, :16, :16] for i in range(3) for j in range(3)]
    expected = np.broadcast_to(sum(taps).sum(1, keepdims=True), (1, 4, 16, 16))
    assert np.array_equal(program.run({"x": values.astype(np.float16)})["out"], expected)
