"""The graph behind a row of published measurements: columns of ``calibration.csv`` in, a network out.

Weights have shapes and formats but no values: nothing here is ever evaluated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.graph import Constant, Graph, GraphBuilder, TensorType, Value
from hexane.timing.row_formats import format_of

_MASKED = re.compile(r"\bz(?:\d\d|ch)\b")
_CONSTANT = re.compile(r"\b(?:constant|scalar)\b")
BINARY_OPS = ("add", "sub", "mul", "maximum", "minimum", "real_div")
WITH_CONSTANT = ("const", "constant", "scalar")
"""Words of an op's name that make its second operand a constant."""


class Row:
    """One row; numbers as numbers, empty cells as None, whether they come as text or as NaN."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def text(self, column: str) -> str:
        value = self.data.get(column)
        return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()

    def number(self, column: str) -> float | None:
        text = self.text(column)
        try:
            return float(text) if text else None
        except ValueError:
            return None

    def count(self, column: str, default: int | None = None) -> int:
        value = self.number(column)
        if value is None:
            if default is None:
                raise UsageError(f"the row has no {column}", where=self.text("id") or "row")
            return default
        return int(value)


class RowWeights:
    """Makes weight operands in the row's stored format; one set for all layers where the row says so."""

    def __init__(self, builder: GraphBuilder, row: Row) -> None:
        self._builder = builder
        self._format = format_of(row.text("wfmt"))
        self._shared: dict[tuple, Value] | None = {} if row.text("weights") == "shared" else None

    def __call__(self, *shape: int) -> Value:
        if self._shared is not None and shape in self._shared:
            return self._shared[shape]
        value = self._make(shape)
        if self._shared is not None:
            self._shared[shape] = value
        return value

    def share(self) -> None:
        """From here on equal shapes are one set (25 equal steps of a row that repeats one matrix)."""
        self._shared = {}

    def _make(self, shape: tuple[int, ...]) -> Value:
        b, form = self._builder, self._format
        if form.kept < 1:
            nonzero = round(math.prod(shape) * form.kept)
            mask = blank(b, "uint1", shape)
            if form.palette:
                lut = blank(b, "fp16", (1,) * len(shape) + (1 << form.palette, 1))
                indices = blank(b, _index_type(form.palette), (nonzero,))
                _, data = b.op("constexpr_lut_to_sparse", opset="ios18", indices_mask=mask,
                               indices_nonzero_data=indices, lut=lut)  # fmt: skip
            else:
                data = blank(b, "int8" if form.int8 else "fp16", (nonzero,))
            return b.op("constexpr_sparse_to_dense", opset="ios18", nonzero_data=data, mask=mask)
        if form.int8:
            data = blank(b, "int8", shape)
            scale = b.const(np.float16(1.0), "fp16")
            return b.constexpr_affine_dequantize(quantized_data=data, zero_point=np.int8(0), scale=scale, axis=0)
        if form.palette:
            lut = blank(b, "fp16", (1,) * len(shape) + (1 << form.palette, 1))
            indices = blank(b, _index_type(form.palette), shape)
            return b.op("constexpr_lut_to_dense", opset="ios18", indices=indices, lut=lut)
        return blank(b, "fp16", shape)


Network = Callable[[GraphBuilder, Row, RowWeights, int], Value]
"""What makes the network of a row of some depth, and gives its result."""


def _index_type(bits: int) -> str:
    """The narrowest unsigned type of MIL that holds an index; the table's length says how many bits are stored."""
    return f"uint{next(width for width in (1, 2, 3, 4, 6, 8) if bits <= width)}"


def blank(builder: GraphBuilder, dtype: str, shape: tuple[int, ...]) -> Value:
    """A constant of a type whose values nobody will ask for (zeros, made only on demand)."""
    type_ = TensorType(dtype, shape)
    return builder.const(Constant(type_, load=lambda: np.zeros(type_.shape, type_.carrier)))


def graph_of(row: Row, *, layers: int | None = None) -> Graph:
    """The row's network in fp16, by its ``op`` and, where that says too little, by its ``kind``.

    ``layers`` overrides the row's depth (slopes are read off a short chain).
    """
    b = GraphBuilder(opset="ios17")
    depth = layers if layers is not None else row.count("layers", 1)
    kind, op = row.text("kind"), row.text("op")
    make = _NETWORKS.get(op) or (_elementwise if _binary_name(op) else None) or _NETWORKS.get(kind)
    if make is None:
        raise UsageError(f"no network is known for rows of kind {kind!r}", where=row.text("id") or "row")
    b.output(make(b, row, RowWeights(b, row), depth))
    return b.graph


def _binary_name(op: str) -> tuple[str, str] | None:
    """``add``, ``add_same``, ``mul_const``, ``scalar_add``, ``muls``: op and second operand; None for others."""
    if op in ("adds", "subs", "muls"):  # with a scalar
        return op[:-1], WITH_CONSTANT[0]
    words = op.split("_")
    name = next((word for word in words if word in BINARY_OPS), "real_div" if op.startswith("real_div") else None)
    rest = [word for word in words if word != name and word not in ("real", "div")]
    if name is None or not all(word in ("same", *WITH_CONSTANT) for word in rest):
        return None
    return name, "same" if "same" in rest else WITH_CONSTANT[0] if rest else ""


def _activation(b: GraphBuilder, row: Row, x: Value) -> Value:
    name = row.text("act")
    return b.op(name, x=x) if name in ("relu", "sigmoid", "tanh", "silu") else x


def _conv(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    if row.number("cin") is None:  # shape not stated: the smallest layer there is
        x = b.input("x", (1, 16, 1, 16), "fp16")
        for _ in range(depth):
            x = b.conv(x=x, weight=weights(16, 16, 1, 1))
        return x
    n, cin, cout = row.count("n", 1), row.count("cin"), row.count("cout")
    x = b.input("x", (n, cin, row.count("h"), row.count("w")), "fp16")
    int8 = row.text("dtype") == "int8"
    groups, stride, dilation = row.count("groups", 1), row.count("stride", 1), row.count("dilation", 1)
    kh, kw = row.count("kh", 1), row.count("kw", 1)
    masked = _MASKED.search(row.text("workload")) is not None  # activations multiplied by a mask after every layer
    mask = b.input("mask", (n, cout, row.count("h"), row.count("w")), "fp16") if masked else None
    for _ in range(depth):
        if int8:
            scale = np.float16(1.0)
            x = b.dequantize(input=b.quantize(input=x, scale=scale, output_dtype="int8"), scale=scale)
        x = b.conv(
            x=x,
            weight=weights(cout, cin // groups, kh, kw),
            strides=(stride, stride),
            dilations=(dilation, dilation),
            groups=groups,
            pad_type="valid" if row.text("pad") == "valid" else "same",
        )
        x = _activation(b, row, x)
        if mask is not None:
            x = b.mul(x=x, y=mask)
        cin = cout
    return x


def _linear(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    side = _square_side(row)
    m, k, n = row.count("m", 1), row.count("k", side), row.count("nn", side)
    x = b.input("x", (m, k), "fp16")
    jacobi = "acobi" in row.text("workload")
    if jacobi:  # matrix-vector, subtract, multiply, again and again with one matrix
        weights.share()
        right = b.input("rhs", (m, n), "fp16")
    for index in range(depth):
        inner, outer = (k, n) if index % 2 == 0 or k == n else (n, k)
        x = b.linear(x=x, weight=weights(outer, inner))
        if jacobi:
            x = b.mul(x=b.sub(x=right, y=x), y=b.input("d", (m, n), "fp16") if index == 0 else b.function.inputs[-1])
    return x


def _square_side(row: Row) -> int | None:
    """Inputs and outputs of a layer that states no shape, only what it stores: as many of one as of the other."""
    size = row.number("wbytes_layer")
    return round(math.sqrt(size / 2)) if size and row.number("k") is None else None


def _shape(row: Row) -> tuple[int, ...]:
    if row.number("cin") is not None:
        return (row.count("n", 1), row.count("cin"), row.count("h"), row.count("w"))
    return (row.count("m"), row.count("k"))


def _elementwise(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    x = b.input("x", _shape(row), "fp16")
    op = row.text("op")
    binary = _binary_name(op)
    if binary:
        name, second = binary
        if not second and _CONSTANT.search(row.text("workload")):
            second = WITH_CONSTANT[0]
        if second == "same":
            other: Value | np.float16 = x
        else:
            other = np.float16(0.5) if second in WITH_CONSTANT else b.input("y", _shape(row), "fp16")
        for _ in range(depth):
            x = b.op(name, x=x, y=other)
        return x
    for _ in range(depth):
        x = b.gelu(x=x, mode="EXACT") if op == "gelu" else b.op("abs" if op == "single_input" else op, x=x)
    return x


def _reduce(b: GraphBuilder, row: Row, _: RowWeights, depth: int) -> Value:
    x = b.input("x", _shape(row), "fp16")
    if row.text("op") == "mul_reduce":
        return b.reduce_sum(x=b.mul(x=x, y=b.input("y", _shape(row), "fp16")), axes=(1,), keep_dims=True)
    return b.reduce_sum(x=x, axes=(-1,), keep_dims=True)


def _l2_norm(b: GraphBuilder, row: Row, _: RowWeights, depth: int) -> Value:
    m, k = _shape(row)
    return b.l2_norm(x=b.input("x", (m, 1, 1, k), "fp16"), epsilon=1e-6)


def rms_norm(b: GraphBuilder, x: Value) -> Value:
    """The form that front ends write: x * rsqrt(mean(x^2) + eps)."""
    mean = b.reduce_mean(x=b.square(x=x), axes=(-1,), keep_dims=True)
    return b.mul(x=x, y=b.rsqrt(x=b.add(x=mean, y=np.float16(1e-5)), epsilon=1e-6))


def _group_norm(b: GraphBuilder, x: Value) -> Value:
    n, c, h, w = x.shape
    x = b.reshape(x=x, shape=(n, 32, c // 32, h * w))
    return b.reshape(x=b.layer_norm(x=x, axes=(2, 3), epsilon=1e-5), shape=(n, c, h, w))


def _heads(b: GraphBuilder, x: Value, rows: int, heads: int, width: int) -> Value:
    return b.transpose(x=b.reshape(x=x, shape=(1, rows, heads, width)), perm=(0, 2, 1, 3))


def _attend(b: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(0.125))
    return b.matmul(x=b.softmax(x=scores, axis=-1), y=v)


def _attention(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    heads, rows, width = row.count("heads"), row.count("seq"), row.count("dhead")
    model = heads * width
    if row.text("op") == "mha":
        x = b.input("x", (rows, model), "fp16")
        q, k, v = (_heads(b, b.linear(x=x, weight=weights(model, model)), rows, heads, width) for _ in range(3))
        heads_joined = b.transpose(x=_attend(b, q, k, v), perm=(0, 2, 1, 3))
        return b.linear(x=b.reshape(x=heads_joined, shape=(rows, model)), weight=weights(model, model))
    q, k, v = (b.input(name, (1, heads, rows, width), "fp16") for name in "qkv")
    if row.text("op") == "sdpa":
        return b.op("scaled_dot_product_attention", opset="ios18", query=q, key=k, value=v)
    return _attend(b, q, k, v)


def _matmul(b: GraphBuilder, row: Row, _: RowWeights, depth: int) -> Value:
    m, k, n = row.count("m"), row.count("k"), row.count("nn")
    return b.matmul(x=b.input("x", (m, k), "fp16"), y=b.input("w", (k, n), "fp16"))


def _model(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    op = row.text("op")
    if op in ("resnet18", "resnet50"):
        return _resnet(b, row.count("n", 1), int(op[6:]), weights)
    if op.startswith("decoder"):
        return _decoder(b, row, weights, depth)
    raise UsageError(f"no network is known for {op!r}", where=row.text("id") or "row")


def _resnet(b: GraphBuilder, n: int, depth: int, weights: RowWeights) -> Value:
    """ResNet-18 or -50 at 224 x 224 (He et al. 2015), batch norms folded."""

    def conv(x: Value, cout: int, k: int, stride: int = 1) -> Value:
        return b.conv(x=x, weight=weights(cout, x.shape[1], k, k), strides=(stride, stride), pad_type="same")

    x = b.relu(x=conv(b.input("x", (n, 3, 224, 224), "fp16"), 64, 7, 2))
    x = b.max_pool(x=x, kernel_sizes=(3, 3), strides=(2, 2), pad_type="same")
    for stage, (repeats, width) in enumerate(zip({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth], (64, 128, 256, 512))):
        for block in range(repeats):
            stride = 2 if stage and not block else 1
            if depth == 18:
                y = conv(b.relu(x=conv(x, width, 3, stride)), width, 3)
            else:
                y = b.relu(x=conv(b.relu(x=conv(x, width, 1)), width, 3, stride))
                y = conv(y, 4 * width, 1)
            if y.shape != x.shape:
                x = conv(x, y.shape[1], 1, stride)
            x = b.relu(x=b.add(x=x, y=y))
    x = b.reduce_mean(x=x, axes=(2, 3), keep_dims=False)
    return b.linear(x=x, weight=weights(1000, x.shape[1]))


def _decoder(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    """One decoding step: attention over cached keys that the call hands in, a gated feed-forward, 32000 words.

    As ANEForge's ``bench/decode_measurement.py`` writes it: the new key and value are joined to the cached ones.
    """
    batch, model, heads, keys = row.count("n", 1), row.count("k"), row.count("heads"), row.count("seq")
    width = model // heads
    x = b.input("x", (batch, model), "fp16")
    for layer in range(depth):
        y = rms_norm(b, x)
        q, k, v = (
            b.reshape(x=b.linear(x=y, weight=weights(model, model)), shape=(batch * heads, 1, width)) for _ in range(3)
        )
        cached_k = b.input(f"k{layer}", (batch * heads, width, keys), "fp16")
        cached_v = b.input(f"v{layer}", (batch * heads, keys, width), "fp16")
        cached_scores, own_scores = b.matmul(x=q, y=cached_k), b.matmul(x=q, y=k, transpose_y=True)
        scores = [b.mul(x=score, y=np.float16(width**-0.5)) for score in (cached_scores, own_scores)]
        share = b.softmax(x=b.concat(values=scores, axis=2, interleave=False), axis=-1)
        y = b.matmul(x=share, y=b.concat(values=[cached_v, v], axis=1, interleave=False))
        x = b.add(x=x, y=b.linear(x=b.reshape(x=y, shape=(batch, model)), weight=weights(model, model)))
        y = rms_norm(b, x)
        gate, up = (b.linear(x=y, weight=weights(4 * model, model)) for _ in range(2))
        x = b.add(x=x, y=b.linear(x=b.mul(x=b.silu(x=gate), y=up), weight=weights(model, 4 * model)))
    return b.linear(x=rms_norm(b, x), weight=weights(32000, model))


def _dispatch(b: GraphBuilder, row: Row, weights: RowWeights, depth: int) -> Value:
    if row.text("op") == "copy":
        return b.identity(x=b.input("x", (1, 16, 1, 16), "fp16"))
    return _conv(b, row, weights, depth)


def _of_input(make: Callable[[GraphBuilder, Value], Value]) -> Network:
    """A network of one input in the row's shape."""
    return lambda b, row, weights, depth: make(b, b.input("x", _shape(row), "fp16"))


_ARGMAX = _of_input(lambda b, x: b.reduce_argmax(x=x, axis=-1, keep_dims=True))
_POOL = _of_input(lambda b, x: b.avg_pool(x=x, kernel_sizes=(2, 2), strides=(2, 2), pad_type="valid"))
_SHUFFLE = _of_input(lambda b, x: b.pixel_shuffle(x=x, upscale_factor=2))
_NETWORKS: dict[str, Network] = {
    "conv": _conv,
    "conv_chain": _conv,
    "linear": _linear,
    "gemv": _linear,
    "jacobi": _linear,
    "matmul": _matmul,
    "matmul_rt": _matmul,
    "eltwise": _elementwise,
    "eltwise_chain": _elementwise,
    "reduce": _reduce,
    "reduce_sum": _reduce,
    "mul_reduce": _reduce,
    "softmax": _of_input(lambda b, x: b.softmax(x=x, axis=-1)),
    "layer_norm": _of_input(lambda b, x: b.layer_norm(x=x, axes=(-1,), epsilon=1e-5)),
    "l2_norm": _l2_norm,
    "rms_norm": _of_input(rms_norm),
    "group_norm": _of_input(_group_norm),
    "pool": _POOL,
    "avg_pool": _POOL,
    "shuffle": _SHUFFLE,
    "pixel_shuffle": _SHUFFLE,
    "topk": _ARGMAX,
    "argmax": _ARGMAX,
    "attention": _attention,
    "sdpa": _attention,
    "sdpa_rt": _attention,
    "mha": _attention,
    "model": _model,
    "copy": _dispatch,
    "dispatch": _dispatch,
}
"""By the row's ``op``, or its ``kind``."""
