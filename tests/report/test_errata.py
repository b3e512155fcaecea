"""Every erratum as a network: check names the op, the number, the remedy and who says so, from any file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from facts import fact_folder
from hexane.cli.main import app
from hexane.errors import HexaneError
from hexane.graph import Graph, GraphBuilder
from hexane.graph.constants import Constant
from hexane.graph.types import TensorType
from hexane.numerics.insight import every_value
from hexane.passes.apple_forms import applied
from hexane.report.errata import ERRATA, Erratum, errata_page
from hexane.restrictions import RULES
from hexane.restrictions.remarks import Remark, remarks
from hexane.restrictions.remedies import REMEDIES
from hexane.session.fix import fixed

ROOT = Path(__file__).resolve().parents[2]


def named(rows: tuple[Erratum, ...]) -> list:
    return [pytest.param(row, id=f"{row.rule}-{row.name.replace(' ', '-')}") for row in rows]


@pytest.mark.parametrize("row", named(ERRATA))
def test_check_names_the_op_the_number_and_the_remedy(row: Erratum) -> None:
    graph = row.graph()
    report = hexane.check(graph, row.chip, "apple", row.values(graph)) if row.rule != "C2" else None
    found = [r for line in report.rows if line.op == row.op for r in line.remarks] if report else [row.remark(graph)]
    (remark,) = [r for r in found if r.rule == row.rule][:1]
    assert remark.limit != "" and remark.found not in ("", "not known: give inputs") and remark.remedy and remark.source
    assert remark.status in ("confirmed", "disputed", "inferred") and remark.says and "{" not in remark.says


@pytest.mark.parametrize("row", named(tuple(r for r in ERRATA if RULES[r.rule].op_test)))
def test_what_a_limit_leaves_to_the_host_is_there_in_every_answer(row: Erratum) -> None:
    """check, estimate and the compiled program as Apple's compiler has it."""
    graph = row.graph()
    assert {r.op: r.place for r in hexane.check(graph, row.chip, "apple").rows}[row.op] == "host"
    on_host = [s for s in hexane.compile(graph, chip=row.chip, as_="apple").segments if s.kind == "host"]
    assert any(row.op in op for segment in on_host for op in segment.ops)
    estimate = hexane.estimate(graph, row.chip, as_="apple") if row.rule != "static_shape" else None
    assert estimate is None or "nothing on the host" not in " ".join(estimate.notes)


def test_numbers_within_the_limits_are_no_remark() -> None:
    for row in ERRATA:
        if row.inputs and row.rule not in ("N5", "N6", "N19"):
            halves = {name: np.full(np.shape(value), 0.5) for name, value in row.inputs.items()}
            with pytest.raises(KeyError):
                replace(row, inputs=halves).remark()


def test_every_rule_on_numbers_and_compilation_is_an_erratum() -> None:
    named_rules = {row.rule for row in ERRATA}
    assert {rule for rule in RULES if rule[0] in "NC" and rule[1:].isdigit()} <= named_rules
    assert named_rules <= set(RULES) and len(ERRATA) >= 30


def test_weights_that_layers_share_count_once() -> None:
    """Three layers with one weight of 512 MiB: below 1 GB. coremltools stores float32 weights in half of that."""
    type_ = TensorType("fp32", (16384, 8192))
    for shared, format_, count in ((True, "", 1), (False, "", 3), (False, "onnx", 3)):
        b = GraphBuilder()
        x = b.input("x", (1, 8192), "fp32")
        constants = [Constant(type_, load=lambda: np.broadcast_to(np.float32(0.01), type_.shape)) for _ in range(count)]
        for number in range(3):
            weight = b.const(constants[0 if shared else number], name=f"w{number}")
            b.output(b.linear(x=x, weight=weight), name=f"y{number}")
        b.graph.metadata["format"] = format_
        said_here = [r for rows in remarks(b.graph, hexane.chips.get("M4")).values() for r in rows if r.rule == "C2"]
        assert [r.found for r in said_here] == ([3 << 29] if (shared, format_) == (False, "") else [])


def test_those_that_apples_program_computes_are_marked() -> None:
    page = (ROOT / "docs" / "errata.md").read_text()
    assert page == errata_page(), "run `make docs`"
    computed = [
        row for row in ERRATA if any(f.rule == row.rule for f in applied(row.graph(), hexane.chips.get(row.chip)))
    ]
    assert len(computed) >= 5 and page.count("| yes |") == len(computed)


def said(graph: Graph, row: Erratum, given: dict[str, np.ndarray]) -> list[Remark]:
    """Every remark on a network with inputs."""
    values = {**given, **every_value(graph, given)}
    return [remark for rows in remarks(graph, hexane.chips.get(row.chip), values).values() for remark in rows]


def test_lost_products_are_those_of_all_pairs_of_numbers_that_are_not_0() -> None:
    rng = np.random.default_rng(0)
    exponents = [rng.integers(-14, 2, shape) for shape in ((1, 64), (32, 64))]
    x, w = (np.where(rng.random(e.shape) < 0.4, 0, 2.0**e).astype(np.float16) for e in exponents)
    b = GraphBuilder()
    b.output(b.linear(x=b.input("x", x.shape, "fp16"), weight=w), name="y")
    values = {"x": x.astype(np.float32), **every_value(b.graph, {"x": x})}
    rows = remarks(b.graph, hexane.chips.get("M1"), values).values()
    share = np.mean([a * b < 2.0**-16 for a in np.float64(x[x != 0]) for b in np.float64(w[w != 0])])
    assert [r.found for row in rows for r in row if r.rule == "N6"] == [f"{share:.1%} of the products"]


@pytest.mark.parametrize("row", named(tuple(row for row in ERRATA if row.rule in {r.rule for r in REMEDIES})))
def test_what_a_remark_advises_helps(row: Erratum) -> None:
    """Done, the network is the same in float32, the rule is silent, and Apple's program of it is right."""
    graph = row.graph()
    given = {v.name: np.asarray(row.inputs.get(v.name, np.ones(v.shape)), np.float32) for v in graph.main.inputs}
    result = fixed(graph, row.chip, given)
    assert result.before is not None and result.after is not None and result.after <= min(result.before, 3e-3)
    if row.rule in ("N1", "N18", "N20"):  # what is infinite here is infinite in the network's own type, too
        assert (result.done, result.idle, result.after) == ({}, (row.rule,), result.before)
        result = fixed(graph, row.chip)
    elif row.rule != "float32_constant":
        assert result.before > {"N15": 0.03, "N21": 0.01}.get(row.rule, 0.5)
    assert result.done == {row.rule: 1} and row.rule not in {r.rule for r in said(result.graph, row, given)}
    for name, wanted in graph.evaluate(given).items():
        usual = np.isfinite(wanted) & (np.abs(wanted) < 6e4)
        assert np.allclose(result.graph.evaluate(given)[name][usual], wanted[usual], rtol=2e-3, atol=2e-3)


def test_fix_gives_up_what_helps_no_output(tmp_path: Path) -> None:
    """A gate of x itself and a slice that overflows are mended; an exp that a minimum cuts is as right without.

    x * sigmoid(x) of an ONNX file becomes silu on its way, and silu is a table (ane-guide: not 0 at 0).
    """
    b = GraphBuilder()
    x, z = b.input("x", (1, 8, 4, 32), "fp32"), b.input("z", (1, 8, 4, 32), "fp32")
    b.output(b.mul(x=x, y=b.sigmoid(x=x)), name="gated")
    b.output(b.slice_by_size(x=z, begin=[0, 0, 0, 4], size=[1, 8, 4, 28]), name="cut")
    b.output(b.minimum(x=b.exp(x=z), y=np.float32(100)), name="rest")
    b.graph.save(tmp_path / "m.onnx")
    graph = hexane.load(tmp_path / "m.onnx")
    given = {"x": np.full((1, 8, 4, 32), 1e-4, np.float32), "z": np.linspace(-5000, 12, 1024, dtype=np.float32)}
    given["z"] = given["z"].reshape(z.shape)
    result = fixed(graph, "M1", given)
    assert (result.done, result.idle) == ({"N7": 1, "N9": 1}, ("N1",)) and result.before == np.inf > 2e-3 > result.after
    assert "sigmoid" not in {op.type for op in result.graph.main.ops}
    given["z"] = np.abs(given["z"]) / 1000
    again = fixed(graph, "M1", given)
    assert set(again.done) == {"N9"} and again.before > 1 > 2e-3 > again.after


def test_log_softmax_of_a_file_is_what_a_converter_makes_of_it(tmp_path: Path) -> None:
    """One node of ONNX is log(softmax) for coremltools (2728: no small shares), four nodes are not; a mask is cut."""
    onnx = pytest.importorskip("onnx")
    tensor = [onnx.helper.make_tensor_value_info(name, 1, [1, 8]) for name in ("x", "y")]
    mask = onnx.numpy_helper.from_array(np.array([[0] * 7 + [-1e9]], np.float32), "mask")
    nodes = [onnx.helper.make_node("Add", ["x", "mask"], ["m"]), onnx.helper.make_node("LogSoftmax", ["m"], ["y"])]
    network = onnx.helper.make_graph(nodes, "g", tensor[:1], tensor[1:], [mask])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(network, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    result = fixed(hexane.load(tmp_path / "m.onnx"), "M4", {"x": 4 * np.arange(8, dtype=np.float32)[None]})
    assert result.done == {"N3": 1, "float32_constant": 1} and result.before > 100 > 1e-3 > result.after
    assert not {"N3", "float32_constant"} & set(result.left)
    result.graph.save(tmp_path / "n.onnx")
    assert "LogSoftmax" not in {node.op_type for node in onnx.load(tmp_path / "n.onnx").graph.node}


def test_fix_writes_a_network_and_says_what_it_is_worth(tmp_path: Path) -> None:
    row = ERRATA[1]
    row.graph().save(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.asarray(row.inputs["x"], np.float32))
    arguments = ["check", str(tmp_path / "m.onnx"), "--chip", row.chip, "--fix"]
    answer = json.loads(CliRunner().invoke(app, [*arguments, "--input", str(tmp_path / "x.npy"), "--json"]).stdout)
    assert answer["done"] == {"O15": 1} and answer["tried"] and answer["before"] > 0.5 > 1e-3 > answer["after"]
    again = hexane.load(tmp_path / "m.fixed.onnx")
    assert "softplus" not in {op.type for op in again.main.ops}
    said = CliRunner().invoke(app, arguments).stdout
    assert "O15 1x" in said and "not tried" in said


def test_ranges_over_a_folder_of_inputs(tmp_path: Path) -> None:
    """Each file is one set; what one of them alone is beyond is said of all."""
    ERRATA[0].graph().save(tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for number, largest in enumerate((3, 9, 12)):
        np.save(tmp_path / "data" / f"{number}.npy", np.full((1, 8, 16, 32), largest, np.float32))
    arguments = ["check", str(tmp_path / "m.onnx"), "--chip", "M4", "--json", "--data"]
    answer = json.loads(CliRunner().invoke(app, [*arguments, str(tmp_path / "data")]).stdout)
    (remark,) = [r for r in answer["reports"][0]["rows"][0]["remarks"] if r["rule"] == "O15"]
    assert remark["found"] == "3 to 12, 33.333% of the values"
    (tmp_path / "none").mkdir()
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "none")]).exit_code != 0


def test_texts_without_their_weights_are_checked_as_far_as_shapes_go() -> None:
    """Every program of the corpus, as it is: its weight files are not there."""
    seen = 0
    for path in sorted((fact_folder() / "mil").rglob("*.mil")):
        try:
            graph = hexane.parse_mil(path.read_text())
        except HexaneError:
            continue
        for chip in ("M1", "M4"):
            rows = [row for said in remarks(graph, hexane.chips.get(chip)).values() for row in said]
            assert all(row.limit != "" and row.remedy and row.status for row in rows if row.rule[0] in "NC")
        seen += 1
    assert seen > 150
