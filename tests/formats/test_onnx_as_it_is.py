"""ONNX files as people have them: nodes out of order, loops of a length that data decide, text, open shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexane
from hexane.errors import HexaneError, UsageError
from hexane.formats.onnx.importer import load_onnx
from hexane.formats.onnx.order import in_order
from hexane.formats.open_shapes import options_for
from hexane.graph.ops import onnx_foreign
from hexane.session.file_shapes import file_shapes

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
info, node = helper.make_tensor_value_info, helper.make_node


def model_of(nodes: list, inputs: list, outputs: list, constants: dict | None = None, ml: bool = False):
    constants = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("ai.onnx.ml", 2)] if ml else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def agrees(model, inputs: dict[str, np.ndarray]) -> hexane.Graph:
    """The graph, whose program gives what onnxruntime gives, up to fp16."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))
    graph = load_onnx(model)
    for name, array in hexane.compile(graph, "M1").run(inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-2, atol=1e-2)
    for name, array in graph.evaluate(inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5)
    return graph


def counted() -> onnx.ModelProto:
    """A loop whose trip count is an input."""
    body = helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Add", ["v", "one"], ["w"])], "body",
        [info("i", INT64, []), info("going", BOOL, []), info("v", FLOAT, [1, 8])],
        [info("goes", BOOL, []), info("w", FLOAT, [1, 8])],
        [numpy_helper.from_array(np.ones((1, 8), np.float32), "one")],
    )  # fmt: skip
    nodes = [node("Relu", ["x"], ["r"]), node("Loop", ["n", "", "r"], ["y"], body=body)]
    return model_of(nodes, [info("x", FLOAT, [1, 8]), info("n", INT64, [])], [info("y", FLOAT, [1, 8])])


def waiting() -> onnx.ModelProto:
    """A loop that ends by its data, and takes two values of the graph around it."""
    body = helper.make_graph(
        [node("Add", ["v", "step"], ["w"]), node("ReduceSum", ["w"], ["sum"], keepdims=0),
         node("Less", ["sum", "most"], ["goes"])], "body",
        [info("i", INT64, []), info("going", BOOL, []), info("v", FLOAT, [1, 8])],
        [info("goes", BOOL, []), info("w", FLOAT, [1, 8])],
    )  # fmt: skip
    nodes = [node("Relu", ["x"], ["r"]), node("Sigmoid", ["x"], ["step"]),
             node("Loop", ["many", "yes", "r"], ["l"], body=body), node("Relu", ["l"], ["y"])]  # fmt: skip
    constants = {"many": np.array(1 << 40), "yes": np.array(True), "most": np.float32(50)}
    return model_of(nodes, [info("x", FLOAT, [1, 8])], [info("y", FLOAT, [1, 8])], constants)


@pytest.mark.parametrize("trips", [0, 1, 7])
def test_a_loop_of_a_given_length_is_a_host_op(trips: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 8)).astype(np.float32)
    graph = agrees(counted(), {"x": x, "n": np.array(trips)})
    rows = {row.op: row for row in hexane.check(graph, chip="M1").rows}
    assert rows["Loop"].place == "host"
    assert rows["relu"].place == "engine"


def test_a_loop_that_data_end_sees_the_graph_around_it() -> None:
    agrees(waiting(), {"x": np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)})


def test_a_loop_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_foreign, "MOST_SECONDS", 0.5)
    graph = load_onnx(waiting())
    with pytest.raises(HexaneError, match="refuses to run it"):
        graph.evaluate({"x": np.full((1, 8), -100, np.float32)})  # adds nothing, and 2^40 turns are allowed


def test_a_loop_whose_results_have_no_known_shape_is_refused() -> None:
    body = helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Identity", ["v"], ["w"]), node("Relu", ["v"], ["scan"])], "body",
        [info("i", INT64, []), info("going", BOOL, []), info("v", FLOAT, [1, 8])],
        [info("goes", BOOL, []), info("w", FLOAT, [1, 8]), info("scan", FLOAT, [1, 8])],
    )  # fmt: skip
    nodes = [node("Loop", ["n", "", "x"], ["l", "y"], body=body)]
    open_output = [info("y", FLOAT, [None, 1, 8])]
    with pytest.raises(HexaneError, match="trip count"):
        load_onnx(model_of(nodes, [info("x", FLOAT, [1, 8]), info("n", INT64, [])], open_output))


def test_a_loop_that_onnxruntime_refuses_is_refused() -> None:
    """What the results are is declared, and does not make up for an op of the body that nobody knows."""
    model = counted()
    (loop,) = (n for n in model.graph.node if n.op_type == "Loop")
    loop.attribute[0].g.node[1].domain = "nobody.knows"
    model.opset_import.append(helper.make_opsetid("nobody.knows", 1))
    with pytest.raises(HexaneError, match="trip count"):
        load_onnx(model)


def test_nodes_out_of_order_are_put_in_order() -> None:
    x = np.random.default_rng(2).normal(size=(1, 8)).astype(np.float32)
    nodes = [node("Relu", ["b"], ["y"]), node("Neg", ["a"], ["b"]), node("Sigmoid", ["x"], ["a"])]
    borders = [info("x", FLOAT, [1, 8])], [info("y", FLOAT, [1, 8])]
    # The truth is onnxruntime with the same nodes in order.
    agrees(model_of(nodes[::-1], *borders), {"x": x})
    sorted_, unsorted = (load_onnx(model_of(n, *borders)).evaluate({"x": x})["y"] for n in (nodes[::-1], nodes))
    assert sorted_.tobytes() == unsorted.tobytes()
    assert in_order(nodes) == nodes[::-1]
    assert in_order(nodes[::-1]) == nodes[::-1]


def test_a_circle_is_said() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["x"], ["y"])]
    with pytest.raises(HexaneError, match="takes 'b', which nothing before it makes"):
        load_onnx(model_of(nodes, [info("x", FLOAT, [1, 8])], [info("y", FLOAT, [1, 8]), info("b", FLOAT, [1, 8])]))


def test_text_goes_in() -> None:
    encoder = node("LabelEncoder", ["s"], ["k"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_floats=[1.0, 2.0])
    nodes = [encoder, node("Relu", ["k"], ["y"])]
    model = model_of(nodes, [info("s", STRING, [1, 3])], [info("y", FLOAT, [1, 3])], ml=True)
    given = np.array([["b", "a", "b"]])
    graph = agrees(model, {"s": given.astype(object)})
    program = hexane.compile(graph, "M4")
    assert program.run({"s": given})["y"].tolist() == [[2, 1, 2]]
    for wrong in (np.ones((1, 3), np.float32), given[:, :2]):
        with pytest.raises(UsageError, match="'s'"):
            program.run({"s": wrong})


def test_text_passes_through() -> None:
    model = model_of([node("Identity", ["s"], ["t"])], [info("s", STRING, [3])], [info("t", STRING, [3])])
    given = np.array(["b", "", "long text"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"s": given.astype(object)})[0].tolist() == given.tolist()
    graph = load_onnx(model)
    for chip in ("M1", "M4"):
        assert hexane.compile(graph, chip).run({"s": given})["t"].tolist() == given.tolist()
        (row,) = hexane.check(graph, chip).rows
        assert row.place == "host" and "text" in row.reason and "fp16 holds" not in row.advice


def test_text_is_moved_by_onnxruntime() -> None:
    """A label looked up in a constant list, and text that is joined and reshaped."""
    nodes = [
        node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        node("Gather", ["labels", "best"], ["label"]),
        node("Concat", ["label", "text"], ["both"], axis=0),
        node("Reshape", ["both", "shape"], ["y"]),
    ]
    constants = {"labels": np.array(["cat", "dog", "bird"], object), "shape": np.int64([3, 1])}
    model = model_of(
        nodes,
        [info("x", FLOAT, [1, 3]), info("text", STRING, [2])],
        [info("label", STRING, [1]), info("y", STRING, [3, 1])],
        constants,
    )
    graph, given = load_onnx(model), {"x": np.float32([[0, 2, 1]]), "text": np.array(["a", "b"], object)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    label, y = hexane.compile(graph).run(given).values()
    wanted = session.run(None, given)
    assert [label.tolist(), y.tolist()] == [array.tolist() for array in wanted] == [["dog"], [["dog"], ["a"], ["b"]]]
    report, counts = hexane.check(graph, as_="hexane"), hexane.compile(graph).stats()
    (row,) = [row for row in report.rows if row.name == "label"]
    assert row.reason == counts["host_reasons"]["Gather 'label'"]


def test_an_input_that_is_an_output_has_one_name(tmp_path: Path) -> None:
    model = model_of(
        [node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["z"])],
        [info("x", FLOAT, [2, 3])],
        [*(info(name, FLOAT, [2, 3]) for name in "xyz")],
    )
    inputs = {"x": np.float32([[0, -2, 1], [3, -1, 5]])}
    graph = agrees(model, inputs)
    for ending in (".mil", ".mlpackage", ".onnx"):
        graph.save(tmp_path / f"m{ending}")
        again = hexane.load(tmp_path / f"m{ending}").evaluate(inputs)
        for array, wanted in zip(again.values(), graph.evaluate(inputs).values(), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_a_product_of_no_terms_is_zero() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"])],
        [info("x", FLOAT, [2, 0])],
        [info("y", FLOAT, [2, 4])],
        {"w": np.zeros((0, 4), np.float32)},
    )
    agrees(model, {"x": np.zeros((2, 0), np.float32)})


def test_arrays_say_their_shapes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 16)))
    np.savez(tmp_path / "all.npz", x=np.zeros((1, 3, 8)), m=np.zeros((2, 2)))
    (tmp_path / "no.npy").write_bytes(b"nothing")
    inputs = {"x": ("N", 3, "W")}
    assert file_shapes([f"{tmp_path}/x.npy"], inputs) == {"x": (5, 3, 16)}
    assert file_shapes([f"x={tmp_path}/x.npy"], {**inputs, "m": (2, None)}) == {"x": (5, 3, 16)}
    assert file_shapes([f"{tmp_path}/all.npz"], {**inputs, "m": (2, None)}) == {"x": (1, 3, 8), "m": (2, 2)}
    whole = (tmp_path / "x.npy").read_bytes()
    for at in range(6, 80):  # a header that is damaged anywhere is no shape, and no traceback
        (tmp_path / "no.npy").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        file_shapes([f"x={tmp_path}/no.npy"], inputs)
        (tmp_path / "no.npy").write_bytes(whole[:at])
        assert file_shapes([f"x={tmp_path}/no.npy"], inputs) == {}
    for nothing in (f"x={tmp_path}/no.npy", f"{tmp_path}/absent.npy", "x=photo.jpg"):
        assert file_shapes([nothing], inputs) == {}
    assert file_shapes([f"x={tmp_path}/x.npy"], {"x": ("N", 4, "W")}) == {}  # the file's extent is another


def test_an_extent_in_upper_case_is_asked_for_by_another_word() -> None:
    assert options_for({"x": (1, "M1", "width")}) == ("--shape M1=NUMBER", "--shape width=WIDTH")


def test_a_list_of_chips_where_one_is_asked_for() -> None:
    with pytest.raises(UsageError, match="one chip is asked for"):
        hexane.chips.get("M1,M4")
