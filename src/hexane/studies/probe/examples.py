"""A small network for every recipe of the compiler: what is asked of a device where a recipe rests on inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexane.graph import Graph, GraphBuilder
from hexane.graph.ir import Value

MAP = (1, 32, 4, 32)
ROWS = (1, 1, 16, 64)
HEADS = (1, 2, 32, 32)

Build = Callable[..., Value]


def weights(*shape: int, scale: float = 0.1, seed: int = 1) -> np.ndarray:
    """fp16 weights that are the same everywhere."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16)


def network(build: Build, shapes: tuple[tuple[int, ...], ...], dtype: str = "fp16") -> Graph:
    """A network with inputs x, y, ... and one output."""
    b = GraphBuilder()
    inputs = [b.input(name, shape, dtype) for name, shape in zip("xyz", shapes)]
    b.output(build(b, *inputs), name="out")
    return b.graph


def _one(op: str, **parameters: Any) -> Build:
    return lambda b, x, *more: b.op(op, x=x, **dict(zip(("y",), more)), **parameters)


def _attention(b: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(0.125))
    return b.matmul(x=b.softmax(x=scores, axis=-1), y=v)


def _norm_projection(b: GraphBuilder, x: Value) -> Value:
    normal = b.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-5))
    return b.linear(x=normal, weight=weights(64, 64))


def _two_products(b: GraphBuilder, x: Value) -> Value:
    hidden = b.relu(x=b.linear(x=x, weight=weights(128, 64)))
    return b.linear(x=hidden, weight=weights(64, 128, seed=2))


def _shuffle(b: GraphBuilder, x: Value) -> Value:
    apart = b.reshape(x=x, shape=[1, 4, 8, 4, 32])
    return b.reshape(x=b.transpose(x=apart, perm=[0, 2, 1, 3, 4]), shape=list(MAP))


def _hard_swish(b: GraphBuilder, x: Value) -> Value:
    return b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5)))


def _bytes(b: GraphBuilder, x: Value, zero: int = 0) -> Value:
    """Quantised and dequantised, with steps of 1/32; a zero point takes tasks of its own."""
    point = {"zero_point": np.int8(zero)} if zero else {}
    codes = b.quantize(input=x, scale=np.float16(0.03125), output_dtype="int8", **point)
    return b.dequantize(input=codes, scale=np.float16(0.03125), **point)


def _byte_convolution(b: GraphBuilder, x: Value) -> Value:
    steps = np.random.default_rng(1).integers(-127, 128, (32, 32, 3, 3)).astype(np.int8)
    scales = np.geomspace(2.0**-9, 2.0**-6, 32).astype(np.float16).reshape(-1, 1, 1, 1)
    kernel = b.constexpr_blockwise_shift_scale(data=steps, scale=scales)
    return b.conv(x=_bytes(b, x), weight=kernel, pad_type="same")


def _sub_pixels(b: GraphBuilder, x: Value) -> Value:
    """A convolution whose channels become pixels, as networks that enlarge pictures end."""
    return b.pixel_shuffle(x=b.conv(x=x, weight=weights(32, 32, 3, 3), pad_type="same"), upscale_factor=2)


def _byte_layers(b: GraphBuilder, x: Value) -> Value:
    """Two layers of int8 weights with bytes between them."""
    for seed in (1, 2):
        steps = np.random.default_rng(seed).integers(-127, 128, (32, 32, 1, 1)).astype(np.int8)
        kernel = b.constexpr_blockwise_shift_scale(data=steps, scale=np.full((1, 1, 1, 1), 2.0**-9, np.float16))
        x = b.conv(x=x, weight=kernel, pad_type="valid")
        x = _bytes(b, x) if seed == 1 else x
    return x


def _norm_of_product(b: GraphBuilder, x: Value) -> Value:
    """A product, a norm and a product, all of whose results stay in L2."""
    hidden = b.layer_norm(x=b.linear(x=x, weight=weights(64, 64)), axes=[-1], epsilon=np.float16(1e-5))
    return b.linear(x=hidden, weight=weights(64, 64, seed=2))


def _attention_of_norm(b: GraphBuilder, x: Value) -> Value:
    """Attention with projections behind a norm, all but its kernels in L2."""
    normal = b.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-5))
    q, k, v = (b.linear(x=normal, weight=weights(64, 64, seed=seed)) for seed in (1, 2, 3))
    return b.linear(x=_attention(b, q, k, v), weight=weights(64, 64, seed=4))


def _heads(b: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(0.1875))
    return b.matmul(x=b.softmax(x=scores, axis=-1), y=v)


def _same_rows(b: GraphBuilder, x: Value) -> Value:
    """Three products of the same rows, as the projections of an attention are."""
    one, two, three = (b.linear(x=x, weight=weights(64, 64, seed=seed)) for seed in (1, 2, 3))
    return b.add(x=b.mul(x=one, y=two), y=three)


def _signal(b: GraphBuilder, x: Value) -> Value:
    """A signal that is cut at an odd sample, continued with zeros, and written in rows."""
    window = b.slice_by_size(x=x, begin=[0, 0, 0, 3], size=[1, 1, 1, 1017])
    longer = b.pad(x=window, pad=[0, 0, 0, 0, 0, 0, 0, 7], mode="constant", constant_val=np.float16(0))
    return b.reshape(x=longer, shape=[1, 1, 16, 64])


def _normalised(b: GraphBuilder, x: Value) -> Value:
    """A norm over batches with its numbers known: a shift and a scale of each channel."""
    return b.mul(x=b.add(x=x, y=weights(1, 32, 1, 1, seed=2)), y=weights(1, 32, 1, 1, scale=1.0))


def _written_row(b: GraphBuilder, x: Value) -> Value:
    """A state of which one row is written at a constant place, and read."""
    state = b.state("cache", (1, 8, 4, 64))
    old = b.read_state(input=state)
    b.write_state(data=b.slice_update(x=old, update=x, begin=[0, 0, 1, 0], end=[1, 8, 2, 64]), input=state)
    return b.relu(x=b.read_state(input=state))


EXAMPLES: dict[str, tuple[Build, tuple[tuple[int, ...], ...]]] = {
    "clip": (_one("clip", alpha=np.float16(-0.5), beta=np.float16(0.75)), (MAP,)),
    "elu": (_one("elu", alpha=np.float16(1)), (MAP,)),
    "fitted": (_one("erf"), (MAP,)),
    "leaky_relu": (_one("leaky_relu", alpha=np.float16(0.1)), (MAP,)),
    "sigmoid_hard": (_one("sigmoid_hard", alpha=np.float16(0.2), beta=np.float16(0.5)), (MAP,)),
    "attention": (_attention, ((1, 1, 32, 64), (1, 1, 32, 64), (1, 1, 32, 64))),
    "heads_in_l2": (_heads, ((1, 4, 64, 32),) * 3),
    "products_of_same_rows": (_same_rows, (ROWS,)),
    "signal_lines": (_signal, ((1, 1, 1, 1088),)),
    "sliding_windows": (_one("sliding_windows", axis=2, size=4, stride=2), ((1, 1, 16, 64),)),
    "batched_product": (_one("matmul"), (HEADS, HEADS)),
    "cast": (lambda b, x, y: b.cast(x=b.less(x=x, y=y), dtype="fp16"), (MAP, MAP)),
    "logical_not": (
        lambda b, x, y: b.cast(x=b.logical_not(x=b.less(x=x, y=y)), dtype="fp16"),
        (MAP, MAP),
    ),
    "select": (lambda b, x, y: b.select(cond=b.less(x=x, y=y), a=x, b=y), (MAP, MAP)),
    "quantize": (_bytes, (MAP,)),
    "dequantize": (lambda b, x: _bytes(b, x, 5), (MAP,)),
    "byte_convolution": (_byte_convolution, (MAP,)),
    "tile": (_one("tile", reps=[1, 1, 4, 1]), ((1, 32, 1, 32),)),
    "comparison": (lambda b, x, y: b.cast(x=b.greater_equal(x=x, y=y), dtype="fp16"), (MAP, MAP)),
    "floor": (lambda b, x: b.floor(x=b.mul(x=x, y=np.float16(4))), (MAP,)),
    "constant_first": (lambda b, x: b.matmul(x=b.const(weights(1, 1, 16, 16)), y=x), (ROWS,)),
    "convolution": (lambda b, x: b.conv(x=x, weight=weights(32, 32, 3, 3), pad_type="same"), (MAP,)),
    "add_own_relu": (lambda b, x: b.add(x=x, y=b.relu(x=x)), (MAP,)),
    "elementwise": (_one("sub"), (MAP, MAP)),
    "product": (lambda b, x: b.linear(x=x, weight=weights(64, 64)), (ROWS,)),
    "two_products": (_two_products, (ROWS,)),
    "runtime_product": (_one("matmul"), ((1, 1, 32, 32), (1, 1, 32, 32))),
    "layer_norm": (_one("layer_norm", axes=[1], epsilon=np.float16(1e-5)), (MAP,)),
    "norm_projection": (_norm_projection, (ROWS,)),
    "pad": (_one("pad", pad=[1, 1, 2, 2], mode="constant", constant_val=np.float16(1)), (MAP,)),
    "native_max_pool": (_one("max_pool", kernel_sizes=[3, 3], strides=[2, 2], pad_type="same"), (MAP,)),
    "max_pool": (_one("max_pool", kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"), (MAP,)),
    "power": (lambda b, x, y: b.pow(x=b.abs(x=x), y=y), (MAP, MAP)),
    "real_div": (_one("real_div"), (MAP, MAP)),
    "repeat_pixels": (_one("upsample_nearest_neighbor", scale_factor_height=2, scale_factor_width=2), (MAP,)),
    "shuffle": (_shuffle, (MAP,)),
    "to_channels": (_one("pixel_unshuffle", downscale_factor=2), ((1, 8, 8, 64),)),
    "to_pixels": (_one("pixel_shuffle", upscale_factor=2), (MAP,)),
    "composed_reduction": (_one("reduce_min", axes=[1], keep_dims=True), (MAP,)),
    "reduction": (_one("reduce_max", axes=[2, 3], keep_dims=True), (MAP,)),
    "regroup": (_one("reshape", shape=[1, 64, 2, 32]), (MAP,)),
    "concat": (lambda b, x, y: b.concat(values=(x, y), axis=1), (MAP, MAP)),
    "reshape": (_one("reshape", shape=[1, 128, 1, 32]), (MAP,)),
    "slices": (_one("slice_by_size", begin=[0, 8, 0, 0], size=[1, 16, 4, 32]), (MAP,)),
    "split": (lambda b, x: b.sub(**dict(zip("xy", b.split(x=x, num_splits=2, axis=1)))), (MAP,)),
    "transpose": (_one("transpose", perm=[0, 2, 1, 3]), (MAP,)),
    "softmax": (_one("softmax", axis=1), (MAP,)),
    "planar_function": (_one("square"), (MAP,)),
    "relu": (_one("relu"), (MAP,)),
    "sign": (_one("sign"), (MAP,)),
    "table_function": (_one("sigmoid"), (MAP,)),
    "engine_table": (_hard_swish, (MAP,)),
    "matrix_chain": (_norm_of_product, ((1, 16, 64),)),
    "attention_in_chain": (_attention_of_norm, ((1, 32, 64),)),
    "byte_chain": (_byte_layers, (MAP,)),
    "convolution_to_pixels": (_sub_pixels, (MAP,)),
    "batch_norm": (_normalised, (MAP,)),
    "function_and_residual": (lambda b, x: b.add(x=x, y=b.gelu(x=x, mode="EXACT")), ((1, 64, 1, 1),)),
    "slice_update": (_written_row, ((1, 8, 1, 64),)),
}
"""Recipe -> what builds its network, and the shapes of the inputs."""

FORMS: dict[str, dict[str, Any]] = {
    "engine_table": {"accuracy": "fast"},
    "matrix_chain": {"dialect": "apple"},
    "attention_in_chain": {"dialect": "apple"},
    "byte_chain": {"dialect": "apple"},
    "batch_norm": {"dialect": "apple"},
    "function_and_residual": {"dialect": "apple"},
}
"""How a network is compiled where the default does not take the recipe."""
