"""Networks that random ones were made small to: each ended in a traceback, in other bits, or was refused."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import GraphError, UnsupportedError
from hexane.graph import GraphBuilder


def one_op(kind: str, shape: tuple[int, ...], dtype: str = "fp16", /, **operands: object):
    builder = GraphBuilder()
    builder.output(builder.op(kind, x=builder.input("x", shape, dtype), **operands))
    return builder.graph


def one_op_of_attention():
    builder = GraphBuilder()
    query, key = builder.input("q", (1, 0, 0, 0), "fp32"), builder.input("k", (1, 0, 1, 0), "fp32")
    builder.output(builder.scaled_dot_product_attention(query=query, key=key, value=key))
    return builder.graph


def scalar_as_a_vector():
    builder = GraphBuilder()
    joined = builder.concat(values=(builder.input("x", (), "fp32"),), axis=0)
    builder.output(builder.expand_dims(x=joined, axes=[-1]))
    return builder.graph


def vectors_of_a_palette():
    builder = GraphBuilder(opset="ios18")
    table = (np.arange(64).reshape(4, 4, 4) / 64).astype(np.float32)
    indices = builder.const(np.uint8([0, 3, 2, 1]), "uint8")
    weight = builder.op("constexpr_lut_to_dense", indices=indices, lut=table, vector_axis=-1)
    builder.output(builder.matmul(x=weight, y=builder.input("x", (16,), "fp32")))
    return builder.graph


ONES = np.ones((1, 1), np.float32)
RUN = {
    "power of a scalar by a matrix of one number": one_op("pow", (), "fp32", y=ONES / 2),
    "weights of integers": one_op("matmul", (2, 3), y=np.arange(12, dtype=np.int8).reshape(3, 4)),
    "weights of fp64": one_op("matmul", (2, 3), y=np.arange(12.0).reshape(3, 4) / 3),
    "a hard sigmoid that is flat": one_op("sigmoid_hard", (2, 3), alpha=0.0, beta=0.25),
    "a hard sigmoid that falls": one_op("sigmoid_hard", (2, 3), alpha=-0.5, beta=0.25),
    "windows along a row": one_op("sliding_windows", (2, 5, 40), axis=2, size=3),
    "windows of one number": one_op("sliding_windows", (1,), "fp32", axis=0, size=1),
    "a local norm whose power is next to nothing": one_op("local_response_norm", (1, 4, 2, 2), size=3, beta=1e-5),
    "a norm of fp8": one_op("instance_norm", (1, 1, 1, 1, 1), "fp8e4m3fn", gamma=np.ones(1, np.float32)),
    "a pad by its other name": one_op("pad", (3, 4), pad=[1, 2], mode="reflection"),
    "a pad that repeats the edge in its mirror image": one_op("pad", (1, 2, 3, 4), pad=[1, 2, 2, 1], mode="symmetric"),
    "a norm of a scalar": one_op("layer_norm", ()),
    "a scalar joined to nothing": scalar_as_a_vector(),
    "a vector of a palette of vectors": vectors_of_a_palette(),
    "attention to nothing": one_op_of_attention(),
    "a pool of no channels": one_op("avg_pool", (2, 0, 1, 2), kernel_sizes=[1, 1], pad_type="valid"),
    "a tile of nothing": one_op("tile", (1, 2, 2, 2), reps=[2, 1, 1, 0]),
    "a threshold between two integers": one_op("threshold", (1, 1, 2, 2), "uint8", alpha=0.5),
    "a norm whose axes stand in another order": one_op(
        "layer_norm", (3, 2, 4), axes=[2, 0, 1], beta=np.arange(24, dtype=np.float16).reshape(4, 3, 2) / 8
    ),
    "a pad of nothing": one_op("pad", (1,), pad=[]),
    "an average whose last window lies in the padding": one_op(
        "avg_pool",
        (1, 1, 2, 1),
        kernel_sizes=[2, 1],
        pad_type="custom",
        pad=[1, 2, 1, 1],
        ceil_mode=True,
        exclude_padding_from_average=True,
    ),
    "an average of bf16 that counts no padding": one_op(
        "avg_pool", (1, 1, 4, 4), "bf16", kernel_sizes=[3, 3], pad_type="same", exclude_padding_from_average=True
    ),
    "slopes of bf16": one_op("prelu", (1, 2, 1), "bf16", alpha=np.float16([0.5, -2])),
    "softplus of bf16": one_op(
        "softplus_parametric", (1, 2, 1), "bf16", alpha=np.ones(2, np.float16), beta=np.ones(2, np.float16)
    ),
}


@pytest.mark.parametrize("name", RUN)
def test_both_levels_agree(name):
    graph = RUN[name]
    given = {n: np.random.default_rng(1).integers(0, 3, t.shape).astype(t.carrier) for n, t in graph.inputs.items()}
    wanted = graph.evaluate(given)
    for chip in ("M1", "M4"):
        program = hexane.compile(graph, chip)
        tasks, bits = program.run(given), program.run(given, level="graph")
        for port, array in bits.items():
            np.testing.assert_array_equal(tasks[port], array, strict=True)
            np.testing.assert_allclose(array.astype(float), wanted[port].astype(float), rtol=0.02, atol=0.02)
        assert hexane.estimate(graph, chip).latency_us >= 0


def test_a_product_of_vectors_is_timed():
    builder = GraphBuilder()
    builder.output(builder.matmul(x=builder.input("x", (7,), "fp16"), y=builder.input("y", (7,), "fp16")))
    assert hexane.estimate(builder.graph, "M4").latency_us > 0


WRITTEN = {
    "an empty slice": one_op("slice_by_index", (2, 2), begin=[1, 1], end=[1, 2], squeeze_mask=[False, True]),
    "a product of vectors, turned": one_op("matmul", (3,), y=np.ones(3, np.float16), transpose_x=True),
    "slopes of another dtype": one_op("prelu", (1, 1, 2, 2), alpha=np.ones(1, np.float32)),
    "a turned scalar": one_op("transpose", (), perm=[]),
    "a norm over no axes": one_op("reduce_l2_norm", (2, 1), "fp32", axes=[]),
    "a sum over no axes that keeps them": one_op("reduce_log_sum", (2, 1), "fp32", axes=[], keep_dims=True),
    "a norm with a scale of another dtype": one_op(
        "layer_norm", (2, 3), "fp32", axes=[1], gamma=np.ones(3, np.float16)
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_onnx_gives_the_same(name):
    runtime = pytest.importorskip("onnxruntime")
    from hexane.formats.onnx.writer import to_model

    graph = WRITTEN[name]
    given = {n: np.ones(t.shape, t.carrier) for n, t in graph.inputs.items()}
    session = runtime.InferenceSession(to_model(graph)[0].SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(graph.evaluate(given).values(), session.run(None, given), strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_four_bits_saturate_after_reading(tmp_path):
    pytest.importorskip("onnx")
    builder = GraphBuilder()
    x = builder.input("x", (1, 4), "fp32")
    builder.output(builder.quantize(input=x, scale=np.full(4, 0.5, np.float32), axis=1, output_dtype="int4"))
    builder.graph.save(tmp_path / "net.onnx")
    (found,) = hexane.load(tmp_path / "net.onnx").evaluate({"x": np.array([[-100, -1, 1, 50]], np.float32)}).values()
    np.testing.assert_array_equal(found, [[-8, -2, 2, 7]])


NOT_WRITTEN = {
    "a norm of a scalar": one_op("layer_norm", (), "fp32"),
    "an even window": one_op("local_response_norm", (1, 4, 2, 2), size=4),
    "a number outside its dtype": one_op("threshold", (2,), "uint8", alpha=-1.0),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_onnx_is_refused_with_a_reason(name):
    pytest.importorskip("onnx")
    from hexane.formats.onnx.writer import to_model

    with pytest.raises(UnsupportedError):
        to_model(NOT_WRITTEN[name])


WINDOWS = dict(kernel_sizes=[2, 2], strides=[1, 1], pad=[0, 0, 0, 0], dilations=[1, 1])
REFUSED = {
    "pool without strides": ("onnx.MaxPool", (1, 1, 4, 4), WINDOWS | {"strides": [1]}),
    "pool with stride 0": ("onnx.LpPool", (1, 1, 4, 4), WINDOWS | {"strides": [0, 1]}),
    "an axis of a scalar": ("onnx.Compress", (), {"condition": np.ones(1, bool), "axis": 0}),
    "an axis of a resized scalar": ("onnx.Resize", (), {"scales": [2.0], "axes": [0]}),
    "pieces of a scalar": ("onnx.Split", (), {"split": [1], "output_sizes": [1]}),
    "blocks of nothing": ("onnx.Col2Im", (1, 4, 4), WINDOWS | {"image_shape": [2, 2], "block_shape": [0, 2]}),
}
REFUSED["blocks of nothing"][2].pop("kernel_sizes")


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_rule_says_what_is_wrong(name):
    kind, shape, operands = REFUSED[name]
    with pytest.raises(GraphError):
        one_op(kind, shape, "fp32", **operands)


def test_type_rules_of_other_operands():
    builder = GraphBuilder()
    x, flat = builder.input("x", (2, 1, 3), "fp16"), builder.input("h", (), "fp16")
    with pytest.raises(GraphError):
        builder.op("rnn", x=x, initial_h=flat, weight_ih=flat, weight_hh=flat)
    with pytest.raises(GraphError):
        builder.op("onnx.STFT", signal=x, frame_step=1)
    with pytest.raises(GraphError):
        builder.op("tensor_to_tensor_buffer", input=x, interleave_factors=[1, 1, 1], strides=[-1, 1, 1])
    with pytest.raises(GraphError):
        builder.op("conv_transpose", x=x, weight=np.ones((1, 1, 2), np.float16), output_shape=[])


@pytest.mark.parametrize(("extent", "form"), [(3, {"pad_type": "custom", "pad": [3, 0]}), (0, {"strides": [2]})])
def test_an_output_shape_beyond_what_padding_leaves_is_zeros_and_can_be_checked(extent, form):
    """The gradient of a convolution whose windows meet borders alone has such a shape."""
    builder = GraphBuilder()
    x = builder.input("x", (1, 1, extent), "fp16")
    builder.output(builder.conv_transpose(x=x, weight=np.ones((1, 1, 1), np.float16), output_shape=[1], **form))
    assert not any(value.any() for value in builder.graph.evaluate({"x": np.ones((1, 1, extent), np.float16)}).values())
    assert any(remark.rule == "N17" for row in hexane.check(builder.graph, "M1").rows for remark in row.remarks)


def test_a_function_of_a_scalar_that_was_a_map():
    builder = GraphBuilder()
    x = builder.input("x", (1, 1, 1, 1), "fp16")
    builder.output(builder.relu(x=builder.reduce_log_sum_exp(x=x), name="y"))
    program, values = hexane.compile(builder.graph, "M2 Max"), {"x": np.full((1, 1, 1, 1), 0.5, np.float16)}
    np.testing.assert_array_equal(program.run(values)["y"], program.run(values, level="graph")["y"], strict=True)


@pytest.mark.parametrize("strides", [[1], [2], [3]])
@pytest.mark.parametrize("dialect", ["default", "apple"])
def test_a_maximum_of_one_number_loses_the_sign_of_zero(strides, dialect):
    """As any maximum of the engine does (docs/reference/numerics.md 7.1), moves by strides or not."""
    graph = one_op("max_pool", (3, 5, 8), kernel_sizes=[1], strides=strides, pad_type="valid")
    values = np.random.default_rng(0).choice(np.float16([0.0, -0.0, -1.0, np.nan]), (3, 5, 8))
    taken = values[:, :, :: strides[0]]
    wanted = np.where(np.isnan(taken), np.inf, taken).astype(np.float16) + np.float16(0)
    program = hexane.compile(graph, "M2 Ultra", dialect=dialect)
    assert all(segment.kind == "engine" for segment in program.segments)
    for level in ("engine", "graph"):
        with pytest.warns(RuntimeWarning, match="NaN"):
            (bits,) = program.run({"x": values}, level=level).values()
        np.testing.assert_array_equal(bits.view(np.uint16), wanted.view(np.uint16))


DTYPE_WORDS = {
    "onnx.Window": dict(size=np.int32(3), kind="hann", output_dtype="?", output_shape=[3]),
    "shape": dict(x=np.zeros(2, np.float32), output_dtype="?"),
    "onnx.BitCast": dict(x=np.zeros(2, np.float32), source="?", dtype="int32"),
}


@pytest.mark.parametrize("kind", DTYPE_WORDS)
def test_a_dtype_that_there_is_not(kind):
    with pytest.raises(GraphError, match=r"dtype|source"):
        GraphBuilder(opset="ios18").op(kind, **DTYPE_WORDS[kind])


@pytest.mark.filterwarnings("error")
def test_a_mean_whose_copy_fills_its_half_of_l2():
    graph = one_op("reduce_mean", (1, 8192, 8, 8), axes=[1], keep_dims=True)
    program = hexane.compile(graph, "M1")
    assert [segment.kind for segment in program.segments] == ["engine"]
    values = np.random.default_rng(0).integers(0, 3, (1, 8192, 8, 8)).astype(np.float16)
    wanted = values.astype(np.float64).mean(1, keepdims=True)
    for level in ("engine", "graph"):
        (found,) = program.run({"x": values}, level=level).values()
        np.testing.assert_allclose(found, wanted, rtol=2e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_product_whose_row_leaves_no_room_for_its_result_is_no_defect(chip):
    builder = GraphBuilder()
    x, y = builder.input("x", (16, 8192), "fp16"), builder.input("y", (8192, 256), "fp16")
    builder.output(builder.matmul(x=x, y=y))
    (segment,) = hexane.compile(builder.graph, chip).segments
    assert segment.kind == "engine" or "does not fit" in segment.reason or "step through" in segment.reason
