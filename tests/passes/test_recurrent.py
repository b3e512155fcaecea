"""Recurrent layers of one step run on the engine; onnxruntime says what they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane import chips, passes
from hexane.lowering.compilation import Compilation

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, T = onnx.helper, onnx.TensorProto
WIDTH, HIDDEN = 24, 16
GATES = {"LSTM": 4, "GRU": 3}


def saved(folder: Path, kind: str, *, batch: int = 1, steps: int = 1, states: bool = True, **attributes: Any) -> Path:
    """A layer between two ops that the engine has."""
    rng = np.random.default_rng(3)
    gates = GATES[kind] * HIDDEN
    shapes = {"W": (1, gates, WIDTH), "R": (1, gates, HIDDEN), "B": (1, 2 * gates)}
    weights = [
        onnx.numpy_helper.from_array((rng.standard_normal(s) / 4).astype(np.float32), n) for n, s in shapes.items()
    ]
    own = ["h", "c"][: 2 if kind == "LSTM" else 1]
    made = ["Y", *(f"{name}_last" for name in own)]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(kind, ["r", "W", "R", "B", *(["", *own] if states else [])], made, hidden_size=HIDDEN,
                         **attributes),
        helper.make_node("Relu", ["Y"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": [steps, batch, WIDTH], **{n: [1, batch, HIDDEN] for n in own if states}}
    outputs = {"y": [steps, 1, batch, HIDDEN], **{n: [1, batch, HIDDEN] for n in made[1:]}}
    infos = [[helper.make_tensor_value_info(n, T.FLOAT, s) for n, s in named.items()] for named in (inputs, outputs)]
    graph = helper.make_graph(nodes, kind, *infos, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / f"{kind}.onnx")
    return folder / f"{kind}.onnx"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("LSTM", {}), ("LSTM", {"direction": "reverse"}), ("GRU", {}), ("GRU", {"linear_before_reset": 1})],
)
def test_one_step_is_as_onnxruntime_has_it(
    tmp_path: Path, kind: str, attributes: dict, states: bool, batch: int
) -> None:
    path = saved(tmp_path, kind, batch=batch, states=states, **attributes)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    given = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    graph = hexane.load(path)
    steps = passes.run(graph, Compilation(chips.get("M1")), ["decompose"])
    exact = steps.evaluate(given)
    program = hexane.compile(graph)
    stats = program.stats()
    assert f"onnx.{kind}" not in {op.type for op in steps.main.ops}
    assert (stats["engine_segments"], stats["host_segments"]) == (1, 0) and stats["macs_on_engine"] == 1
    got = program.run(given)
    for name, wanted in zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True):
        np.testing.assert_allclose(exact[name], wanted, atol=1e-6)
        np.testing.assert_allclose(got[name].astype(np.float32), wanted, atol=1e-2)


@pytest.mark.parametrize("options", [{"steps": 2}, {"clip": 1.0}, {"activations": ["Relu", "Tanh", "Tanh"]}])
def test_other_layers_stay_with_the_host(tmp_path: Path, options: dict) -> None:
    path = saved(tmp_path, "LSTM", **options)
    assert hexane.compile(hexane.load(path)).stats()["host_segments"] == 1


def test_apples_compiler_has_none(tmp_path: Path) -> None:
    graph = hexane.load(saved(tmp_path, "LSTM"))
    (row,) = (row for row in hexane.check(graph, chip="M1").rows if row.op == "onnx.LSTM")
    assert row.apple == "host" and row.hexane == "engine"
