"""Graphs written to ONNX: onnxruntime computes what the reference computes, and reading gives the same values again."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError
from hexane.formats.onnx.writer import to_model
from hexane.formats.onnx.writing import RULES
from hexane.graph import GraphBuilder

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _same_numbers():
    """Each test draws the same numbers, whichever ran before it in this process."""
    global RNG
    RNG = np.random.default_rng(4)


def data(*shape, dtype=np.float32, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(dtype)


def ran(graph, given):
    """The outputs of onnxruntime, its own rewriting switched off: it rounds weights of 8 bits once more."""
    model, _ = to_model(graph)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    return session.run(None, dict(zip(names, given.values())))


def agrees(graph, given, tolerance=2e-6):
    for found, wanted in zip(ran(graph, given), graph.evaluate(given).values(), strict=True):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        scale = max(float(np.abs(wanted.astype(np.float64)).max(initial=0.0)), 1e-6)
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=tolerance * scale)


MAP, MATRIX = (2, 6, 8, 10), (3, 4, 5)
ONE = {
    **{name: {} for name in ("relu sigmoid tanh exp abs sign floor ceil round sin cos tan sinh cosh atan erf").split()},
    **{name: {} for name in ("softplus softsign identity square exp2 silu relu6 l2_norm").split()},
    **{name: {"low": 0.1} for name in ("sqrt rsqrt log inverse").split()},
    **{name: {"low": -0.9, "high": 0.9} for name in ("asin", "acos", "atanh")},
}
WITH = {
    "leaky_relu": {"alpha": 0.1}, "elu": {"alpha": 0.7}, "sigmoid_hard": {"alpha": 0.2, "beta": 0.4},
    "thresholded_relu": {"alpha": 0.5}, "linear_activation": {"alpha": 1.5, "beta": -0.5},
    "scaled_tanh": {"alpha": 1.5, "beta": 0.5}, "clamped_relu": {"alpha": 0.2, "beta": 1.0},
    "threshold": {"alpha": 0.25}, "clip": {"alpha": -0.5, "beta": 1.0}, "softmax": {"axis": 1},
    "reshape": {"shape": [12, 80]}, "squeeze": {}, "expand_dims": {"axes": [1]}, "flatten2d": {"axis": 2},
    "transpose": {"perm": [0, 2, 3, 1]}, "tile": {"reps": [1, 2, 1, 3]}, "cumsum": {"axis": 2, "reverse": True},
    "slice_by_size": {"begin": [0, 1, 2, 0], "size": [2, 3, 4, -1]},
    "slice_by_index": {"begin": [0, 4, 0, 9], "end": [1, 0, 8, -11], "stride": [1, -2, 3, -1],
                       "squeeze_mask": [True, False, False, False]},
    "pad": {"pad": [1, 2, 0, 3], "mode": "constant", "constant_val": 0.5},
    "reduce_argmax": {"axis": 1, "keep_dims": True}, "reduce_argmin": {"axis": -1},
    "max_pool": {"kernel_sizes": [3, 2], "strides": [2, 2], "pad_type": "same"},
    "avg_pool": {"kernel_sizes": [3, 3], "strides": [2, 1], "pad_type": "custom", "pad": [1, 0, 1, 2]},
    "upsample_nearest_neighbor": {"scale_factor_height": 2.0, "scale_factor_width": 3.0},
    "resize_nearest_neighbor": {"target_size_height": 12, "target_size_width": 15},
    "upsample_bilinear": {"scale_factor_height": 2.0, "scale_factor_width": 2.0, "align_corners": True},
    "resize_bilinear": {"target_size_height": 12, "target_size_width": 5, "sampling_mode": "UNALIGN_CORNERS"},
    "local_response_norm": {"size": 3, "alpha": 1e-2, "beta": 0.75, "k": 1.0}, "cast": {"dtype": "int32"},
    **{name: {"axes": [1, 3], "keep_dims": keep} for keep, name in enumerate(
        "reduce_mean reduce_sum reduce_max reduce_min reduce_l1_norm reduce_l2_norm reduce_sum_square".split())},
    "reduce_log_sum_exp": {"axes": [2]}, "reduce_prod": {"axes": [1]},
}  # fmt: skip
TWO = "add sub mul real_div minimum maximum floor_div mod equal not_equal greater greater_equal less less_equal".split()


@pytest.mark.parametrize("name", ONE)
def test_one_operand(name):
    b = GraphBuilder()
    b.output(b.op(name, x=b.input("x", MAP, "fp32")))
    agrees(b.graph, {"x": data(*MAP, **ONE[name])})


@pytest.mark.parametrize("name", WITH)
def test_with_parameters(name):
    b = GraphBuilder()
    shape = (1, *MAP[1:]) if name == "squeeze" else MAP
    b.output(b.op(name, x=b.input("x", shape, "fp32"), **WITH[name]))
    agrees(b.graph, {"x": data(*shape)})


@pytest.mark.parametrize("name", [*TWO, "pow"])
def test_two_operands(name):
    b = GraphBuilder()
    x, y = b.input("x", MAP, "fp32"), b.input("y", (6, 1, 10), "fp32")
    b.output(b.op(name, x=x, y=y))
    given = {"x": data(*MAP, low=0.25), "y": data(6, 1, 10, low=0.5)}
    agrees(b.graph, given)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("mode", ["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])
def test_gelu(mode, dtype):
    b = GraphBuilder()
    b.output(b.gelu(x=b.input("x", MAP, dtype), mode=mode))
    agrees(
        b.graph,
        {"x": data(*MAP, dtype=np.float16 if dtype == "fp16" else np.float32)},
        2e-3 if dtype == "fp16" else 2e-6,
    )


@pytest.mark.parametrize(
    "more",
    [
        {"pad_type": "same", "strides": [2, 1]},
        {"pad_type": "same_lower", "strides": [2, 2]},
        {"pad_type": "custom", "pad": [1, 0, 2, 1], "dilations": [2, 1]},
        {"pad_type": "custom", "pad": [-1, 1, 0, -2]},
        {"groups": 3},
    ],
    ids=str,
)
def test_convolutions(more):
    b = GraphBuilder()
    x = b.input("x", MAP, "fp32")
    b.output(b.conv(x=x, weight=data(9, 6 // more.get("groups", 1), 3, 3), bias=data(9), **more))
    agrees(b.graph, {"x": data(*MAP)})


@pytest.mark.parametrize(
    "more",
    [{}, {"pad_type": "same", "strides": [2, 2]}, {"pad_type": "custom", "pad": [1, 0, 1, 1], "groups": 2}],
    ids=str,
)
def test_transposed_convolutions(more):
    b = GraphBuilder()
    b.output(
        b.conv_transpose(
            x=b.input("x", MAP, "fp32"), weight=data(6, 4, 3, 3), bias=data(4 * more.get("groups", 1)), **more
        )
    )
    agrees(b.graph, {"x": data(*MAP)})


def products(b):
    x = b.input("x", MATRIX, "fp32")
    y = b.linear(x=x, weight=data(7, 5), bias=data(7))
    z = b.matmul(x=y, y=data(7, 6), transpose_y=False)
    s = b.matmul(x=z, y=z, transpose_x=True)
    flat = b.linear(x=b.reshape(x=x, shape=[12, 5]), weight=data(7, 5))
    return [s, flat, b.einsum(values=(x, x), equation="bij,bkj->bik")], {"x": data(*MATRIX)}


def norms(b):
    x, y = b.input("x", MAP, "fp32"), b.input("y", MATRIX, "fp32")
    c = MAP[1]
    batch = b.batch_norm(x=x, mean=data(c), variance=data(c, low=0.5), gamma=data(c), beta=data(c))
    one = b.instance_norm(x=batch, gamma=data(c), beta=data(c))
    last = b.layer_norm(x=y, axes=[-1], gamma=data(5), beta=data(5))
    channels = b.layer_norm(x=x, axes=[1], gamma=data(c), beta=data(c))
    return [one, last, channels, b.layer_norm(x=x, axes=[2, 3])], {"x": data(*MAP), "y": data(*MATRIX)}


def of_another_dtype(b):
    x, c = b.input("x", MAP, "fp32"), MAP[1]
    halves = [data(n, dtype=np.float16) for n in (c, c, MAP[3], MAP[3], c)]
    channels = b.layer_norm(x=x, axes=[1], gamma=halves[0], beta=halves[1])
    last = b.layer_norm(x=x, axes=[-1], gamma=halves[2], beta=halves[3])
    return [channels, last, b.prelu(x=x, alpha=halves[4])], {"x": data(*MAP)}


def moves(b):
    x = b.input("x", MAP, "fp32")
    left, right = b.split(x=x, num_splits=2, axis=1)
    stacked = b.stack(values=(left, right), axis=2)
    woven = b.concat(values=(left, right), axis=1, interleave=True)
    shuffled = b.pixel_shuffle(x=b.concat(values=(x, left, right), axis=1), upscale_factor=2)
    deep = b.space_to_depth(x=x, block_size=2)
    back = b.depth_to_space(x=deep, block_size=2)
    picked = b.gather(x=x, indices=np.array([[3, 0], [1, 1]], np.int32), axis=2)
    along = b.gather_along_axis(x=x, indices=np.zeros((2, 6, 8, 10), np.int32), axis=3)
    places = b.gather_nd(x=x, indices=np.array([[[1, -1], [0, 2]], [[0, 0], [1, 5]]], np.int32))
    within = b.op("gather_nd", opset="ios16", x=x, indices=np.array([[3, -1], [2, 0]], np.int32), batch_dims=1)
    padded = b.pad(x=x, pad=[1, 1, 2, 0], mode="reflect")
    edge = b.pad(x=x, pad=[1, 1, 2, 0], mode="replicate")
    return [stacked, woven, shuffled, deep, back, picked, along, places, within, padded, edge], {"x": data(*MAP)}


def choices(b):
    x, y = b.input("x", MAP, "fp32"), b.input("y", MAP, "fp32")
    above, below = b.greater(x=x, y=y), b.less(x=x, y=b.const(np.float32(0)))
    both = b.logical_and(x=above, y=below)
    other = b.logical_xor(x=b.logical_or(x=above, y=below), y=b.logical_not(x=both))
    values, places = b.topk(x=x, k=3, axis=1)
    filled = b.fill(shape=[2, 3], value=np.float32(1.5))
    slope = b.prelu(x=x, alpha=data(6))
    logs = b.reduce_log_sum(x=b.abs(x=x), axes=[1])
    return [b.select(cond=both, a=x, b=y), other, values, places, filled, slope, logs], {
        "x": data(*MAP),
        "y": data(*MAP),
    }


def attention(b):
    q, k, v = (b.input(name, (2, 3, 7, 8), "fp32") for name in "qkv")
    mask = data(7, 7)
    made = b.op("scaled_dot_product_attention", opset="ios18", query=q, key=k, value=v, attn_mask=mask)
    return [made], {name: data(2, 3, 7, 8) for name in "qkv"}


def quantised(b):
    x = b.input("x", MAP, "fp32")
    q = b.quantize(input=x, scale=np.float32(0.02), zero_point=np.uint8(7), output_dtype="uint8")
    rows = b.quantize(input=x, scale=data(6, low=0.01, high=0.05), axis=1, output_dtype="int8")
    d = b.dequantize(input=q, scale=np.float32(0.02), zero_point=np.uint8(7))
    return [d, b.dequantize(input=rows, scale=data(6, low=0.01), axis=1)], {"x": data(*MAP)}


@pytest.mark.parametrize("build", [products, norms, of_another_dtype, moves, choices, attention, quantised])
def test_several(build):
    b = GraphBuilder()
    outputs, given = build(b)
    for value in outputs:
        b.output(value)
    agrees(b.graph, given)


def test_every_rule_is_tested():
    tried = {*ONE, *WITH, *TWO, "pow", "gelu", "conv", "conv_transpose", "linear", "matmul", "einsum", "batch_norm",
             "instance_norm", "layer_norm", "split", "stack", "concat", "pixel_shuffle", "space_to_depth",
             "depth_to_space", "gather", "gather_along_axis", "gather_nd", "select", "logical_and", "logical_or",
             "logical_xor", "logical_not", "topk", "fill", "prelu", "reduce_log_sum", "scaled_dot_product_attention",
             "quantize", "dequantize"}  # fmt: skip
    assert {name for name in RULES if not name.startswith("constexpr_")} == tried


def network():
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (1, 32, 8, 8), "fp32")
    y = b.relu(x=b.conv(x=x, weight=rng.normal(0, 0.1, (32, 32, 3, 3)).astype(np.float32), pad_type="same"))
    y = b.linear(x=b.reshape(x=y, shape=[1, 4, 512]), weight=rng.normal(0, 0.05, (64, 512)).astype(np.float32))
    b.output(b.matmul(x=y, y=rng.normal(0, 0.1, (64, 48)).astype(np.float32)))
    return b.graph


GIVEN = {"x": np.random.default_rng(1).normal(0, 1, (1, 32, 8, 8)).astype(np.float32)}
SHARES = {
    "palette4": 0.14, "palette8": 0.28, "palette2": 0.14, "palette6": 0.28, "palette4:16": 0.28,
    "palette4:scales": 0.14,
    "int8": 0.27, "int8:tensor": 0.27, "int4": 0.14, "int4:32": 0.2,
}  # fmt: skip


@pytest.mark.parametrize("form", [*SHARES, "sparse:0.5", "sparse:0.5+palette4"])
def test_compressed_weights(form, tmp_path):
    """Small in the file where ONNX has a form for them; the same bits again; said where not."""
    graph = hexane.compress(network(), form)
    agrees(graph, GIVEN)
    _, notes = to_model(graph)
    graph.save(tmp_path / "m.onnx")
    read = hexane.load(tmp_path / "m.onnx")
    wanted, found = (next(iter(g.evaluate(GIVEN).values())) for g in (graph, read))
    assert wanted.tobytes() == found.tobytes()
    plain = 4 * (32 * 32 * 9 + 64 * 512 + 64 * 48)
    packed = sum(op.type.startswith("constexpr_") for op in read.main.ops)
    if form in SHARES:
        assert (tmp_path / "m.onnx").stat().st_size < SHARES[form] * plain
        assert packed == 3
        assert bool(notes) == (form in ("palette2", "palette6"))
    else:
        assert any("dense" in note for note in notes)
        assert packed == 0


@pytest.mark.parametrize("groups", [(1,), (2,), (3, 1), (1, 2), (2, 2), (1, 1, 2)])
@pytest.mark.parametrize("vector", [1, 2])
def test_tables_of_every_rank(groups, vector):
    """A table for each group of an axis, of numbers or of vectors along the first."""
    rank = len(groups)
    indices = RNG.integers(0, 4, (6, 4, 2)[:rank]).astype(np.uint8)
    tables = data(*groups, 4, vector)
    b = GraphBuilder()
    axis = {"vector_axis": 0} if vector > 1 else {}
    weight = b.op("constexpr_lut_to_dense", indices=b.const(indices, "uint2"), lut=tables, **axis)
    b.output(b.mul(x=b.input("x", weight.shape, "fp32"), y=weight))
    agrees(b.graph, {"x": data(*weight.shape)}, 0)


def test_what_onnx_does_not_say(tmp_path):
    b = GraphBuilder()
    x = b.input("x", (1, 4, 6), "fp32")
    b.output(b.op("sliding_windows", x=x, axis=2, size=3, stride=1))
    with pytest.raises(UnsupportedError, match="no rule for sliding_windows"):
        b.graph.save(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_outputs_that_are_inputs_or_constants():
    b = GraphBuilder()
    x = b.input("x", (2, 3), "fp32")
    b.output(x)
    b.output(b.const(np.arange(3, dtype=np.float32)))
    agrees(b.graph, {"x": data(2, 3)})
