"""Small networks, a few layers each, that transformations change; inputs of several sizes are drawn for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from codegen.test_gathered_strides import network as strided
from codegen.test_heads import attention
from codegen.test_local_norms import network as local_norm
from codegen.test_residency import excited
from codegen.test_signals import filtered
from codegen.test_split_groups import network as grouped
from codegen.test_states import by_mask as cache_by_mask
from hexane.graph import Graph, GraphBuilder, Value
from hexane.graph.evaluate import Evaluation
from hexane.graph.types import StateType

Layer = Callable[["Drawn", Value], Value]


class Drawn:
    """A graph under construction with weights of one seed."""

    def __init__(self, *shape: int) -> None:
        self.b, self.rng = GraphBuilder(opset="ios17"), np.random.default_rng(7)
        self.x = self.b.input("x", shape, "fp16")

    def weight(self, *shape: int, about: float = 0.0) -> np.ndarray:
        scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
        return (about + self.rng.normal(size=shape) * scale).astype(np.float16)

    def conv(self, x: Value, out: int, *kernel: int, **given: object) -> Value:
        weight, bias = self.weight(out, x.shape[1], *(kernel or (1, 1))), self.weight(out, 16)[:, 0]
        return self.b.conv(x=x, weight=weight, bias=bias, **{"pad_type": "same", **given})

    def linear(self, x: Value, out: int) -> Value:
        return self.b.linear(x=x, weight=self.weight(out, x.shape[-1]), bias=self.weight(out, 16)[:, 0])

    def hard_swish(self, x: Value) -> Value:
        return self.b.mul(x=x, y=self.b.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5)))


def one(shape: tuple[int, ...], layer: Layer) -> Graph:
    """A network of one input."""
    d = Drawn(*shape)
    d.b.output(layer(d, d.x))
    return d.b.graph


def of_function(name: str, **given: object) -> Graph:
    return one((1, 16, 8, 12), lambda d, x: d.b.op(name, x=d.conv(x, 16), **given))


def mish(d: Drawn, x: Value) -> Value:
    y = d.conv(x, 16)
    return d.b.mul(x=y, y=d.b.tanh(x=d.b.softplus(x=y)))


def scaled(d: Drawn, x: Value) -> Value:
    y = d.b.mul(x=d.b.sigmoid(x=d.conv(x, 16)), y=np.float16(3.5))
    return d.b.mul(x=d.b.gelu(x=d.conv(y, 8)), y=np.float16(-0.75))


def of_bytes(d: Drawn, x: Value) -> Value:
    stored = d.b.quantize(input=d.conv(x, 32), scale=np.float16(0.03125), output_dtype="int8")
    return d.b.dequantize(input=stored, scale=np.float16(0.03125))


def compared(d: Drawn, x: Value) -> Value:
    """Numbers that are close to each other."""
    y, z = (d.b.mul(x=value, y=np.float16(2**-12)) for value in (d.b.abs(x=x), d.conv(x, 16)))
    return d.b.cast(x=d.b.less(x=y, y=z), dtype="fp16")


def power(d: Drawn, x: Value) -> Value:
    return d.b.pow(x=x, y=d.b.sigmoid(x=d.conv(x, 16)))


def affine(d: Drawn, x: Value) -> Value:
    y = d.b.add(x=d.b.mul(x=x, y=d.weight(1, 16, 1, 1, about=1)), y=d.weight(1, 16, 1, 1))
    return d.b.relu(x=d.b.mul(x=y, y=d.weight(1, 16, 1, 1)))


def channels_last(d: Drawn, x: Value) -> Value:
    y = d.b.transpose(x=d.conv(x, 16, 3, 3), perm=[0, 2, 3, 1])
    y = d.b.mul(x=y, y=np.linspace(0.5, 2, 16).astype(np.float16))
    y = d.b.concat(values=(y, d.b.abs(x=y)), axis=3)
    return d.conv(d.b.transpose(x=y, perm=[0, 3, 1, 2]), 8)


def joined_and_cut(d: Drawn, x: Value) -> Value:
    y = d.b.concat(values=(d.conv(x, 16), d.b.tanh(x=x), x), axis=1)
    return d.b.slice_by_size(x=y, begin=[0, 20, 2, 0], size=[1, 10, 6, 12])


def lifted(d: Drawn, x: Value) -> Value:
    return d.b.sigmoid(x=d.b.pixel_shuffle(x=d.conv(x, 16, 3, 3), upscale_factor=2))


def shuffled(d: Drawn, x: Value) -> Value:
    y = d.b.reshape(x=d.conv(x, 16), shape=[1, 2, 8, 8, 12])
    y = d.b.reshape(x=d.b.transpose(x=y, perm=[0, 2, 1, 3, 4]), shape=[1, 16, 8, 12])
    return d.conv(y, 16, 3, 3)


def pooled(d: Drawn, x: Value) -> Value:
    y = d.b.max_pool(x=d.conv(x, 16, 3, 3), kernel_sizes=[3, 3], strides=[2, 2], pad_type="same")
    y = d.b.pad(x=y, pad=[0, 0, 0, 0, 1, 2, 3, 1], mode="constant", constant_val=np.float16(0))
    return d.conv(d.b.concat(values=(y, d.b.abs(x=y)), axis=1), 24, 3, 3)


def tall(d: Drawn, x: Value) -> Value:
    return d.conv(x, 8, 39, 3, pad_type="custom", pad=[19, 19, 1, 1])


def framed(d: Drawn, x: Value) -> Value:
    """A spectrum: the signal mirrored at its ends, windows of it, and filters over them."""
    y = d.b.pad(x=d.b.reshape(x=x, shape=[1, 1, 1, 2000]), pad=[0, 0, 0, 0, 0, 0, 50, 50], mode="reflect")
    y = d.b.slice_by_size(x=y, begin=[0, 0, 0, 10], size=[1, 1, 1, 2048])
    return d.conv(d.b.reshape(x=y, shape=[1, 1, 1, 2048]), 12, 1, 256, strides=[1, 2], pad_type="valid")


def encoder(tokens: int, *, heads: int = 2, memory: int = 0) -> Graph:
    """A layer of tokens: norm, attention of heads, projection, norm, two linear layers with a function."""
    d = Drawn(1, tokens, 64)
    b, kind = d.b, np.float16

    def norm(x: Value) -> Value:
        gamma, beta = d.weight(64, about=1), d.weight(64)
        return b.layer_norm(x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=kind(1e-5))

    def split(x: Value) -> Value:
        return b.transpose(x=b.reshape(x=x, shape=[1, tokens, heads, 64 // heads]), perm=[0, 2, 1, 3])

    h = norm(d.x)
    q, k, v = (split(d.linear(h, 64)) for _ in range(3))
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=kind((64 // heads) ** -0.5))
    y = b.transpose(x=b.matmul(x=b.softmax(x=scores, axis=-1), y=v), perm=[0, 2, 1, 3])
    y = b.add(x=d.x, y=d.linear(b.reshape(x=y, shape=[1, tokens, 64]), 64))
    b.output(b.add(x=y, y=d.linear(b.gelu(x=d.linear(norm(y), 128)), 64)))
    return b.graph


def rows_first(x: Value, d: Drawn) -> Value:
    return d.b.max_pool(x=x, kernel_sizes=[3, 3], strides=[2, 2], pad_type="valid")


def wide(d: Drawn, x: Value) -> Value:
    """Maps that do not fit L2 together."""
    y = d.b.relu(x=d.conv(x, 64, 3, 3))
    return d.b.add(x=y, y=d.conv(d.b.tanh(x=d.conv(y, 64, 3, 3)), 64))


MAP = (1, 16, 8, 12)
FUNCTIONS = ("softplus", "relu6", "silu", "tanh", "erf", "softsign", "exp")
NETWORKS: dict[str, Callable[[], Graph]] = {
    "hard swish": lambda: one(MAP, lambda d, x: d.hard_swish(d.conv(x, 16))),
    "mish": lambda: one(MAP, mish),
    **{name: lambda name=name: of_function(name) for name in FUNCTIONS},
    "leaky relu": lambda: of_function("leaky_relu", alpha=np.float16(0.1)),
    "clip": lambda: of_function("clip", alpha=np.float16(-0.4), beta=np.float16(0.7)),
    "elu": lambda: of_function("elu", alpha=np.float16(0.7)),
    "scaled functions": lambda: one(MAP, scaled),
    "bytes": lambda: one(MAP, of_bytes),
    "local norm": lambda: local_norm(16),
    "local norm, large alpha": lambda: local_norm(16, alpha=3.0, beta=0.6),
    "local norm of the input": lambda: local_norm(16, front=(), beta=0.5),
    "stride 4": lambda: strided(33, 35, 3, 16, 11, (4, 4), (0, 0, 0, 0)),
    "groups": lambda: grouped(1, 14, 14, 96, 72, 3, 1, 4)[0],
    "comparison": lambda: one(MAP, compared),
    "power": lambda: one(MAP, power),
    "affine": lambda: one(MAP, affine),
    "channels last": lambda: one(MAP, channels_last),
    "joined and cut": lambda: one(MAP, joined_and_cut),
    "lifted": lambda: one(MAP, lifted),
    "shuffled": lambda: one(MAP, shuffled),
    "pooled": lambda: one((1, 16, 32, 40), pooled),
    "tall kernel": lambda: one((1, 3, 80, 20), tall),
    "filters": lambda: filtered(598, 256, 2),
    "signal": lambda: one((1, 2000), framed),
    "encoder": lambda: encoder(64),
    "encoder, odd": lambda: encoder(33, heads=4),
    "attention": lambda: attention(64, 64, 4, 32),
    "odd keys": lambda: attention(64, 77, 4, 32),
}
LARGE: dict[str, Callable[[], Graph]] = {
    "pooled rows": lambda: one((1, 48, 99, 99), lambda d, x: rows_first(d.b.abs(x=x), d)),
    "wide": lambda: one((1, 64, 128, 96), wide),
    "excited": lambda: excited()[0],
    "many queries": lambda: attention(840, 800, 2, 16),
    "a cache": cache_by_mask,
}
"""Networks whose tasks change, not their graphs."""


class Float64(Evaluation):
    """The network in float64 throughout: the truth that errors are measured against."""

    def array(self, value: Value) -> object:
        return widened(super().array(value))

    def settled(self, op: object, value: Value, array: object) -> object:
        return widened(array)


def widened(array: object) -> object:
    return array.astype(np.float64) if isinstance(array, np.ndarray) and array.dtype.kind == "f" else array


def truth(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs in float64."""
    run = Float64()
    given = {**graph.make_state(), **inputs}
    run.environment.update({v: widened(given[v.name]) for v in graph.main.inputs})
    return dict(zip((v.name for v in graph.main.outputs), run.block(graph.main)))


def drawn(graph: Graph, sizes: tuple[float, ...] = (0.1, 1.0, 5.0)) -> Iterator[dict[str, np.ndarray]]:
    """Normal inputs of several sizes."""
    rng = np.random.default_rng(11)
    for size in sizes:
        inputs = [v for v in graph.main.inputs if not isinstance(v.type, StateType)]
        yield {v.name: (size * rng.normal(size=v.shape)).astype(np.float16) for v in inputs}
