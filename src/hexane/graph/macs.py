"""Multiply-accumulates of an op: the one place that counts them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hexane.errors import HexaneError
from hexane.graph.ops.linear import parse_equation
from hexane.graph.parts import Op


def _conv(op: Op) -> int:
    weight = op.inputs["weight"]
    return prod(op.output.shape) * prod(weight.shape[1:])


def _deformable_conv(op: Op) -> int:
    return prod(op.output.shape) * prod(op.inputs["W"].shape[1:])


def _conv_transpose(op: Op) -> int:
    return prod(op.inputs["x"].shape) * prod(op.inputs["weight"].shape[1:])


def _matmul(op: Op) -> int:
    x = op.inputs["x"]
    inner = x.shape[-2] if x.rank > 1 and op.arg("transpose_x") else x.shape[-1]
    return prod(op.output.shape) * inner


def _linear(op: Op) -> int:
    return prod(op.output.shape) * op.inputs["x"].shape[-1]


def _einsum(op: Op) -> int:
    values = op.inputs["values"]
    terms, _ = parse_equation(op.arg("equation"), [value.rank for value in values])
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values):
        for letter, extent in zip(term, value.shape):
            sizes[letter] = max(sizes.get(letter, 1), extent)
    return prod(sizes.values())


def _attention(op: Op) -> int:
    q, k, v = (op.inputs[name] for name in ("query", "key", "value"))
    return prod(op.output.shape[:-2]) * q.shape[-2] * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _recurrent(op: Op) -> int:
    steps, batch = op.inputs["x"].shape[:2]
    weights = [op.inputs[n] for n in ("weight_ih", "weight_hh", "weight_ih_back", "weight_hh_back") if n in op.inputs]
    return steps * batch * sum(prod(weight.shape) for weight in weights)


def _onnx_recurrent(op: Op) -> int:
    """Every step of every sequence meets all of W and R, in each direction."""
    first, second = op.inputs["X"].shape[:2]
    return first * second * (prod(op.inputs["W"].shape) + prod(op.inputs["R"].shape))


_RULES: dict[str, Callable[[Op], int]] = {
    "conv": _conv,
    "conv_quantized": _conv,
    "conv_transpose": _conv_transpose,
    "matmul": _matmul,
    "linear": _linear,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    "rnn": _recurrent,
    "gru": _recurrent,
    "lstm": _recurrent,
    "onnx.RNN": _onnx_recurrent,
    "onnx.GRU": _onnx_recurrent,
    "onnx.LSTM": _onnx_recurrent,
    "onnx.DeformConv": _deformable_conv,
}


def own_macs(op: Op) -> int:
    """Multiply-accumulates of the op itself; 0 where it sums no products, and where extents depend on data."""
    rule = _RULES.get(op.type)
    if rule is None:
        return 0
    try:
        return int(rule(op))
    except (HexaneError, KeyError, TypeError):
        return 0


def macs_of(op: Op) -> int:
    """The same with the ops of its inner blocks, each counted once: how often a loop turns is not known."""
    return own_macs(op) + sum(own_macs(inner) for block in op.blocks for inner in block.walk())
