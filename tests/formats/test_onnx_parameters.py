"""Parameters of ONNX ops that the node tests leave out, against onnxruntime or the op's own formula."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hexane
from hexane.formats.onnx import load

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402


def model(op, arrays, opset=20, constant=(), **attributes):
    names = [f"i{index}" for index in range(len(arrays))]
    node = helper.make_node(op, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for index, (name, array) in enumerate(zip(names, arrays))
        if index not in constant
    ]
    stored = [onnx.numpy_helper.from_array(arrays[index], names[index]) for index in constant]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def compare(op, arrays, constant=(), **attributes):
    runtime = pytest.importorskip("onnxruntime")
    made = model(op, arrays, constant=constant, **attributes)
    feed = {f"i{index}": array for index, array in enumerate(arrays) if index not in constant}
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made.graph.output[0].CopyFrom(info)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    got = load(made.SerializeToString()).evaluate(feed)["y"]
    wanted = session.run(None, feed)[0]
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_indices_over_a_part_of_the_other_axes(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(1, 5)))
    axis = int(rng.integers(-len(shape), len(shape)))
    part = tuple(int(rng.integers(1, extent + 1)) for extent in shape)
    indices = rng.integers(-shape[axis], shape[axis], part)
    compare("GatherElements", [rng.standard_normal(shape).astype(np.float32), indices], axis=axis)


@pytest.mark.parametrize("constant", [(1,), (1, 2)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_ones_along_an_axis_of_a_depth_that_the_file_holds(constant, axis):
    indices = np.array([[0, -1, 4], [-5, 2, 7]])
    compare("OneHot", [indices, np.array(5), np.float32([-1.5, 2])], constant=constant, axis=axis)


def test_blocks_of_a_size_that_the_file_holds_are_put_together():
    x = np.random.default_rng(0).standard_normal((2, 2 * 6, 9)).astype(np.float32)
    how = {"pads": [0, 1, 1, 0], "strides": [2, 1], "dilations": [1, 2]}
    compare("Col2Im", [x, np.array([5, 6]), np.array([2, 3])], constant=(1, 2), **how)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, -1])
def test_one_operand_and_several_side_by_side(count, axis):
    rng = np.random.default_rng(count)
    compare("Concat", [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(count)], axis=axis)


@pytest.mark.parametrize("opset", [9, 13, 17, 18, 20])
def test_ops_that_onnx_defines_by_others_in_every_op_set(opset):
    x = np.random.default_rng(opset).standard_normal((2, 3, 4, 2)).astype(np.float32)
    made = model("MeanVarianceNormalization", [x], opset, axes=[0, 3])
    wanted = (x - x.mean((0, 3), keepdims=True)) / x.std((0, 3), keepdims=True)
    np.testing.assert_allclose(load(made.SerializeToString()).evaluate({"i0": x})["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 12, 13])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Hardmax", {"axis": axis}) for axis in (1, 2, 3)]
    + [("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": pad}) for pad in ("SAME_UPPER", "VALID")],
)
def test_largest_numbers_with_ties_in_every_op_set(op, attributes, opset):
    compare(
        op, [np.random.default_rng(opset).integers(-2, 3, (2, 3, 6, 5)).astype(np.float32)], opset=opset, **attributes
    )


def test_a_window_of_nothing_but_negative_infinity_is_that():
    """onnxruntime gives the lowest finite number (docs/fuzzing.md)."""
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    made = model("MaxPool", [x], 12, kernel_shape=[2, 2])
    np.testing.assert_array_equal(load(made.SerializeToString()).evaluate({"i0": x})["y"], x[..., :1, :1])


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_transposed_convolution_to_an_output_shape(auto_pad, extra):
    rng = np.random.default_rng(extra + 1)
    x = rng.standard_normal((1, 2, 5, 4)).astype(np.float32)
    weight = rng.standard_normal((2, 3, 3, 4)).astype(np.float32)
    shape = [4 * 2 + 3 - 1 + min(extra, 0), 3 * 3 + 4 - 2 + min(extra, 1)]
    arguments = {} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}
    compare("ConvTranspose", [x, weight], constant=(1,), strides=[2, 3], output_shape=shape, **arguments)


def test_symbolic_extents_from_numpy():
    x = np.zeros((2, 3), np.float32)
    made = model("Relu", [x])
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    for shapes in ({"n": np.int64(2)}, {"i0": np.array([2, 3])}):
        assert load(made.SerializeToString(), shapes=shapes).inputs["i0"].shape == (2, 3)
    for bad in (-1, True, 2.0):
        with pytest.raises(hexane.HexaneError, match="whole numbers"):
            load(made.SerializeToString(), shapes={"i0": (bad, 3)})


def with_functions(functions, name="F0"):
    node = helper.make_node(name, ["x"], ["y"], domain="my")
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [1, 3]) for end in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9).SerializeToString()


def function(name, nodes, opset=18):
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1)]
    return helper.make_function("my", name, ["a"], ["b"], nodes, opsets)


def test_functions_of_another_op_set():
    nodes = [
        helper.make_node("Unsqueeze", ["a"], ["t"], axes=[0]),
        helper.make_node("Squeeze", ["t"], ["b"], axes=[0]),
    ]
    graph = load(with_functions([function("F0", nodes, 11)]))
    assert graph.outputs["y"].shape == (1, 3)


def test_functions_that_never_end():
    itself = function("F0", [helper.make_node("F0", ["a"], ["b"], domain="my")])
    with pytest.raises(hexane.HexaneError, match="calls itself"):
        load(with_functions([itself]))
    twice = [
        function(
            f"F{level}",
            [
                helper.make_node(f"F{level + 1}", ["a"], ["t"], domain="my"),
                helper.make_node(f"F{level + 1}", ["t"], ["b"], domain="my"),
            ],
        )
        for level in range(40)
    ]
    with pytest.raises(hexane.HexaneError, match="nodes when they are inlined"):
        load(with_functions([*twice, function("F40", [helper.make_node("Relu", ["a"], ["b"])])]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds the address space")
def test_long_vectors_cost_no_memory(tmp_path):
    """A process of 3 GB loads them; a record per element would take more."""
    size = 500_000_000
    extents = onnx.numpy_helper.from_array(np.array([size]), "s")
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "k")
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]), onnx.ValueInfoProto(name="y")]
    for op in ("Expand", "Tile"):
        nodes = [helper.make_node(op, ["k", "s"], ["q"]), helper.make_node("Add", ["x", "q"], ["y"])]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [extents, one])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / op)
        code = (
            "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); import hexane; "
            f"assert hexane.load(sys.argv[1]).outputs['y'].shape == ({size},)"
        )
        made = subprocess.run([sys.executable, "-c", code, str(tmp_path / op)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(("rank", "by_one_op"), [(3, True), (4, True), (5, False)])
@pytest.mark.parametrize("constant", [(1, 2), (1,)])
def test_instance_normalisation_is_one_op_where_mil_has_it(rank, by_one_op, constant):
    """MIL's takes constants and one or two spatial axes; the rest is composed of a centring and a scale."""
    rng = np.random.default_rng(rank)
    x = rng.standard_normal((2, 3, 4, 5, 2)[:rank]).astype(np.float32)
    arrays = [x, rng.standard_normal(3).astype(np.float32), rng.standard_normal(3).astype(np.float32)]
    made = model("InstanceNormalization", arrays, constant=constant, epsilon=1e-3)
    assert any(op.type == "instance_norm" for op in load(made.SerializeToString()).ops) == (
        by_one_op and len(constant) == 2
    )
    compare("InstanceNormalization", arrays, constant=constant, epsilon=1e-3)
