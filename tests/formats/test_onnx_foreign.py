"""Ops that hexane has no meaning for: host rows in a check, and onnxruntime's own results in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError
from report.networks import command

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, T = onnx.helper, onnx.TensorProto
HIDDEN, WIDTH, STEPS = 8, 4, 5


def _held(name: str, array: np.ndarray) -> Any:
    return onnx.numpy_helper.from_array(array, name)


def _lstm(folder: Path) -> Path:
    """An LSTM quantised by onnxruntime's own tool, between ops that the engine has."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    rng = np.random.default_rng(0)
    shapes = {"W": (1, 4 * HIDDEN, WIDTH), "R": (1, 4 * HIDDEN, HIDDEN), "B": (1, 8 * HIDDEN), "M": (HIDDEN, 6)}
    weights = [_held(name, rng.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("LSTM", ["r", "W", "R", "B"], ["Y", "", ""], hidden_size=HIDDEN),
        helper.make_node("Squeeze", ["Y", "one"], ["s"]),
        helper.make_node("MatMul", ["s", "M"], ["y"]),
    ]
    infos = [
        [helper.make_tensor_value_info(n, T.FLOAT, s)] for n, s in (("x", [STEPS, 1, WIDTH]), ("y", [STEPS, 1, 6]))
    ]
    graph = helper.make_graph(nodes, "lstm", *infos, [*weights, _held("one", np.array([1], np.int64))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "f.onnx")
    quantize_dynamic(folder / "f.onnx", folder / "q.onnx", weight_type=QuantType.QInt8, op_types_to_quantize=["LSTM"])
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(folder / "q.onnx").graph.node}
    return folder / "q.onnx"


def _classifier(folder: Path) -> Path:
    """Scaler, linear classifier and ZipMap, as scikit-learn models are exported."""
    nodes = [
        helper.make_node("Scaler", ["x"], ["n"], domain="ai.onnx.ml", offset=[0.5] * 3, scale=[2.0] * 3),
        helper.make_node("LinearClassifier", ["n"], ["label", "scores"], domain="ai.onnx.ml", post_transform="SOFTMAX",
                         coefficients=[1.0, 0, -1, 0, 1, 0, -1, 0, 1], intercepts=[0.0, 0.1, 0.2],
                         classlabels_ints=[3, 5, 7]),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[3, 5, 7]),
    ]  # fmt: skip
    mapping = helper.make_map_type_proto(T.INT64, helper.make_tensor_type_proto(T.FLOAT, []))
    outputs = [
        helper.make_tensor_value_info("label", T.INT64, [4]),
        helper.make_value_info("probabilities", helper.make_sequence_type_proto(mapping)),
    ]
    graph = helper.make_graph(nodes, "skl", [helper.make_tensor_value_info("x", T.FLOAT, [4, 3])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "c.onnx")
    return folder / "c.onnx"


def test_one_foreign_op_is_a_host_row(tmp_path: Path) -> None:
    found = command("check", _lstm(tmp_path), "--chip", "M1,M4,M6", "--json", status=1)
    for report, ours in zip(found["reports"], ("host", "host", "none"), strict=True):
        rows = {row["op"]: row for row in report["rows"]}
        foreign = rows["com.microsoft.DynamicQuantizeLSTM"]
        assert foreign["place"] == foreign["apple"] == "host" and foreign["hexane"] == ours
        assert "onnxruntime" in foreign["reason"] and "not quantised" in foreign["advice"]
        assert rows["relu"]["apple"] == "engine" and rows["relu"]["hexane"] == ("none" if ours == "none" else "engine")
        assert report["totals"]["ops"] == 4 and report["totals"]["apple_ops"] == 3
    text = command("check", tmp_path / "q.onnx", status=1)
    assert "hexane's program: 3 of 4" in text and "Apple's compiler, by its limits: 3 of 4" in text


@pytest.mark.parametrize("make", [_lstm, _classifier])
def test_the_host_gives_what_onnxruntime_gives(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path)
    graph = hexane.load(path)
    (name, type_), *_ = graph.inputs.items()
    x = np.random.default_rng(1).standard_normal(type_.shape).astype(np.float32)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {name: x})
    rows = [np.array([list(r.values()) for r in w]) if isinstance(w, list) else w for w in wanted]
    for run in (graph.evaluate, hexane.compile(graph).run):
        for got, expected in zip(run({name: x}).values(), rows, strict=True):
            np.testing.assert_allclose(np.asarray(got, np.float32), expected, atol=4e-3)
    hexane.compile(graph).save(tmp_path / "p.hexane")
    again = hexane.load_program(tmp_path / "p.hexane").run({name: x})
    np.testing.assert_allclose(np.asarray(next(iter(again.values())), np.float32), rows[0], atol=4e-3)
    assert command("run", path, "--random", 1, "--json")["verdict"] in ("same", "close")


def test_an_op_that_nobody_knows_is_shown_and_cannot_run(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Mystery", ["r"], ["m"], domain="nobody.knows"),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    infos = [[helper.make_tensor_value_info(name, T.FLOAT, [1, 4])] for name in "xy"]
    graph = helper.make_graph(nodes, "m", *infos)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nobody.knows", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "bare.onnx")
    with pytest.raises(HexaneError, match="hexane has no such op"):
        hexane.load(tmp_path / "bare.onnx")  # nobody says of what type its result is
    graph.value_info.append(helper.make_tensor_value_info("m", T.FLOAT, [1, 4]))
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    rows = command("check", tmp_path / "m.onnx", "--json", status=1)["reports"][0]["rows"]
    assert [row["place"] for row in rows] == ["engine", "host", "engine"]
    with pytest.raises(HexaneError, match=r"nobody\.knows\.Mystery is an op that onnxruntime refuses"):
        hexane.compile(hexane.load(tmp_path / "m.onnx")).run({"x": np.ones((1, 4), np.float32)})


def test_the_host_s_time_of_such_a_node_is_not_known(tmp_path: Path) -> None:
    """``ai.onnx.ml`` alone: no launch, and no time; in front of a network: named, and its time is not counted."""
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.5] * 4, scale=[2.0] * 4)
    dense = helper.make_node("MatMul", ["s", "M"], ["y"])
    weight = _held("M", np.ones((4, 3), np.float32))
    for name, nodes, (out, width) in (("alone", [scaler], ("s", 4)), ("behind", [scaler, dense], ("y", 3))):
        infos = [[helper.make_tensor_value_info(n, T.FLOAT, [1, w])] for n, w in (("x", 4), (out, width))]
        graph = helper.make_graph(nodes, name, *infos, [weight] if dense in nodes else [])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / f"{name}.onnx")
    text = command("estimate", tmp_path / "alone.onnx")
    assert "nothing of it runs on the engine; what the host takes is not known" in text and "about 0 us" not in text
    said = command("estimate", tmp_path / "behind.onnx")
    assert "how long ai.onnx.ml.Scaler takes is not known" in said and "onnx.Foreign" not in said


def test_sums_of_integers_get_advice_of_their_own(tmp_path: Path) -> None:
    """What ``quantize_dynamic`` writes: no row says "indices", and every row of the host says what helps."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "W", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=T.FLOAT),
        helper.make_node("Mul", ["floats", "scale"], ["y"]),
    ]
    infos = [[helper.make_tensor_value_info(n, T.FLOAT, [1, w])] for n, w in (("x", 8), ("y", 4))]
    weight = _held("W", np.arange(32, dtype=np.int8).reshape(8, 4))
    graph = helper.make_graph(nodes, "dynamic", *infos, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    found = command("check", tmp_path / "m.onnx", "--chip", "M4", "--json", status=1)
    (row,) = (row for row in found["reports"][0]["rows"] if row["op"] == "matmul")
    assert row["node_type"] == "MatMulInteger"
    assert "not quantised" in row["advice"] and "indices" not in row["advice"]
