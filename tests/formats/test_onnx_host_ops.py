"""Host ops ``onnx.*`` print as MIL text, parse back to an equal graph, and compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from formats.coverage_tool import coverage_tool
from hexane.graph import GraphBuilder
from hexane.graph.registry import all_specs
from hexane.graph.whole import HOST_OP

onnx = pytest.importorskip("onnx")
from hexane.formats.onnx import load  # noqa: E402


def host_cases() -> dict[str, tuple]:
    """For every host op one graph of ONNX's node tests that has it, with inputs."""
    tool = coverage_tool()

    found: dict[str, tuple] = {}
    for test in tool.all_tests():
        if not tool.in_scope(test) or "_expanded" in test.name:
            continue
        try:
            graph = load(test.model.SerializeToString())
        except hexane.HexaneError:
            continue
        fresh = {op.type for op in graph.ops if "." in op.type} - set(found)
        inputs = [onnx.numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in test.data_sets[0][0]]
        for name in fresh:
            found[name] = (graph, dict(zip(graph.inputs, inputs)))
    return found


def built_cases() -> dict[str, tuple]:
    """Those that no node test reaches: their shape-like parameters are inputs there."""
    rng = np.random.default_rng(0)
    made = {}
    plane = {"image_shape": [3, 3], "block_shape": [2, 2], "strides": [1, 1], "pad": [0] * 4, "dilations": [1, 1]}
    for name, shape, params in (
        ("onnx.Col2Im", (1, 12, 4), plane),
        ("onnx.CumProd", (2, 3), {"axis": 1, "reverse": True}),
        ("onnx.STFT", (1, 20), {"frame_step": 4, "frame_length": 8}),
        ("engine.table", (2, 5), {"function": "mish", "scale": 0.5, "shift": -1.0}),
    ):  # fmt: skip
        b = GraphBuilder()
        x = b.input("data", shape, "fp32")
        b.output(b.op(name, **{"signal" if name == "onnx.STFT" else "x": x}, **params))
        made[name] = (b.graph, {"data": rng.standard_normal(shape).astype(np.float32)})
    return made


def test_every_host_op_survives_its_text() -> None:
    cases = host_cases() | built_cases()
    missing = {spec.name for spec in all_specs() if "." in spec.name} - set(cases) - {HOST_OP}  # written out before
    assert not missing, "no node test reaches these"
    for name, (graph, inputs) in cases.items():
        again = hexane.parse_mil(graph.to_mil())
        assert not again.problems, (name, again.problems)
        assert again.equals(graph), name
        for key, array in graph.evaluate(inputs).items():
            np.testing.assert_array_equal(again.evaluate(inputs)[key], array, err_msg=name)


def test_reasons_have_the_names_of_the_file() -> None:
    """What MIL lacks is called as in the file, and what hangs on a number of run time says so, at every door."""
    nodes = [
        onnx.helper.make_node("ReduceL1", ["x", "a"], ["y"]),
        onnx.helper.make_node("Scaler", ["y"], ["z"], domain="ai.onnx.ml"),
    ]
    shapes = (("x", 1, [2, 3]), ("a", 7, [1]), ("y", 1, [2, 1]), ("z", 1, [2, 1]))
    x, a, y, z = (onnx.helper.make_tensor_value_info(*shape) for shape in shapes)
    domains = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    model = onnx.helper.make_graph(nodes, "g", [x, a], [z], value_info=[y])
    graph = load(onnx.helper.make_model(model, opset_imports=domains))
    counts = hexane.compile(graph, "M1").stats()
    assert "ai.onnx.ml.Scaler" in counts["host_ops"]
    reasons = " ".join((*counts["host_reasons"], *counts["host_reasons"].values()))
    assert "no ReduceL1 of which run time computes axes" in reasons and "onnx.Foreign" not in reasons
    with pytest.raises(hexane.HexaneError, match=r"Scaler|ReduceL1 of which"):
        hexane.compile(graph, "M1", strict=True)


def test_an_extent_of_run_time_is_saved(tmp_path) -> None:
    node = onnx.helper.make_node("NonZero", ["x"], ["y"])
    infos = [[onnx.helper.make_tensor_value_info(n, t, s)] for n, t, s in (("x", 1, [2, 3]), ("y", 7, [2, None]))]
    program = hexane.compile(load(onnx.helper.make_model(onnx.helper.make_graph([node], "g", *infos))))
    program.save(tmp_path / "a.hexane")
    x = np.float32([[0, 1, 0], [2, 0, 3]])
    (y,) = hexane.load_program(tmp_path / "a.hexane").run({"x": x}).values()
    np.testing.assert_array_equal(y, np.nonzero(x))
