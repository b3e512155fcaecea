"""Fused ops of onnxruntime's domain ``com.microsoft``, spelled out in what they fuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import Refused
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops import linear
from hexane.formats.onnx.ops.conv import conv_of
from hexane.formats.onnx.ops.linear import layer_norm_of, product, rms_norm_of
from hexane.formats.onnx.registry import MAIN, MICROSOFT, onnx_op
from hexane.formats.operands import Operand, type_of


def activated(c: NodeContext, y: Operand) -> Operand:
    """The activation that a fused op names, with its parameters."""
    name = c.attr("activation", "")
    params = c.attr("activation_params", [])
    simple = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
    if name in ("", "None"):
        return y
    if name in simple:
        return c.ops.op(simple[name], x=y)
    if name == "LeakyRelu":
        alpha = params[0] if params else c.attr("activation_alpha", c.attr("leaky_relu_alpha", 0.01))
        return c.ops.leaky_relu(x=y, alpha=alpha)
    if name == "Clip":
        low, high = params or (-np.inf, np.inf)
        return c.ops.clip(x=y, alpha=low, beta=high)
    if name == "HardSigmoid":
        alpha, beta = params or (0.2, 0.5)
        return c.ops.sigmoid_hard(x=y, alpha=alpha, beta=beta)
    raise Refused(f"its activation {name!r} is unknown")


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(c: NodeContext) -> Operand:
    """Convolution, an added tensor, an activation."""
    y = conv_of(c, c.need(0), c.need(1), c[2])
    if c.has(3):
        y = c.ops.add(x=y, y=c.need(3))
    return activated(c, y)


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(c: NodeContext) -> Operand:
    return activated(c, linear.gemm(c))


def _swapped(c: NodeContext, x: Operand, batch: bool, last: bool) -> Operand:
    """``x`` with the batch axis moved behind the rows (transBatch) and the last two axes swapped."""
    rank = type_of(x).rank
    order = list(range(rank))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if last:
        order[-2:] = order[-2:][::-1]
    return c.transpose(x, order)


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(c: NodeContext) -> Operand:
    a = _swapped(c, c.need(0), bool(c.attr("transBatchA", 0)), bool(c.attr("transA", 0)))
    b = _swapped(c, c.need(1), bool(c.attr("transBatchB", 0)), bool(c.attr("transB", 0)))
    return c.scale(product(c, a, b), c.attr("alpha", 1.0))


# ------------------------------------------------------------------------------------- activations, normalisations


@onnx_op("Gelu", "BiasGelu", "FastGelu", domain=MICROSOFT)
def gelu(c: NodeContext) -> Operand:
    x = c.ops.add(x=c.need(0), y=c.need(1)) if c.has(1) else c.need(0)
    return c.ops.gelu(x=x, mode="TANH_APPROXIMATION" if c.node.op_type == "FastGelu" else "EXACT")


@onnx_op("BiasAdd", domain=MICROSOFT)
def bias_add(c: NodeContext) -> Operand:
    return c.ops.add(x=c.ops.add(x=c.need(0), y=c.need(1)), y=c.need(2))


onnx_op("LayerNormalization", domain=MICROSOFT)(linear.layer_normalization)


@onnx_op("SimplifiedLayerNormalization", domain=MAIN)
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(c: NodeContext) -> object:
    """Root-mean-square normalisation; onnxruntime writes it into the main domain as well."""
    if c.wants(1):
        raise Refused("it gives the inverse deviation")
    return rms_norm_of(c, c.need(0), c.need(1), c.attr("axis", -1), c.attr("epsilon", 1e-5))


def _skip_sum(c: NodeContext, bias_at: int) -> Operand:
    total = c.ops.add(x=c.need(0), y=c.need(1))
    return c.ops.add(x=total, y=c.need(bias_at)) if c.has(bias_at) else total


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(c: NodeContext) -> tuple[Any, ...]:
    """``layer_norm(input + skip + bias)``, and the sum itself as fourth result."""
    total = _skip_sum(c, 4)
    if c.wants(1) or c.wants(2):
        raise Refused("it gives mean and deviation")
    return layer_norm_of(c, total, c.need(2), c[3], -1, c.attr("epsilon", 1e-12))[0], None, None, total


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(c: NodeContext) -> tuple[Any, ...]:
    total = _skip_sum(c, 3)
    if c.wants(1) or c.wants(2):
        raise Refused("it gives mean and deviation")
    return rms_norm_of(c, total, c.need(2), -1, c.attr("epsilon", 1e-12)), None, None, total


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(c: NodeContext) -> tuple[Any, ...]:
    """Word, position and segment embeddings summed and normalised; the mask's lengths; the sum."""
    ids, segments = c.need(0), c[1]
    length = type_of(ids).shape[1]
    total = c.ops.gather(x=c.need(2), indices=ids, axis=0)
    if c.has(8):
        places = c.ops.gather(x=c.need(3), indices=c.need(8), axis=0)
    else:
        table = c.need(3)
        places = c.ops.gather(x=table, indices=np.arange(length, dtype=np.int32), axis=0)
    total = c.ops.add(x=total, y=places)
    if segments is not None and c.has(4):
        total = c.ops.add(x=total, y=c.ops.gather(x=c.need(4), indices=segments, axis=0))
    y = c.layer_norm(total, [type_of(total).rank - 1], c.need(5), c.need(6), c.attr("epsilon", 1e-12))
    lengths: Operand = np.zeros(type_of(ids).shape[0], np.int32)
    if c.has(7):
        mask = c.cast(c.need(7), "int32")
        lengths = c.ops.reduce_sum(x=mask, axes=[1], keep_dims=False)
    return y, lengths, total


# -------------------------------------------------------------------------------------------------------- attention


def heads_of(c: NodeContext, x: Operand, heads: int) -> Operand:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, width = type_of(x).shape
    if width % heads:
        raise GraphError(f"{width} channels for {heads} heads")
    return c.transpose(c.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def attend(c: NodeContext, q: Operand, k: Operand, v: Operand, mask: Operand | None, scale: float | None) -> Operand:
    """``softmax(q k^T * scale + mask) v`` of [batch, heads, length, size], as [batch, length, heads * size]."""
    size = type_of(q).shape[-1]
    factor = scale if scale else 1 / np.sqrt(size)
    scores = c.scale(c.ops.matmul(x=q, y=k, transpose_y=True), factor)
    if mask is not None:
        scores = c.ops.add(x=scores, y=mask)
    y = c.ops.matmul(x=c.ops.softmax(x=scores, axis=-1), y=v)
    batch, heads, length, width = type_of(y).shape
    return c.reshape(c.transpose(y, (0, 2, 1, 3)), (batch, length, heads * width))


def _added(c: NodeContext, a: Operand | None, b: Operand | None) -> Operand | None:
    return b if a is None else a if b is None else c.ops.add(x=a, y=b)


def key_mask(c: NodeContext, mask: Operand, keys: int, like: Operand) -> Operand:
    """Summand for scores [batch, heads, queries, keys] from a mask of 0 and 1, or from key lengths."""
    shape = type_of(mask).shape
    low = c.attr("mask_filter_value", -10000.0)
    if len(shape) == 1:
        lengths = c.reshape(c.cast(mask, "int32"), (shape[0], 1, 1, 1))
        keep = c.ops.less(x=np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys), y=lengths)
    elif len(shape) == 2:
        keep = c.reshape(c.cast(mask, "bool"), (shape[0], 1, 1, shape[1]))
    elif len(shape) == 3:
        keep = c.reshape(c.cast(mask, "bool"), (shape[0], 1, *shape[1:]))
    else:
        raise Refused(f"its mask has the shape {shape}")
    return c.ops.select(cond=keep, a=c.like(0, like), b=c.like(low, like))


def causal_mask(c: NodeContext, queries: int, keys: int, like: Operand) -> np.ndarray:
    """No look at keys behind the query; the queries are the last of the keys."""
    keep = np.tril(np.ones((queries, keys), bool), keys - queries)
    carrier = type_of(like).carrier
    return (
        np.where(keep, 0, c.attr("mask_filter_value", np.finfo(carrier).min))
        .astype(carrier)
        .reshape(1, 1, queries, keys)
    )


@onnx_op("Attention", domain=MICROSOFT)
def attention(c: NodeContext) -> Operand:
    """Packed projection of query, key and value, then attention."""
    x, weight, heads = c.need(0), c.need(1), c.attr("num_heads")
    if c.has(4) or c.has(6) or c.wants(1):
        raise Refused("it keeps past keys and values")
    if c.attr("do_rotary", 0):
        raise Refused("it rotates its keys (do_rotary)")
    packed = product(c, x, weight)
    if c.has(2):
        packed = c.ops.add(x=packed, y=c.need(2))
    width = type_of(packed).shape[2]
    sizes = c.attr("qkv_hidden_sizes") or [width // 3] * 3
    q, k, v = (heads_of(c, part, heads) for part in c.ops.split(x=packed, split_sizes=sizes, axis=2))
    length = type_of(x).shape[1]
    mask = key_mask(c, c.need(3), length, q) if c.has(3) else None
    mask = _added(c, mask, c[5])
    if c.attr("unidirectional", 0):
        mask = _added(c, mask, causal_mask(c, length, length, q))
    return attend(c, q, k, v, mask, c.attr("scale"))


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(c: NodeContext) -> tuple[Any, ...]:
    """Attention of given queries, keys and values, with a bias on each and past keys in front."""
    q, k, v, heads = c.need(0), c[1], c[2], c.attr("num_heads")
    if k is None or v is None or type_of(q).rank != 3:
        raise Refused("its keys and values are packed")
    if c.has(8) or c.has(9):
        raise Refused("it keeps a shared buffer of past keys")
    if c.has(3):
        width = type_of(q).shape[2]
        bias = c.need(3)
        total = type_of(bias).shape[0]
        parts = c.ops.split(x=bias, split_sizes=[width, width, total - 2 * width], axis=0)
        q = c.ops.add(x=q, y=parts[0])
        if type_of(k).rank == 3:
            k, v = c.ops.add(x=k, y=parts[1]), c.ops.add(x=v, y=parts[2])
    q = heads_of(c, q, heads)
    k, v = (operand if type_of(operand).rank == 4 else heads_of(c, operand, heads) for operand in (k, v))
    if c.has(6):
        k, v = c.join((c.need(6), k), 2), c.join((c.need(7), v), 2)
    queries, keys = type_of(q).shape[2], type_of(k).shape[2]
    mask = key_mask(c, c.need(4), keys, q) if c.has(4) else None
    mask = _added(c, mask, c[5])
    if c.attr("unidirectional", 0):
        mask = _added(c, mask, causal_mask(c, queries, keys, q))
    return attend(c, q, k, v, mask, c.attr("scale")), k, v


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(c: NodeContext) -> Operand:
    """Pairs of channels turned by an angle that their position gives."""
    x, positions, cosines, sines = (c.need(index) for index in range(4))
    shape = type_of(x).shape
    half = type_of(cosines).shape[1]
    if c.attr("is_packed_batching", 0) or c.attr("scale", 1.0) != 1.0:
        raise Refused("it is packed, or scales its positions")
    rank = len(shape)
    heads = c.attr("num_heads", 0)
    if rank == 3:
        size = shape[2] // heads if heads else 2 * half
        x = heads_of(c, x, shape[2] // size)
    batch, _, length, size = type_of(x).shape
    where = type_of(positions).shape
    if where == (1,):
        positions = c.ops.add(x=np.arange(length, dtype=np.int64), y=c.cast(positions, "int64"))
        positions = c.reshape(positions, (1, length))
    cos, sin = (
        c.reshape(c.ops.gather(x=table, indices=positions, axis=0), (type_of(positions).shape[0], 1, length, half))
        for table in (cosines, sines)
    )
    rotary, rest = x, None
    if 2 * half < size:
        rotary, rest = c.ops.split(x=x, split_sizes=[2 * half, size - 2 * half], axis=3)
    count = type_of(x).shape[1]
    if c.attr("interleaved", 0):
        pairs = c.reshape(rotary, (batch, count, length, half, 2))
        a, b = (c.reshape(part, (batch, count, length, half)) for part in c.ops.split(x=pairs, num_splits=2, axis=4))
    else:
        a, b = c.ops.split(x=rotary, num_splits=2, axis=3)
    real = c.ops.sub(x=c.ops.mul(x=a, y=cos), y=c.ops.mul(x=b, y=sin))
    imaginary = c.ops.add(x=c.ops.mul(x=a, y=sin), y=c.ops.mul(x=b, y=cos))
    if c.attr("interleaved", 0):
        y = c.reshape(c.ops.stack(values=(real, imaginary), axis=4), (batch, count, length, 2 * half))
    else:
        y = c.join((real, imaginary), 3)
    if rest is not None:
        y = c.join((y, rest), 3)
    return y if rank == 4 else c.reshape(c.transpose(y, (0, 2, 1, 3)), shape)
