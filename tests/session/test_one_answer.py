"""What `check` says of an op is what `compile` does with it: places, reasons, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder
from hexane.session.check import CheckReport, CheckRow
from hexane.session.tables import check_title

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


NOTHING = {
    "a power of 1": lambda b, x: b.pow(x=x, y=np.float16(1)),
    "a product with 1": lambda b, x: b.mul(x=x, y=np.float16(1)),
    "a slice of all": lambda b, x: b.slice_by_index(x=x, begin=(0, 0, 0, 0), end=(1, 8, 4, 4)),
    "two turns": lambda b, x: b.transpose(x=b.transpose(x=x, perm=(0, 2, 1, 3)), perm=(0, 2, 1, 3)),
}


@pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("order", ["before", "behind"])
def test_an_op_of_which_nothing_is_left_is_not_the_host_s(nothing, order):
    """Beside an op of the host, whose operand or result it passes on: `compile` counts that one alone."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    y = b.cumsum(x=nothing(b, x), axis=1) if order == "before" else nothing(b, b.cumsum(x=x, axis=1))
    b.output(y, name="y")
    counts = hexane.compile(b.graph, "M1").stats()
    for whose in WHOSE:
        report = hexane.check(b.graph, "M1", as_=whose)
        assert [row.op for row in report.rows if row.place == "host"] == ["cumsum"]
        assert report.totals["host_ops"] + report.casts == sum(counts["host_ops"].values()) == 1
        assert not report.fits


def test_what_an_op_of_the_host_takes_in_is_the_host_s():
    """A scale in the weights of a convolution that is the host's: work, which the host does."""
    b = GraphBuilder()
    x = b.mul(x=b.input("x", (1, 4, 20000, 4), "fp16"), y=np.float16(3), name="scaled")
    b.output(b.conv(x=x, weight=np.ones((8, 4, 3, 3), np.float16), name="y"))
    assert not hexane.compile(b.graph, "M1").stats()["tasks"]
    assert {row.name: row.place for row in hexane.check(b.graph, "M1").rows} == {"scaled": "host", "y": "host"}


def test_products_of_an_op_in_two_parts_are_said_to_be():
    """No op is on the engine as a whole, and all products are: the sentence says why both are so."""
    rows = [
        CheckRow(f"y{i}", "linear", "host", "", "APPLE", macs=macs, apple="engine", hexane="host", partly=True)
        for i, macs in enumerate((64, 0, 64))
    ]
    report = CheckReport("M1", "h13", True, tuple(rows))
    assert report.totals["macs_on_engine"] == 1 and report.totals["engine_ops"] == 0
    assert report.totals["partly_ops"] == 2
    said, _ = check_title(report)
    assert "0 of 3 ops on the engine, 100.0% of the multiply-accumulates" in said
    assert "(2 ops of the host have products there)" in said
    apple = CheckReport("M1", "h13", False, tuple(rows))
    assert apple.totals["macs_on_engine"] == apple.totals["partly_ops"] == 0


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
