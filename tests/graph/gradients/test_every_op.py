"""Every derivative against differences in float64, with shapes and parameters that could go wrong."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graph.gradients.differences import check_op

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


REDUCTIONS = ["sum", "mean", "max", "min", "prod", "l1_norm", "l2_norm", "log_sum", "log_sum_exp", "sum_square"]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("axes", "keep"), [([1], False), ([0, -1], True), (None, False)])
def test_reductions(op, axes, keep):
    x = positive(2, 3, 2) if op == "log_sum" else apart(2, 3, 2) / 2
    check_op(f"reduce_{op}", {"x": x, "axes": axes, "keep_dims": keep}, tolerance=1e-5)


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


def test_an_older_op_set():
    check_op("pixel_shuffle", {"x": normal(1, 4, 2, 2), "upscale_factor": 2}, opset="ios15")
