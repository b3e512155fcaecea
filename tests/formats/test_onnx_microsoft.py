"""Ops of ``com.microsoft`` against onnxruntime, which defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test draws from the start of the sequence, in whatever order and process the tests run."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(0))


def f(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    """Weights of 7 bits: without VNNI onnxruntime adds pairs of products in 16 bits, which saturate."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def model_of(op: str, inputs: list, outputs: int, live: int, domain: str, attributes: dict) -> tuple[bytes, dict]:
    """A model of one node; the first ``live`` inputs are given at run time, the rest are constants."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(inputs)]
    given = [(name, array) for name, array in zip(names, inputs) if array is not None]
    results = [f"o{index}" for index in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)

    def info(name: str, array: np.ndarray) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [node],
        "g",
        [info(name, array) for name, array in given[:live]],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in given[live:]],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model.SerializeToString(), dict(given[:live])


def check(
    op: str,
    inputs: list,
    *,
    outputs: int = 1,
    live: int = 1,
    exact: bool = False,
    domain: str = "com.microsoft",
    **attributes: Any,
) -> None:
    from hexane.formats.onnx import load

    model, given = model_of(op, inputs, outputs, live, domain, attributes)
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, given)
    made = list(load(model).evaluate(given).values())
    assert len(made) == len(wanted)
    for ours, theirs in zip(made, wanted):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if exact:
            # One step of the quantised grid: onnxruntime rounds fused products in another order.
            assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
            assert (ours != theirs).mean() < 0.02
        else:
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
def test_fused_conv(activation: str) -> None:
    params = {"LeakyRelu": [0.1], "Clip": [-0.5, 0.5], "HardSigmoid": [0.3, 0.4]}.get(activation)
    extra = {"activation_params": params} if params else {}
    check("FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)], activation=activation, pads=[1, 1, 1, 1], **extra)


def test_fused_matmul() -> None:
    check("FusedMatMul", [f(2, 5, 3), f(2, 4, 5)], live=2, transA=1, transB=1, alpha=0.5)
    check("FusedMatMul", [f(2, 3, 5), f(5, 4)], alpha=2.0)


@pytest.mark.parametrize("op", ["Gelu", "QuickGelu", "FastGelu", "BiasGelu"])
def test_gelu(op: str) -> None:
    check(op, [f(3, 8)] if op in ("Gelu", "QuickGelu") else [f(3, 8), f(8)])


def test_normalisations() -> None:
    x, skip, gamma, beta, bias = f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)
    check("SkipLayerNormalization", [x, skip, gamma, beta, bias], live=2, epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma], live=2, epsilon=1e-5)
    check("SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-5)
    ids, segments = RNG.integers(0, 9, (2, 3)).astype(np.int32), RNG.integers(0, 2, (2, 3)).astype(np.int32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    tables = [f(9, 8), f(5, 8), f(2, 8), gamma, beta]
    check("EmbedLayerNormalization", [ids, segments, *tables, mask], live=2, outputs=2, epsilon=1e-5)


@pytest.mark.parametrize("mask", ["none", "raw", "lengths", "full", "causal"])
def test_attention(mask: str) -> None:
    given = {
        "raw": np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32),
        "lengths": np.array([4, 2], np.int32),
        "full": (RNG.random((2, 5, 5)) > 0.3).astype(np.int32),
    }.get(mask)
    check("Attention", [f(2, 5, 8), f(8, 24), f(24), given], num_heads=2, unidirectional=int(mask == "causal"))


def test_multi_head_attention() -> None:
    q, k, v = f(2, 4, 8), f(2, 6, 8), f(2, 6, 8)
    check("MultiHeadAttention", [q, k, v], live=3, num_heads=2)
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    check("MultiHeadAttention", [q, k, v, f(24), mask], live=3, num_heads=2)
    check("MultiHeadAttention", [q, k, v, None, None, f(1, 2, 4, 6)], live=3, num_heads=2, scale=0.3)
    past = [f(2, 2, 3, 4), f(2, 2, 3, 4)]
    check("MultiHeadAttention", [q, k, v, None, None, None, *past], outputs=3, live=5, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    positions = np.array([[0, 1, 2], [3, 4, 5]], np.int64)
    angle = f(7, 4)
    tables = [np.cos(angle), np.sin(angle)]
    check("RotaryEmbedding", [f(2, 3, 16), positions, *tables], live=2, interleaved=interleaved)
    check("RotaryEmbedding", [f(2, 2, 3, 8), positions, *tables], live=2, interleaved=interleaved)


def test_quantised_ops() -> None:
    a, b, s, z = u8(2, 3, 4, 4), u8(2, 3, 4, 4), np.float32(0.05), np.uint8(120)
    s2, z2, s3, z3 = np.float32(0.03), np.uint8(100), np.float32(0.09), np.uint8(128)
    scalars = [np.array(v) for v in (s, z, s2, z2, s3, z3)]
    for op in ("QLinearAdd", "QLinearMul"):
        check(op, [a, *scalars[:2], b, *scalars[2:4], *scalars[4:]], exact=True)
    check("QLinearSigmoid", [a, *scalars[:2], np.array(np.float32(1 / 256)), np.array(np.uint8(0))], exact=True)
    check("QLinearLeakyRelu", [a, *scalars[:2], *scalars[2:4]], alpha=0.1, exact=True)
    check("QLinearGlobalAveragePool", [a, *scalars[:2], *scalars[2:4]], exact=True)
    check("QLinearConcat", [*scalars[4:], a, *scalars[:2], b, *scalars[2:4]], axis=1, live=0, exact=True)
    q = [u8(3, 6), np.array(s), np.array(z), i8(6, 5), np.array(s2), np.array(np.int8(3))]
    check(
        "QGemm",
        [*q, RNG.integers(-99, 99, 5).astype(np.int32), np.array(np.float32(1.5)), np.array(np.uint8(90))],
        exact=True,
    )
    check("QGemm", q)
    check(
        "MatMulIntegerToFloat", [u8(3, 6), i8(6, 5), np.array(s), np.array(s2), np.array(z), np.array(np.int8(2)), f(5)]
    )
    check("DynamicQuantizeMatMul", [f(3, 6), i8(6, 5), np.array(s2), np.array(np.int8(2))])


def test_quantised_product_of_all_values() -> None:
    """Weights of 8 bits against NumPy's whole numbers."""
    from hexane.formats.onnx import load

    a, b = u8(3, 600), RNG.integers(-128, 128, (600, 5)).astype(np.int8)
    scales, zeros, bias = (0.05, 0.03), (120, 3), RNG.integers(-99, 99, 5)
    numbers = [np.array(np.float32(s)) for s in scales]
    inputs = [a, numbers[0], np.array(np.uint8(zeros[0])), b, numbers[1], np.array(np.int8(zeros[1]))]
    model, given = model_of("QGemm", [*inputs, bias.astype(np.int32)], 1, 1, "com.microsoft", {})
    (computed,) = load(model).evaluate(given).values()
    sums = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1]) + bias
    np.testing.assert_allclose(computed, sums * np.prod(np.float32(scales), dtype=np.float64), rtol=2e-6)


@pytest.mark.parametrize("zero_points", [False, True])
def test_matmul_nbits(zero_points: bool) -> None:
    columns, rows, block = 6, 40, 16
    blocks = -(-rows // block)
    packed = u8(columns, blocks, block // 2)
    scales = np.abs(f(columns * blocks, scale=0.1))
    zeros = u8(columns * -(-blocks // 2)) if zero_points else None
    check("MatMulNBits", [f(3, rows), packed, scales, zeros], K=rows, N=columns, bits=4, block_size=block)


@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_nbits_keeps_its_packed_weights(bits: int) -> None:
    from hexane.formats.onnx import load

    rows, columns, block = 64, 48, 32
    blocks = rows // block
    packed = u8(columns, blocks, block * bits // 8)
    scales = np.abs(f(columns * blocks, scale=0.1))
    given = [f(3, rows), packed, scales, u8(columns * (blocks * bits // 8))]
    attributes = {"K": rows, "N": columns, "bits": bits, "block_size": block}
    if bits == 4:  # onnxruntime's processor code has no 8-bit form without an accuracy level
        check("MatMulNBits", given, **attributes)
    model, _ = model_of("MatMulNBits", given, 1, 1, "com.microsoft", attributes)
    ops = [op.type for op in load(model).main.ops]
    assert ops == ["constexpr_blockwise_shift_scale", "linear"]


@pytest.mark.parametrize("dtype", ["INT4", "UINT4", "INT8"])
@pytest.mark.parametrize("block", [0, 16])
def test_blocked_constants_stay_packed(dtype: str, block: int) -> None:
    from hexane.formats.onnx import load

    kind = getattr(TensorProto, dtype)
    low = {"INT4": -8, "UINT4": 0, "INT8": -128}[dtype]
    high = {"INT4": 8, "UINT4": 16, "INT8": 128}[dtype]
    stored = RNG.integers(low, high, (64, 48))
    scale = np.abs(f(64 // block, 48) if block else f(48))
    point = RNG.integers(low, high, scale.shape)
    tensors = [
        helper.make_tensor("w", kind, stored.shape, stored.reshape(-1)),
        numpy_helper.from_array(scale, "s"),
        helper.make_tensor("z", kind, point.shape, point.reshape(-1)),
    ]
    more = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **more),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 64])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    given = {"x": f(5, 64)}
    options = onnxruntime.SessionOptions()  # the pair fused with its product would quantise x as well
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (wanted,) = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, given)
    made = load(model)
    assert any(op.type.startswith("constexpr_") for op in made.main.ops)
    np.testing.assert_allclose(made.evaluate(given)["y"], wanted, rtol=2e-4, atol=1e-6 * np.abs(wanted).max())


def test_every_unknown_op_is_named_at_once() -> None:
    from hexane.errors import UnsupportedError
    from hexane.formats.onnx import load

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], "first", domain="com.example"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("RandomNormalLike", ["b"], ["c"], "second"),
        helper.make_node("Sqrt", ["x"], ["d"]),
        helper.make_node("Bar", ["d"], ["y"], domain="com.example"),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets)
    with pytest.raises(UnsupportedError) as caught:
        load(model.SerializeToString())
    for word in (
        "3 node(s)",
        "com.example.Foo (node 'first')",
        "RandomNormalLike (node 'second')",
        "com.example.Bar (node 'y')",
    ):
        assert word in str(caught.value)
