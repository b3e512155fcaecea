"""Network files that once ended in errors of other kinds than hexane's own."""

from __future__ import annotations

import contextlib
import plistlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, HexaneError, UsageError

LONG = "a" * 400

MIL = f"""
program(1.3)
[buildInfo = dict<string, string>({{}})]
{{
    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {{
        tensor<fp16, [1, 4, 1, 8]> w = const()[name = string("w"),
            val = tensor<fp16, [1, 4, 1, 8]>(BLOBFILE(path = string("@model_path/{LONG}"), offset = uint64(64)))];
        tensor<fp16, [1, 4, 1, 8]> y = add(x = x, y = w)[name = string("y")];
    }} -> (y);
}}
"""


def test_a_weight_file_whose_name_no_file_can_have(tmp_path: Path) -> None:
    (tmp_path / "model.mil").write_text(MIL)
    x = np.zeros((1, 4, 1, 8), np.float16)
    with pytest.raises(UsageError, match="weight file"):
        hexane.load(tmp_path / "model.mil").evaluate({"x": x})
    onnx = pytest.importorskip("onnx")
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, (4,))],
            [onnx.helper.make_tensor_value_info("y", 1, (4,))],
            [onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=1)],
        )
    )
    model.graph.initializer[0].external_data.add(key="location", value=LONG)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="is not a file inside"):
        hexane.load(tmp_path / "m.onnx")


def test_a_network_whose_name_no_file_can_have() -> None:
    for suffix in ("onnx", "mil", "mlmodel", "mlpackage", "plist", "hwx", "hexane"):
        with pytest.raises(HexaneError):
            hexane.load(f"/tmp/{LONG}.{suffix}")
        with pytest.raises(HexaneError):
            hexane.open_image(f"/tmp/{LONG}.{suffix}")


@pytest.mark.parametrize("info", [1.5, "x", {}, 7, None])
def test_a_plist_whose_list_is_none(info: Any, tmp_path: Path) -> None:
    content = {
        "Networks": ["net"], "Version": "1.0.14",
        "net": {
            "Inputs": ["x"], "Outputs": ["y"], "Units": ["u"], "Weights": [],
            "x": {"BatchSize": 1, "InputChannels": 4, "InputHeight": 1, "InputWidth": 8, "InputType": "Float16"},
            "u": {"Bottom": "x", "Name": "u", "Type": "Broadcast", "OutputType": "Float16",
                  "Params": {"BroadcastInfo": info} if info is not None else [1]},
            "y": {"Bottom": "u"},
        },
    }  # fmt: skip
    (tmp_path / "net.plist").write_bytes(plistlib.dumps(content))
    with pytest.raises(HexaneError):
        hexane.load(tmp_path / "net.plist")


def test_a_classic_network_whose_output_is_a_scalar(tmp_path: Path) -> None:
    """In the old mapping of ranks, with a result without axes."""
    pytest.importorskip("coremltools.proto")
    from hexane.formats.coreml.protos import protos

    model = protos().model.Model(specificationVersion=4)
    for features, name, shape in ((model.description.input, "x", (4,)), (model.description.output, "y", ())):
        feature = features.add(name=name)
        feature.type.multiArrayType.shape.extend(shape)
        feature.type.multiArrayType.dataType = 65568
    layer = model.neuralNetwork.layers.add(name="sum", input=["x"], output=["y"])
    layer.reduceSum.reduceAll = True
    (tmp_path / "m.mlmodel").write_bytes(model.SerializeToString())
    try:
        graph = hexane.load(tmp_path / "m.mlmodel")
    except HexaneError:
        return
    assert float(graph.evaluate({"x": np.ones(graph.main.inputs[0].shape, np.float32)})["y"].ravel()[0]) == 4


def test_a_result_of_a_type_that_no_value_has(tmp_path: Path) -> None:
    pytest.importorskip("coremltools.proto")
    from hexane.formats.coreml.protos import protos

    model = protos().model.Model(specificationVersion=9)
    for features in (model.description.input, model.description.output):
        feature = features.add(name="x" if features is model.description.input else "y")
        feature.type.multiArrayType.shape.append(4)
        feature.type.multiArrayType.dataType = 65568
    function = model.mlProgram.functions["main"]
    model.mlProgram.version = 1
    function.opset = "CoreML8"
    given = function.inputs.add(name="x")
    given.type.tensorType.dataType, given.type.tensorType.rank = 11, 1
    given.type.tensorType.dimensions.add().constant.size = 4
    block = function.block_specializations["CoreML8"]
    block.outputs.append("y")
    operation = block.operations.add(type="relu")
    operation.inputs["x"].arguments.add(name="x")
    result = operation.outputs.add(name="y")
    result.type.dictionaryType.keyType.tensorType.dataType = 2
    result.type.dictionaryType.valueType.tensorType.dataType = 2
    (tmp_path / "m.mlmodel").write_bytes(model.SerializeToString())
    with pytest.raises(HexaneError):
        hexane.load(tmp_path / "m.mlmodel")


def test_what_no_reader_expects_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hexane.formats import mil
    from hexane.frontends import networks

    def broken(*args: Any, **options: Any) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(mil, "load", broken)
    monkeypatch.setattr(networks, "_reader", lambda kind: mil)
    (tmp_path / "model.mil").write_text(MIL)
    with pytest.raises(FormatError, match=r"model\.mil: the file is not well-formed \(KeyError: 'surprise'\)"):
        hexane.load(tmp_path / "model.mil")


@pytest.mark.parametrize("space", ["\x1c", "\x1f", "\x85", "\u2003"])
def test_odd_spaces_in_a_shape(space: str) -> None:
    """Python counts them as spaces when it strips a text, and not when it reads a number."""
    text = MIL.replace("[1, 4, 1, 8]> x", f"[1,{space}4, 1, 8]> x")
    with contextlib.suppress(HexaneError):
        assert hexane.parse_mil(text).main.inputs[0].shape == (1, 4, 1, 8)
