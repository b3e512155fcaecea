"""What `check` says of an op is what `compile` does with it: places, reasons, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

WHOSE = ("hexane", "apple")


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_ops_on_which_nothing_depends_are_no_rows_and_no_work(chip, whose):
    b = GraphBuilder()
    x = b.input("x", (1, 16, 32, 32), "fp16")
    unused = b.conv(x=x, weight=np.ones((8, 16, 3, 3), np.float16), name="unused")
    b.op("topk", x=unused, k=3, axis=1)
    b.output(b.relu(x=x, name="y"))
    report, program = hexane.check(b.graph, chip, as_=whose), hexane.compile(b.graph, chip, as_=whose)
    assert [row.name for row in report.rows] == ["y"] and report.fits
    assert report.totals["macs"] == program.stats()["macs"] == hexane.estimate(b.graph, chip, as_=whose).macs == 0


def test_an_op_that_changes_a_state_stays():
    b = GraphBuilder()
    state = b.state("kept", (1, 4), "fp16")
    b.write_state(input=state, data=b.relu(x=b.input("x", (1, 4), "fp16"), name="written"))
    b.output(b.relu(x=b.input("z", (1, 4), "fp16"), name="y"))
    assert [row.name for row in hexane.check(b.graph, "M1").rows] == ["written", "y"]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_an_op_of_which_the_host_computes_a_part_is_not_on_the_engine(chip):
    b = GraphBuilder()
    b.output(b.reduce_log_sum_exp(x=b.input("x", (2, 5, 4, 6), "fp16"), axes=[0, 1, 2, 3], name="y"))
    program, report = hexane.compile(b.graph, chip), hexane.check(b.graph, chip, as_="hexane")
    reasons = set(program.stats()["host_reasons"].values())
    (row,) = report.rows
    assert any(row.reason.endswith(reason) for reason in reasons)
    assert row.place == "host" and row.partly and row.advice and not report.fits


def test_products_are_counted_where_they_are_summed():
    b = GraphBuilder()
    x = b.input("x", (1, 1, 20000), "fp16")
    y = b.conv(x=x, weight=np.ones((8, 1, 80), np.float16), strides=[16], pad_type="custom", pad=[32, 32])
    y = b.conv_transpose(x=b.relu(x=y), weight=np.ones((8, 1, 16), np.float16), strides=[16], name="y")
    b.output(y)
    report, counts = hexane.check(b.graph, "M1"), hexane.compile(b.graph, "M1").stats()
    assert report.fits is not bool(counts["host_ops"])
    assert report.totals["macs_on_engine"] == counts["macs_on_engine"] == 1
    assert report.totals["macs"] == report.totals["hexane_macs"] == counts["macs"]


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.gather(x=x, indices=b.input("i", (3,), "int32"), axis=1),
        lambda b, x: b.reduce_argmax(x=x, axis=1),
        lambda b, x: b.cumsum(x=x, axis=1),
    ],
)
@pytest.mark.parametrize("whose", WHOSE)
def test_the_reason_is_the_same_in_both(build, whose):
    b = GraphBuilder()
    b.output(build(b, b.input("x", (1, 8, 4, 4), "fp16")), name="y")
    (row,) = hexane.check(b.graph, "M1", as_=whose).rows
    assert list(hexane.compile(b.graph, "M1", as_=whose).stats()["host_reasons"].values()) == [row.reason]


def test_casts_beside_the_networks_own_ops_are_counted():
    onnx = pytest.importorskip("onnx")
    from hexane.formats.onnx import load

    h = onnx.helper
    nodes = [
        h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        h.make_node("MatMulInteger", ["q", "w", "z"], ["m"]),
        h.make_node("Cast", ["m"], ["f"], to=onnx.TensorProto.FLOAT),
        h.make_node("Mul", ["f", "s"], ["y"]),
    ]
    infos = [[h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)] for n, s in (("x", [4, 32]), ("y", [4, 16]))]
    weight = onnx.numpy_helper.from_array(np.ones((32, 16), np.int8), "w")
    model = h.make_model(h.make_graph(nodes, "g", *infos, [weight]), opset_imports=[h.make_opsetid("", 17)])
    graph = load(model)
    report, counts = hexane.check(graph, "M1", as_="hexane"), hexane.compile(graph, "M1").stats()
    assert report.casts and report.totals["host_ops"] + report.casts == sum(counts["host_ops"].values())
    assert f"casts {report.casts} more tensors" in report._repr_html_()


@pytest.mark.parametrize(("number", "warns"), [(1e9, True), (-1e9, False)])
def test_constants_beyond_fp16_are_said(number, warns, recwarn):
    """A mask is as good at -65504; any other result is another one."""
    b = GraphBuilder()
    b.output(b.add(x=b.input("x", (1, 4), "fp32"), y=np.float32(number), name="y"))
    program = hexane.compile(b.graph, "M1")
    assert program.run({"x": np.zeros((1, 4), np.float32)})["y"].tolist() == [[np.copysign(65504.0, number)] * 4]
    assert [str(w.message) for w in recwarn] == ["add 'y' has the constant 1e+09, which is 65504 in fp16"] * warns
    (row,) = hexane.check(b.graph, "M1").rows
    assert row.place == "engine" and f"{number:g}" in row.keeps_to and "65504" in row.keeps_to
    assert hexane.check(b.graph, "M4", as_="apple").fits is False


def test_a_row_of_an_updated_state_gives_reasons_of_its_own_op():
    b = GraphBuilder()
    state = b.state("kept", (1, 32), "fp16")
    b.write_state(input=state, data=b.add(x=b.read_state(input=state), y=b.input("x", (1, 32), "fp16")))
    b.output(b.relu(x=b.read_state(input=state, name="updated"), name="y"))
    rows = {row.name: row for row in hexane.check(b.graph, "M1", as_="apple").rows}
    assert rows["updated"].op == "coreml_update_state"
    assert rows["updated"].reason.startswith("M1 has coreml_update_state")
