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


def host_cases() -> dict[str, tuple]:
    """For every host op one graph of ONNX's node tests that has it, with inputs."""
    from hexane.formats.onnx import load

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
