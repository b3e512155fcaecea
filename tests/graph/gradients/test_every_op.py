"""Every derivative against differences in float64, with shapes and parameters that could go wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import hexane
from graph.gradients.differences import check_op
from hexane.graph import GraphBuilder
from hexane.graph.gradient import rules_of
from hexane.graph.ops import _gradients
from hexane.graph.registry import all_specs

RNG = np.random.default_rng(20260)


def normal(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.3, 2.0, size=shape)


def inside(*shape):
    return RNG.uniform(-0.8, 0.8, size=shape)


def apart(*shape):
    """Numbers of which no two are near each other or near a whole or half number, in any order."""
    count = int(np.prod(shape))
    return (RNG.permutation(np.arange(count)) * 0.37 - 0.37 * count / 2 + 0.113).reshape(shape)


UNARY = {
    "exp": normal, "exp2": normal, "sqrt": positive, "sin": normal, "cos": normal, "tan": inside, "sinh": normal,
    "cosh": normal, "tanh": normal, "acos": inside, "asin": inside, "atan": normal, "atanh": inside, "erf": normal,
    "abs": apart, "sign": apart, "square": normal, "ceil": apart, "floor": apart, "round": apart, "identity": normal,
    "rsqrt": positive, "log": positive, "inverse": positive, "relu": apart, "relu6": apart, "softsign": apart,
    "softplus": normal, "sigmoid": normal, "silu": normal,
}  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_one_operand(op):
    check_op(op, {"x": UNARY[op](2, 3, 4)})
    check_op(op, {"x": UNARY[op]()})


@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("clip", {"alpha": -1.0, "beta": 2.0}),
        ("threshold", {"alpha": 0.5}),
        ("leaky_relu", {"alpha": 0.1}),
        ("elu", {"alpha": 1.3}),
        ("clamped_relu", {"alpha": 0.2, "beta": 2.0}),
        ("thresholded_relu", {"alpha": 0.7}),
        ("sigmoid_hard", {"alpha": 0.3, "beta": 0.4}),
        ("linear_activation", {"alpha": 0.3, "beta": 0.4}),
        ("scaled_tanh", {"alpha": 1.7, "beta": 0.6}),
        ("gelu", {"mode": "EXACT"}),
        ("gelu", {"mode": "TANH_APPROXIMATION"}),
        ("gelu", {"mode": "SIGMOID_APPROXIMATION"}),
        ("softmax", {"axis": -1}),
        ("softmax", {"axis": 1}),
        ("cast", {"dtype": "fp64"}),
    ],
)
def test_with_parameters(op, params):
    check_op(op, {"x": apart(2, 3, 4) / 2, **params})


@pytest.mark.parametrize("alpha", [(3,), (1,)])
def test_parameters_per_channel(alpha):
    check_op("prelu", {"x": apart(2, 3, 4), "alpha": normal(*alpha)})
    check_op("softplus_parametric", {"x": normal(2, 3, 2, 2), "alpha": normal(*alpha), "beta": normal(*alpha)})


PAIRS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 1)), ((), (2, 2)), ((2, 1, 3), (4, 1)), ((1,), ())]


@pytest.mark.parametrize("shapes", PAIRS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "real_div", "pow", "maximum", "minimum", "mod", "floor_div"])
def test_two_operands(op, shapes):
    x, y = (positive(*shape) for shape in shapes)
    check_op(op, {"x": x + (0.017 if op in ("mod", "floor_div") else 0), "y": y}, tolerance=1e-5)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0])
def test_constant_exponents(exponent):
    check_op("pow", {"x": positive(3, 2), "y": exponent})


def test_whole_powers_of_negative_numbers():
    check_op("pow", {"x": -positive(4), "y": 2.0})
    check_op("pow", {"x": -positive(4), "y": 3.0})


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3), (2, 3)), ((3,), (2, 3), ()), ((2, 1), (), (3,))])
def test_select(shapes):
    cond = RNG.random(shapes[0]) < 0.5
    check_op("select", {"cond": cond, "a": normal(*shapes[1]), "b": normal(*shapes[2])})


MATRICES = [((2, 3), (3, 4)), ((2, 2, 3), (3, 4)), ((2, 3), (2, 3, 4)), ((2, 1, 2, 3), (3, 3, 2)), ((3,), (3, 2)),
            ((2, 3), (3,)), ((3,), (3,)), ((3,), (2, 3, 2)), ((2, 2, 3), (3,))]  # fmt: skip


@pytest.mark.parametrize("shapes", MATRICES)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(shapes, turned):
    x, y = (normal(*shape) for shape in shapes)
    x = x.swapaxes(-1, -2).copy() if turned[0] and x.ndim > 1 else x
    y = y.swapaxes(-1, -2).copy() if turned[1] and y.ndim > 1 else y
    check_op("matmul", {"x": x, "y": y, "transpose_x": turned[0], "transpose_y": turned[1]})


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_linear(lead):
    check_op("linear", {"x": normal(*lead, 3), "weight": normal(4, 3), "bias": normal(4)})


CONVOLUTIONS = [
    ((1, 2, 5), (3, 2, 2), {}),
    ((2, 2, 5, 4), (3, 2, 3, 2), {"pad_type": "same"}),
    ((2, 2, 6, 5), (3, 2, 3, 3), {"pad_type": "same_lower", "strides": [2, 2]}),
    ((1, 4, 6, 5), (4, 2, 2, 3), {"groups": 2, "strides": [2, 1], "pad_type": "custom", "pad": [1, 0, 0, 2]}),
    ((2, 3, 5, 5), (3, 1, 3, 3), {"groups": 3, "pad_type": "custom", "pad": [1, 1, 1, 1]}),
    ((1, 3, 5, 4), (6, 1, 2, 2), {"groups": 3}),
    ((1, 2, 8, 7), (2, 2, 2, 3), {"dilations": [2, 3], "strides": [3, 1]}),
    ((1, 2, 7, 8), (2, 2, 2, 2), {"strides": [3, 3]}),  # remainders: the last rows meet no kernel
    ((1, 2, 5, 5), (3, 2, 1, 1), {"strides": [2, 2]}),
    ((1, 1, 3, 4, 3), (2, 1, 2, 2, 2), {"strides": [1, 2, 1], "pad_type": "custom", "pad": [1, 0, 0, 0, 0, 1]}),
    ((1, 2, 6, 6), (2, 2, 3, 3), {"pad_type": "custom", "pad": [-1, 0, 2, -1]}),
    ((1, 2, 2, 2), (2, 2, 5, 5), {"pad_type": "custom", "pad": [2, 2, 2, 2]}),
]


@pytest.mark.parametrize(("x", "weight", "params"), CONVOLUTIONS)
def test_convolutions(x, weight, params):
    check_op("conv", {"x": normal(*x), "weight": normal(*weight), "bias": normal(weight[0]), **params})


TRANSPOSED = [
    ((1, 2, 3), (2, 3, 2), {}),
    ((2, 2, 3, 2), (2, 3, 3, 2), {"strides": [2, 1]}),
    ((1, 4, 3, 3), (4, 2, 2, 3), {"groups": 2, "strides": [2, 2], "pad_type": "custom", "pad": [1, 0, 0, 1]}),
    ((1, 2, 3, 3), (2, 1, 3, 3), {"strides": [2, 2], "pad_type": "same"}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "pad_type": "same", "output_shape": [1, 2, 6, 5]}),
    ((1, 2, 3, 3), (2, 2, 2, 2), {"dilations": [2, 1], "strides": [1, 3]}),
    ((1, 2, 2, 3), (2, 2, 2, 2), {"strides": [2, 2], "pad_type": "custom", "pad": [0] * 4, "output_shape": [6, 7]}),
    ((1, 3, 3, 3), (3, 1, 2, 2), {"groups": 3, "strides": [2, 2]}),
]


@pytest.mark.parametrize(("x", "weight", "params"), TRANSPOSED)
def test_transposed_convolutions(x, weight, params):
    outputs = weight[1] * params.get("groups", 1)
    check_op("conv_transpose", {"x": normal(*x), "weight": normal(*weight), "bias": normal(outputs), **params})


REDUCTIONS = [
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_l1_norm", "reduce_l2_norm",
    "reduce_log_sum", "reduce_log_sum_exp", "reduce_sum_square",
]  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("axes", "keep"), [([1], False), ([0, -1], True), (None, False)])
def test_reductions(op, axes, keep):
    x = positive(2, 3, 2) if op == "reduce_log_sum" else apart(2, 3, 2) / 2
    check_op(op, {"x": x, "axes": axes, "keep_dims": keep}, tolerance=1e-5)


@pytest.mark.parametrize("zeros", [(0,), (1, 2), ()])
def test_products_with_zeros(zeros):
    x = normal(2, 3)
    x[0, list(zeros)] = 0
    check_op("reduce_prod", {"x": x, "axes": [1]})


SHAPES = [
    ("reshape", (2, 6), {"shape": [3, 4]}),
    ("reshape", (2, 6), {"shape": [0, -1, 2]}),
    ("transpose", (2, 3, 4), {"perm": [2, 0, 1]}),
    ("transpose", (2, 3, 4), {"perm": [-1, 0, 1]}),
    ("expand_dims", (2, 3), {"axes": [0, -1]}),
    ("squeeze", (1, 3, 1), {"axes": [0]}),
    ("squeeze", (1, 1), {}),
    ("flatten2d", (2, 3, 2), {"axis": 2}),
    ("reverse", (2, 3), {"axes": [1]}),
    ("reverse", (2, 3), {}),
    ("space_to_depth", (1, 2, 4, 4), {"block_size": 2}),
    ("depth_to_space", (1, 8, 2, 2), {"block_size": 2}),
    ("pixel_shuffle", (1, 8, 2, 2), {"upscale_factor": 2}),
    ("pixel_unshuffle", (1, 2, 4, 4), {"downscale_factor": 2}),
    ("space_to_batch", (1, 2, 3, 4), {"block_shape": [2, 2], "paddings": [1, 0, 0, 2]}),
    ("batch_to_space", (4, 2, 2, 3), {"block_shape": [2, 2], "crops": [1, 0, 0, 2]}),
    ("sliding_windows", (2, 7, 2), {"axis": 1, "size": 3, "stride": 2}),
    ("sliding_windows", (2, 5), {"axis": -1, "size": 2}),
]


@pytest.mark.parametrize(("op", "x", "params"), SHAPES)
def test_shapes(op, x, params):
    check_op(op, {"x": normal(*x), **params})


@pytest.mark.parametrize(("axis", "shape"), [(None, ()), (1, (3,)), (-1, (2,))])
@pytest.mark.parametrize("moved", [False, True])
def test_scales(axis, shape, moved):
    numbers = RNG.integers(-9, 9, (2, 3, 2)).astype(np.int8)
    zero = {"zero_point": RNG.integers(-9, 9, shape).astype(np.int8)} if moved else {}
    check_op("dequantize", {"input": numbers, "scale": positive(*shape), "axis": axis, **zero}, wrt=["scale"])


def test_shapes_of_others():
    check_op(
        "reshape_like",
        {"x": normal(2, 6), "ref_tensors": (normal(3, 2), normal(2, 2)), "begins": [0, 0], "ends": [1, 2],
         "end_masks": [False, False]},
        wrt=["x"],
    )  # fmt: skip


def test_every_derivative_is_tried():
    """A new op's, too: its name has to stand in this folder."""
    trees = [ast.parse(path.read_text("utf-8")) for path in Path(__file__).parent.glob("*.py")]
    words = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {spec.name for spec in all_specs() if rules_of(spec)} - words == set()


def test_an_older_op_set():
    check_op("pixel_shuffle", {"x": normal(1, 4, 2, 2), "upscale_factor": 2}, opset="ios15")


def test_joins():
    parts = tuple(normal(2, n, 2) for n in (1, 3, 2))
    check_op("concat", {"values": parts, "axis": 1})
    check_op("concat", {"values": parts, "axis": -2})
    check_op("concat", {"values": tuple(normal(2, 3) for _ in range(3)), "axis": 0, "interleave": True})
    check_op("concat", {"values": tuple(normal() for _ in range(3)), "axis": 0})
    check_op("stack", {"values": tuple(normal(2, 3) for _ in range(3)), "axis": 1})
    check_op("stack", {"values": tuple(normal(2, 3) for _ in range(2)), "axis": -1})


JOINS = [
    ("split", (2, 6), {"num_splits": 3, "axis": 1}),
    ("split", (2, 6), {"split_sizes": [1, 3, 2], "axis": -1}),
    ("tile", (2, 3), {"reps": [3, 2]}),
    ("tile", (2, 1, 3), {"reps": [1, 4, 1]}),
    ("pad", (2, 3), {"pad": [1, 2, 0, 3], "mode": "constant", "constant_val": 2.0}),
    ("pad", (2, 4), {"pad": [-1, 2], "mode": "constant"}),
    ("pad", (2, 3, 4), {"pad": [2, 1, 1, 3], "mode": "reflect"}),
    ("pad", (1, 3, 4), {"pad": [2, 1, 1, 3], "mode": "replicate"}),
    ("pad", (3, 4), {"pad": [2, 1, 1, 3], "mode": "symmetric"}),
    ("slice_by_index", (4, 5), {"begin": [1, 0], "end": [3, 5]}),
    ("slice_by_index", (4, 7), {"begin": [0, 1], "end": [4, 7], "stride": [3, 2]}),
    ("slice_by_index", (4, 7), {"begin": [3, -2], "end": [-5, 1], "stride": [-2, -1]}),
    ("slice_by_index", (4, 5, 3), {"begin": [-3, 0, 2], "end": [0, 0, 0], "begin_mask": [False, True, False],
                                   "end_mask": [False, True, False], "squeeze_mask": [True, False, True]}),
    ("slice_by_index", (4, 5), {"begin": [2, 2], "end": [2, 4]}),
    ("slice_by_size", (4, 5), {"begin": [-3, 1], "size": [2, -1]}),
    ("crop", (1, 2, 5, 6), {"crop_height": [1, 2], "crop_width": [0, 3]}),
    ("resize_nearest_neighbor", (1, 2, 3, 4), {"target_size_height": 6, "target_size_width": 5}),
    ("resize_bilinear", (1, 1, 3, 4), {"target_size_height": 5, "target_size_width": 3}),
    ("resize_bilinear", (1, 1, 3, 4), {"target_size_height": 7, "target_size_width": 4,
                                       "sampling_mode": "UNALIGN_CORNERS"}),
    ("upsample_nearest_neighbor", (1, 2, 2, 3), {"scale_factor_height": 2.0, "scale_factor_width": 3.0}),
    ("upsample_bilinear", (1, 2, 2, 3), {"scale_factor_height": 2.0, "scale_factor_width": 3.0}),
    ("upsample_bilinear", (2, 2, 3), {"scale_factor_height": 2.0, "scale_factor_width": 1.5, "align_corners": False}),
    ("resize", (2, 3, 4), {"shape": [5, 0], "resized_dims": 2, "sampling_mode": "ALIGN_CORNERS"}),
    ("resize", (2, 3, 4), {"shape": [5, 6, 3], "resized_dims": 3, "interpolation_mode": "NEAREST_NEIGHBOR",
                           "sampling_mode": "OFFSET_CORNERS"}),
    ("cumsum", (3, 4), {"axis": 1}),
    ("cumsum", (3, 4), {"axis": 0, "exclusive": True, "reverse": True}),
    ("band_part", (2, 4, 5), {"lower": 1, "upper": 0}),
    ("topk", (2, 5), {"k": 3, "axis": 1}),
    ("topk", (4, 2), {"k": 2, "axis": 0, "ascending": True, "return_indices": False}),
    ("local_response_norm", (1, 5, 2, 2), {"size": 3, "alpha": 0.7}),
    ("local_response_norm", (1, 5, 2), {"size": 4, "alpha": 0.7, "beta": 0.4, "k": 0.6}),
    ("l2_norm", (2, 2, 3, 2), {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "params"), JOINS)
def test_parts(op, x, params):
    check_op(op, {"x": apart(*x), **params}, tolerance=1e-5)


def test_reversed_sequences():
    lengths = np.array([2, 0, 3], np.int32)
    check_op("reverse_sequence", {"x": normal(3, 4, 2), "lengths": lengths, "seq_axis": 1, "batch_axis": 0})


def test_updated_slices():
    index = {"begin": [1, 0], "end": [4, 3], "stride": [2, 1]}
    check_op("slice_update", {"x": normal(4, 3), "update": normal(2, 3), **index})


POOLS = [
    ((2, 2, 5), {"kernel_sizes": [2], "strides": [2], "pad_type": "valid"}),
    ((1, 2, 4, 4), {"kernel_sizes": [2, 2], "strides": [2, 2], "pad_type": "valid"}),
    ((1, 2, 5, 6), {"kernel_sizes": [3, 2], "strides": [2, 3], "pad_type": "same"}),
    ((1, 1, 5, 5), {"kernel_sizes": [3, 3], "strides": [1, 2], "pad_type": "custom", "pad": [1, 1, 0, 2]}),
    ((1, 2, 6, 5), {"kernel_sizes": [3, 2], "strides": [2, 2], "pad_type": "custom", "pad": [1, 1, 0, 0],
                    "ceil_mode": True}),
    ((2, 1, 4, 3), {"kernel_sizes": [4, 3], "pad_type": "valid"}),
    ((1, 1, 3, 4, 3), {"kernel_sizes": [2, 2, 2], "strides": [1, 2, 1], "pad_type": "valid"}),
    ((1, 1, 7, 7), {"kernel_sizes": [2, 2], "strides": [3, 3], "pad_type": "valid"}),
]  # fmt: skip


@pytest.mark.parametrize(("x", "params"), POOLS)
@pytest.mark.parametrize("op", ["max_pool", "avg_pool", "l2_pool"])
def test_pools(op, x, params):
    check_op(op, {"x": apart(*x), **params}, tolerance=1e-5)
    if op == "avg_pool":
        check_op(op, {"x": apart(*x), **params, "exclude_padding_from_average": True})


def test_ties_of_a_pool_go_to_the_first():
    x = np.array([[[[0.0, 3, 3, 1], [3, 3, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]]])
    graph = _pool(x.shape)
    results = graph.evaluate({"x": x, "d_y": np.arange(1.0, 5).reshape(1, 1, 2, 2)})
    assert results["d_x"][0, 0].tolist() == [[0, 1, 2, 0], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 0]]


def _pool(shape):
    b = GraphBuilder()
    x = b.input("x", shape, "fp64")
    b.output(b.max_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"), name="y")
    return hexane.grad(b.graph, of="y", wrt=["x"])


def test_ties_of_a_maximum_are_shared():
    b = GraphBuilder()
    x, y = b.input("x", (3,), "fp64"), b.input("y", (3,), "fp64")
    b.output(b.maximum(x=x, y=y), name="z")
    b.output(b.reduce_max(x=x, axes=[0]), name="top")
    inputs = {"x": np.array([1.0, 2, 2]), "y": np.array([1.0, 1, 3])}
    z = hexane.grad(b.graph, of="z", wrt=["x", "y"]).evaluate({**inputs, "d_z": np.ones(3)})
    assert z["d_x"].tolist() == [0.5, 1, 0] and z["d_y"].tolist() == [0.5, 0, 1]
    top = hexane.grad(b.graph, of="top", wrt=["x"]).evaluate({**inputs, "d_top": np.ones(())})
    assert top["d_x"].tolist() == [0, 0.5, 0.5]


NORMS = [
    ("layer_norm", (3, 4), {"axes": [-1]}, (4,)),
    ("layer_norm", (2, 3, 4), {"axes": [2, 0], "epsilon": 0.1}, (4, 2)),
    ("layer_norm", (2, 3), {}, (2, 3)),
    ("instance_norm", (2, 3, 4), {}, (3,)),
    ("instance_norm", (1, 2, 3, 3), {"epsilon": 0.1}, (2,)),
]


@pytest.mark.parametrize(("op", "x", "params", "vector"), NORMS)
def test_norms(op, x, params, vector):
    check_op(op, {"x": normal(*x), "gamma": normal(*vector), "beta": normal(*vector), **params}, tolerance=1e-5)
    check_op(op, {"x": normal(*x), **params}, tolerance=1e-5)


@pytest.mark.parametrize("x", [(2, 3, 2), (1, 2, 2, 3)])
def test_batch_norm(x):
    c = x[1]
    vectors = {"mean": normal(c), "variance": positive(c), "gamma": normal(c), "beta": normal(c)}
    check_op("batch_norm", {"x": normal(*x), **vectors, "epsilon": 0.1})
    check_op("batch_norm", {"x": normal(*x), "mean": normal(c), "variance": positive(c)})


ATTENTION = [
    ((2, 3, 4), (2, 5, 4), (2, 5, 3)),
    ((1, 2, 3, 4), (1, 1, 3, 4), (1, 2, 3, 2)),
    ((2, 1, 2), (1, 3, 2), (2, 3, 2)),
]


@pytest.mark.parametrize("shapes", ATTENTION)
@pytest.mark.parametrize("masked", ["no", "float", "bool", "row"])
def test_attention(shapes, masked):
    query, key, value = (normal(*shape) for shape in shapes)
    rows, columns = query.shape[-2], key.shape[-2]
    mask = {"no": None, "float": normal(rows, columns), "bool": RNG.random((rows, columns)) < 0.6}.get(masked)
    if masked == "bool":
        mask[0] = False  # a row without a key
    if masked == "row":
        mask = np.zeros((rows, columns))
        mask[0] = -np.inf
    given = {"query": query, "key": key, "value": value}
    names = [*given, "attn_mask"] if masked == "float" else list(given)
    check_op("scaled_dot_product_attention", {**given, "attn_mask": mask}, names)


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 2)),
    ("bhqd,bhkd->bhqk", (2, 1, 3, 2), (2, 1, 2, 2)),
    ("i,j->ij", (2,), (3,)),
    ("ijk,j->i", (2, 3, 2), (3,)),
    ("...ij,jk", (2, 2, 3), (3, 2)),
    ("ij,ij->", (2, 3), (2, 1)),
]


@pytest.mark.parametrize("case", EINSUMS)
def test_einsum(case):
    check_op("einsum", {"values": (normal(*case[1]), normal(*case[2])), "equation": case[0]})


def test_einsum_of_one_and_of_three():
    check_op("einsum", {"values": (normal(2, 3),), "equation": "ij->j"})
    check_op("einsum", {"values": (normal(2, 3),), "equation": "ij->ji"})
    check_op("einsum", {"values": (normal(2, 3), normal(3, 2), normal(2)), "equation": "ij,jk,k->i"})


GATHERS = [
    ("gather", (4, 3), np.array([2, -1, 2], np.int32), {"axis": 0}),
    ("gather", (2, 4), np.array([[1, 1], [3, 0]], np.int32), {"axis": -1}),
    ("gather", (2, 4), np.array(1, np.int32), {"axis": 1}),
    ("gather", (2, 4, 2), np.array([[1, -1, 1], [3, 0, 2]], np.int32), {"axis": 1, "batch_dims": 1}),
    ("gather", (2, 2, 4, 2), np.array([[1, -1, 1], [3, 0, 2]], np.int32), {"axis": 2, "batch_dims": 1}),
    ("gather_along_axis", (3, 4), np.array([[2, -1, 2, 0]], np.int32), {"axis": 0}),
    ("gather_nd", (3, 4), np.array([[2, -1], [0, 0], [2, -1]], np.int32), {}),
    ("gather_nd", (3, 4, 2), np.array([[1], [-1]], np.int32), {}),
    ("gather_nd", (2, 3, 4), np.array([[[1, 2], [-1, 0]], [[1, 2], [1, 2]]], np.int32), {"batch_dims": 1}),
]


@pytest.mark.parametrize(("op", "x", "indices", "params"), GATHERS)
@pytest.mark.parametrize("constant", [True, False])
def test_gathers(op, x, indices, params, constant):
    check_op(op, {"x": normal(*x), "indices": indices.tolist() if constant else indices, **params})


SCATTERS = [
    ("scatter", (4, 3), np.array([2, -1, 2], np.int32), (3, 3), {"axis": 0}),
    ("scatter_along_axis", (3, 4), np.array([[2, -1, 2, 0]] * 2, np.int32), (2, 4), {"axis": 0}),
    ("scatter_nd", (3, 4), np.array([[2, -1], [0, 0], [2, -1]], np.int32), (3,), {}),
]


@pytest.mark.parametrize(("op", "data", "indices", "updates", "params"), SCATTERS)
@pytest.mark.parametrize("mode", ["add", "sub", "update"])
def test_scatters(op, data, indices, updates, params, mode):
    check_op(op, {"data": normal(*data), "indices": indices, "updates": normal(*updates), "mode": mode, **params})


def test_numbers():
    check_op("fill", {"shape": [2, 3], "value": normal()})
    check_op("fill_like", {"ref_tensor": normal(2, 3), "value": normal(1)})
    indices = np.array([[0, 2], [1, 5]], np.int32)
    check_op("one_hot", {"indices": indices, "one_hot_vector_size": 4, "on_value": normal(), "off_value": normal()})


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_empty_axes(shape):
    check_op("mul", {"x": normal(*shape), "y": normal(3)})
    check_op("softmax", {"x": normal(*shape)})
    check_op("linear", {"x": normal(*shape), "weight": normal(2, 3), "bias": normal(2)})
    check_op("reduce_sum", {"x": normal(*shape), "axes": [0]})


def test_sums_of_many_terms(monkeypatch):
    monkeypatch.setattr(_gradients, "LONGEST_SUM", 5)
    graph = check_op("conv", {"x": normal(2, 2, 3, 4), "weight": normal(3, 2, 2, 2), "pad_type": "same"})
    assert sum(op.type == "matmul" for op in graph.ops) == 5, "24 places in parts of 5"
    check_op("linear", {"x": normal(3, 4, 2), "weight": normal(2, 2), "bias": normal(2)})
    check_op("matmul", {"x": normal(3, 4, 2), "y": normal(2, 3), "transpose_y": False})
    check_op("matmul", {"x": normal(3, 4, 2), "y": normal(3, 2), "transpose_y": True})
