"""Open shapes, bound values, branches never taken, flexible Core ML shapes: what is assumed, asked for and refused."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError, UsageError
from hexane.formats.open_shapes import OpenShapes, assumed_batch, options_for
from hexane.program import input_ports
from hexane.session.drawing import drawn_inputs
from report.networks import command, saved, small

onnx = pytest.importorskip("onnx")
helper, T = onnx.helper, onnx.TensorProto


def _onnx(path: Path, nodes: list[Any], inputs: dict[str, tuple[int, list]], outputs: dict[str, tuple[int, list]],
          constants: dict[str, np.ndarray] | None = None) -> Path:  # fmt: skip
    infos = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in part.items()] for part in (inputs, outputs)]
    held = [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "net", *infos, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _relu(path: Path, shape: list) -> Path:
    return _onnx(path, [helper.make_node("Relu", ["x"], ["y"])], {"x": (T.FLOAT, shape)}, {"y": (T.FLOAT, shape)})


@pytest.mark.parametrize(
    ("extents", "batch"),
    [
        (["batch", 3, 8, 8], [0]),
        (["N", 3, 8, 8], [0]),
        ([None, 2048], [0]),
        (["unk__214", 2048], [0]),
        (["DynamicDimension.0", 3, 224, 224], [0]),
        (["p2o.DynamicDimension.0", 3, 48, 192], [0]),
        (["s6", 80, 800], [0]),
        (["samples", 80], []),
        (["batch_size", "sequence"], [0]),
        ([2, "batch", 128], [1]),
        (["sequence_length", 576], []),
        (["height", "width"], []),
        ([None, None], []),
        ([None], []),
        ([1, 3, 8, 8], []),
    ],
)
def test_what_is_taken_as_a_batch(extents: list, batch: list[int]) -> None:
    assert assumed_batch(extents) == batch


def test_a_lone_batch_is_one_and_that_is_said(tmp_path: Path) -> None:
    model = _relu(tmp_path / "m.onnx", ["batch", 3, 8, 8])
    assert hexane.load(model).inputs["x"].shape == (1, 3, 8, 8)
    assert hexane.load(model, shapes={"batch": 2}).inputs["x"].shape == (2, 3, 8, 8)
    assert "taken as 1" in command("run", model, "--random", 1)
    assert "taken as 1" in command("show", model)


def test_the_error_repeats_the_whole_command(tmp_path: Path) -> None:
    model = _relu(tmp_path / "my net.onnx", ["batch", 3, "height", "width"])
    arguments = ["run", str(model), "--random", "1", "--chip", "M1"]
    done = subprocess.run([sys.executable, "-m", "hexane", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1].strip()
    assert shlex.split(line) == ["hexane", *arguments, "--shape", "height=HEIGHT", "--shape", "width=WIDTH"]
    filled = line.replace("HEIGHT", "8").replace("WIDTH", "8")
    again = subprocess.run([sys.executable, "-m", *shlex.split(filled)], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr


def test_options_fill_in_what_is_known() -> None:
    assert options_for({"x": [1, 3, None, 8], "y": [4]}) == ("--shape x=1x3xAx8",)
    assert options_for({"x": [1, "seq"], "y": [1, "seq"]}) == ("--shape seq=SEQ",)


def test_show_lists_the_inputs_of_an_open_model(tmp_path: Path) -> None:
    model = _relu(tmp_path / "m.onnx", [1, 3, "height", "width"])
    text = command("show", model)
    assert "[1, 3, height, width]" in text and "--shape height=HEIGHT" in text and "Relu" in text
    found = command("show", model, "--json")
    assert found["open"] and found["inputs"] == [{"name": "x", "shape": [1, 3, "height", "width"]}]
    with pytest.raises(OpenShapes):
        hexane.load(model)


def _branches(path: Path) -> Path:
    """A branch for 16000 and one for everything else that asks for another rank: what voice detectors ship."""

    def branch(name: str, keep: int) -> Any:
        out = helper.make_tensor_value_info(f"{name}_out", T.FLOAT, None)
        held = onnx.numpy_helper.from_array(np.array([1], np.int64), f"{name}_axes")
        node = helper.make_node("ReduceSum", ["x", f"{name}_axes"], [f"{name}_out"], keepdims=keep)
        return helper.make_graph([node], name, [], [out], [held])

    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is16"]),
        helper.make_node("If", ["is16"], ["y"], then_branch=branch("then", 0), else_branch=branch("else", 1)),
    ]
    return _onnx(path, nodes, {"x": (T.FLOAT, [2, 8]), "sr": (T.INT64, [])}, {"y": (T.FLOAT, None)},
                 {"rate": np.array(16000, np.int64)})  # fmt: skip


def test_a_branch_never_taken_and_a_bound_input(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = _branches(tmp_path / "m.onnx")
    with pytest.raises(HexaneError, match="--bind sr=VALUE"):
        hexane.load(model)
    graph = hexane.load(model, bind={"sr": 16000})
    assert list(graph.inputs) == ["x"]
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    session = runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x, "sr": np.array(16000, np.int64)})
    np.testing.assert_allclose(graph.evaluate({"x": x})["y"], wanted, rtol=1e-5)
    np.save(tmp_path / "x.npy", x)
    found = command("run", model, "--bind", "sr=16000", "--input", f"x={tmp_path / 'x.npy'}", "--json")
    assert found["compared_with"] == "onnxruntime" and found["verdict"] in ("same", "close")


@pytest.mark.parametrize(
    "bind", [{"none": 1}, {"sr": 1.5}, {"sr": [1, 2]}, {"sr": 1 << 70}, {"sr": "text"}, {"x": np.zeros((3, 3))}]
)
def test_what_cannot_be_bound(tmp_path: Path, bind: dict) -> None:
    with pytest.raises(HexaneError):
        hexane.load(_branches(tmp_path / "m.onnx"), bind=bind)


def test_other_formats_bind_as_well(tmp_path: Path) -> None:
    model = saved(small(), tmp_path)
    x = np.full((1, 16, 8, 8), 0.5, np.float16)
    graph = hexane.load(model, bind={"x": 0.5})
    assert graph.inputs == {}
    np.testing.assert_array_equal(graph.evaluate({})["out"], small().evaluate({"x": x})["out"])
    for text in ("x", "=1", "x=", "x=one"):
        with pytest.raises(UsageError, match="--bind"):
            command("show", model, "--bind", text, status=None)


def test_drawn_inputs_make_sense(tmp_path: Path) -> None:
    """Token ids stay within their table (of 30 rows), the mask keeps everything, and the notes say so."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"], axis=0),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=T.FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["m3"]),
        helper.make_node("Mul", ["rows", "m3"], ["y"]),
    ]
    shape = [1, 16]
    model = _onnx(tmp_path / "m.onnx", nodes, {"input_ids": (T.INT64, shape), "attention_mask": (T.INT64, shape)},
                  {"y": (T.FLOAT, [1, 16, 4])},
                  {"table": np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32),
                   "last": np.array([2], np.int64)})  # fmt: skip
    graph = hexane.load(model)
    arrays, notes = drawn_inputs(input_ports(graph), 1, graph)
    ids = arrays["input_ids"]
    assert ids.min() >= 0 and 2 <= ids.max() <= 29 and len(np.unique(ids)) > 5
    assert np.all(arrays["attention_mask"] == 1)
    assert any("indices 0 to 29" in note for note in notes) and any("mask" in note for note in notes)


def test_of_a_rate_nothing_is_drawn(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["sr"], ["r"], to=T.FLOAT), helper.make_node("Div", ["x", "r"], ["y"])]
    model = _onnx(tmp_path / "m.onnx", nodes, {"x": (T.FLOAT, [4]), "sr": (T.INT64, [])}, {"y": (T.FLOAT, [4])})
    with pytest.raises(UsageError, match="--bind sr=16000"):
        command("run", model, "--random", 1, status=None)
    command("run", model, "--random", 1, "--bind", "sr=16000")


def test_flexible_core_ml_shapes_are_shown_and_enforced(tmp_path: Path) -> None:
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil import Builder as mb

    kinds = {
        "range": ct.Shape((1, 3, ct.RangeDim(4, 16, default=8), ct.RangeDim(4, 32, default=8))),
        "enumerated": ct.EnumeratedShapes([[1, 3, 8, 8], [1, 3, 16, 12]], default=[1, 3, 8, 8]),
    }
    for name, shape in kinds.items():
        path = tmp_path / f"{name}.mlpackage"
        spec = mb.TensorSpec(shape=(1, 3, ct.RangeDim(4, 16).symbol, ct.RangeDim(4, 32).symbol))
        relu = mb.program(input_specs=[spec], opset_version=ct.target.iOS16)(lambda x: mb.relu(x=x))
        ct.convert(relu, inputs=[ct.TensorType(name="x", shape=shape)], skip_model_load=True,
                   minimum_deployment_target=ct.target.iOS16).save(str(path))  # fmt: skip
        shown = command("show", path)
        assert ("4..16" in shown) if name == "range" else ("1x3x16x12" in shown)
        assert hexane.load(path).inputs["x"].shape == (1, 3, 8, 8)
        assert hexane.load(path, shapes={"x": (1, 3, 16, 12)}).inputs["x"].shape == (1, 3, 16, 12)
        with pytest.raises(UsageError, match="the model allows"):
            hexane.load(path, shapes={"x": (1, 3, 17, 12)})
