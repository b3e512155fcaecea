"""Each rule on each kind of file: ``hexane check`` names the op, the number, the remedy and the source.

Where a format has no word for what a rule speaks of, ``NO_WORD`` says what stands in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.errors import HexaneError
from hexane.report.errata import ERRATA, Erratum
from hexane.restrictions import RULES
from hexane.restrictions.every import TEXT_ALONE
from hexane.restrictions.rule import MLE5

ENDINGS = ("mil", "mlpackage", "onnx")
NO_WORD = {
    ("C2", "mil"): "a file of 1 GB is written by no test: check of the network itself says it (test_errata)",
    ("C2", "mlpackage"): "the same",
    ("C2", "onnx"): "the same",
    ("C3", "mil"): "a text has one shape, or an open one, which a user has to bind",
    ("C3", "onnx"): "an open extent is bound when the file is read; what a package will allow is said when it is made",
    ("C9", "onnx"): "ONNX has no states",
    ("C13", "onnx"): "ONNX has no states",
    ("C14", "onnx"): "ONNX has no states",
    ("C16", "onnx"): "ONNX has no states",
    ("C11", "onnx"): "a palette with scales is written as a table, a look-up and a product",
    ("C12", "onnx"): "the precision of a package is chosen when it is made",
    ("N12", "onnx"): "attention is read as what the remedy advises: matmul, softmax, matmul",
    ("N17", "onnx"): "ConvTranspose with output_shape is read as pads, which is the remedy",
    ("P1", "onnx"): "MatMul by a constant is read as linear, which is fast",
    ("update_of_no_state", "onnx"): "ONNX has no update of a slice",
    ("computed_matrix", "onnx"): "Gemm with a computed weight is read as matmul, which is the remedy",
    ("static_shape", "mlpackage"): "a package says the shape of every tensor",
    ("text", "mlpackage"): "Core ML has no arrays of text",
    ("float_type", "mlpackage"): "Core ML has no arrays of fp64 and bf16 in a program",
}
SPELLED = {
    ("N9", "onnx", "silu"): "mul",
    ("N11", "onnx"): "equal",
    ("weights_along_inputs", "onnx"): "matmul",
    ("control_flow", "onnx"): "Loop",
    ("unlisted_operation", "onnx"): "onnx.Det",
}
"""The op that an ONNX file has for it."""


def node(name: str, inputs: dict[str, tuple[int, list[int]]], output: tuple[int, list], **attributes: Any) -> Any:
    """An ONNX file of one node, for ops that the writer does not write."""
    from onnx import helper

    values = [helper.make_tensor_value_info(key, *type_) for key, type_ in inputs.items()]
    made = helper.make_node(name, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([made], "g", values, [helper.make_tensor_value_info("y", *output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def loop() -> Any:
    """A loop whose number of turns is an input."""
    from onnx import helper

    tensor = [helper.make_tensor_value_info(name, 1, [1, 64]) for name in ("x", "v", "w", "y")]
    scalars = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("n", 7), ("i", 7), ("c", 9), ("d", 9))]
    nodes = [helper.make_node("Relu", ["v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])]
    body = helper.make_graph(nodes, "body", [*scalars[1:3], tensor[1]], [scalars[3], tensor[2]])
    made = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    graph = helper.make_graph([made], "g", [scalars[0], tensor[0]], [tensor[3]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


ONNX: dict[str, Callable[[], Any]] = {
    "control_flow": loop,
    "static_shape": lambda: node("NonZero", {"x": (1, [4, 4])}, (7, [2, None])),
    "text": lambda: node("Identity", {"x": (8, [1, 64])}, (8, [1, 64])),
    "unlisted_operation": lambda: node("Det", {"x": (1, [1, 8, 8])}, (1, [1])),
}


def write(row: Erratum, path: Path) -> None:
    """The network of a row as a file; a package's allowed shapes go into its description."""
    if path.suffix == ".onnx" and row.rule in ONNX:
        import onnx

        onnx.save(ONNX[row.rule](), path)
        return
    row.graph().save(path)
    if path.suffix == ".mlpackage" and row.rule == "C3":
        import coremltools

        model = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
        spec = coremltools.utils.load_spec(str(model))
        array = spec.description.input[0].type.multiArrayType
        (allowed,) = row.metadata["shapes"].values()
        for shape in allowed.get("enumerated", ()):
            array.enumeratedShapes.shapes.add().shape.extend(shape)
        for low, high in allowed.get("range", ()):
            size = array.shapeRange.sizeRanges.add()
            size.lowerBound, size.upperBound = low, high
        coremltools.utils.save_spec(spec, str(model))


def answer(row: Erratum, path: Path) -> list[dict]:
    """The rows of ``hexane check --json``, with the inputs that show the rule."""
    arguments = ["check", str(path), "--chip", row.chip, "--as", "apple", "--json"]
    for name, value in row.inputs.items():
        np.save(path.parent / f"{name}.npy", np.asarray(value, np.float32))
        arguments += ["--input", f"{name}={path.parent / name}.npy"]
    result = CliRunner().invoke(app, arguments)
    return json.loads(result.stdout)["reports"][0]["rows"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.rule}-{row.name.replace(' ', '-')}") for row in ERRATA])
def test_check_of_a_file_names_op_number_and_remedy(row: Erratum, ending: str, tmp_path: Path) -> None:
    pytest.importorskip({"mil": "numpy", "mlpackage": "coremltools", "onnx": "onnx"}[ending])
    path = tmp_path / f"m.{ending}"
    if (row.rule, ending) in NO_WORD:
        if row.rule == "C2":
            return
        try:
            write(row, path)
        except HexaneError as error:
            assert any(word in error.message for word in ("not written", "cannot hold", "has no states"))
            return
        said_here = {r["rule"] for line in answer(row, path) for r in line["remarks"]}
        assert row.rule not in said_here, "the format has a word"
        return
    write(row, path)
    op = SPELLED.get((row.rule, ending, row.op), SPELLED.get((row.rule, ending), row.op))
    lines = answer(row, path)
    said = [r for line in lines if line["op"] == op for r in line["remarks"] if r["rule"] == row.rule]
    assert said, [(line["op"], [r["rule"] for r in line["remarks"]]) for line in lines]
    assert said[0]["limit"] != "" and said[0]["found"] not in ("", "not known: give inputs")
    assert said[0]["remedy"] and said[0]["source"] and said[0]["status"] in ("confirmed", "disputed", "inferred")
    assert any(character.isdigit() or character.isalpha() for character in f"{said[0]['limit']}")
    assert op == row.op or said[0]["says"]


def test_every_rule_for_core_ml_and_every_limit_has_a_network() -> None:
    """Rules on letters and weight files are those of a text alone (tests/restrictions)."""
    named = {row.rule for row in ERRATA}
    rules = {r.id for r in RULES.values() if MLE5 in r.interfaces and r.module not in TEXT_ALONE}
    assert {id for id in rules if RULES[id].test or RULES[id].op_test} == named


def test_every_rule_is_said_of_every_format_or_the_format_has_no_word() -> None:
    rows = {row.rule for row in ERRATA}
    assert {rule for rule, _ in NO_WORD} <= rows
    assert sum(ending == "mil" for _, ending in NO_WORD) <= 2
    assert sum(ending == "mlpackage" for _, ending in NO_WORD) <= 4
