"""Layers that PyTorch's own inference path has as one operator, in the operators that they stand for.

``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` call these in ``eval`` where no derivatives are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear, relu

Arguments = SimpleNamespace
"""The arguments of an operator by the names of its schema."""

KEYS = 1
"""``mask_type`` of a mask [batch, keys]; others broadcast to [batch, heads, queries, keys] as they are."""


def fused() -> dict[Any, Callable[..., Any]]:
    """The operators, and what they stand for."""
    aten = torch.ops.aten
    layers = {
        aten._native_multi_head_attention.default: _with_weights,
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }
    return {operator: _by_name(operator, layer) for operator, layer in layers.items()}


def _by_name(operator: Any, layer: Callable[[Arguments], Any]) -> Callable[..., Any]:
    schema = operator._schema.arguments
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    names = [argument.name for argument in schema]
    return lambda *values, **more: layer(Arguments(**defaults | dict(zip(names, values)) | more))


def _attention(x: tuple[torch.Tensor, torch.Tensor, torch.Tensor], arguments: Arguments, heads: int) -> Any:
    """The result of query, key and value [batch, tokens, features], and weights [batch, heads, queries, keys].

    What a mask marks, by True or another number than 0, is left out.
    """
    parts = zip(x, arguments.qkv_weight.chunk(3), arguments.qkv_bias.chunk(3))
    q, k, v = (linear(part, w, b).unflatten(-1, (heads, -1)).transpose(1, 2) for part, w, b in parts)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if arguments.mask is not None:
        out = arguments.mask[:, None, None, :] if arguments.mask_type == KEYS else arguments.mask
        scores = scores.masked_fill(out.bool(), float("-inf"))
    weights = scores.softmax(-1)
    return linear((weights @ v).transpose(1, 2).flatten(2), arguments.proj_weight, arguments.proj_bias), weights


def _with_weights(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """``_native_multi_head_attention``: nothing is in the weights where nobody needs them."""
    result, weights = _attention((arguments.query, arguments.key, arguments.value), arguments, arguments.num_head)
    if not arguments.need_weights:
        return result, result.new_empty(0)
    return result, weights.mean(1) if arguments.average_attn_weights else weights


def _encoder_layer(arguments: Arguments) -> torch.Tensor:
    """``_transformer_encoder_layer_fwd``: attention and two linear layers, each with its norm and residual."""

    def normed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (arguments.embed_dim,), weight, bias, arguments.eps)

    def attended(x: torch.Tensor) -> Any:
        return _attention((x, x, x), arguments, arguments.num_heads)[0]

    def fed_forward(x: torch.Tensor) -> torch.Tensor:
        inner = linear(x, arguments.ffn_weight_1, arguments.ffn_bias_1)
        return linear(gelu(inner) if arguments.use_gelu else relu(inner), arguments.ffn_weight_2, arguments.ffn_bias_2)

    first = arguments.norm_weight_1, arguments.norm_bias_1
    second = arguments.norm_weight_2, arguments.norm_bias_2
    if arguments.norm_first:
        x = arguments.src + attended(normed(arguments.src, *first))
        return x + fed_forward(normed(x, *second))
    x = normed(arguments.src + attended(arguments.src), *first)
    return normed(x + fed_forward(x), *second)
