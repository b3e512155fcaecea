"""Products that are written otherwise: attention, einsum."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.linear import parse_equation
from hexane.passes.rewriting import as_dtype, is_static, sweep

MASKED = -30000.0
"""What a hidden score becomes: its exponential is 0 beside any other, and it stays finite in fp16."""


def legalise_contractions(function: Function) -> int:
    """Write attention and einsum of two operands as matrix products, softmax and transpositions."""
    return sweep(function, {"scaled_dot_product_attention": _attention, "einsum": _einsum})


def _for_floats(op: Op) -> bool:
    return op.output.dtype in ("fp16", "fp32") and is_static(op.output) and all(is_static(v) for v in op.operands())


def _attention(op: Op, b: GraphBuilder) -> Value | None:
    """softmax(q k^T / sqrt(d) + mask) v. A row that a bool mask hides altogether has no defined weights."""
    if not _for_floats(op) or 0 in op.inputs["query"].shape:
        return None
    query, mask = op.inputs["query"], op.inputs.get("attn_mask")
    scale = 1 / sqrt(query.shape[-1])
    scores = b.mul(x=b.matmul(x=query, y=op.inputs["key"], transpose_y=True), y=scale)
    if mask is not None:
        if mask.dtype == "bool":
            mask = b.select(cond=mask, a=as_dtype(np.zeros(1), query), b=as_dtype(np.full(1, MASKED), query))
        scores = b.add(x=scores, y=mask)
    return b.matmul(x=b.softmax(x=scores, axis=-1), y=op.inputs["value"])


def _einsum(op: Op, b: GraphBuilder) -> Value | None:
    """Operands as [batch, rows, summed] and [batch, summed, columns], then one batched product."""
    values = op.inputs["values"]
    if not _for_floats(op) or len(values) != 2:
        return None
    (left, right), result = parse_equation(op.arg("equation"), [len(v.shape) for v in values])
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        return None
    extents = dict(zip(left, values[0].shape)) | dict(zip(right, values[1].shape))
    if any(extents[c] != n for term, v in zip((left, right), values) for c, n in zip(term, v.shape)):
        return None  # an extent of 1 that is broadcast
    shared = [c for c in left if c in right]
    batch, summed = [c for c in shared if c in result], [c for c in shared if c not in result]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]
    if not result or not summed or any(c not in result for c in (*rows, *columns)):
        return None
    first = _arranged(values[0], left, (batch, rows, summed), extents, b)
    second = _arranged(values[1], right, (batch, summed, columns), extents, b)
    order = [*batch, *rows, *columns]
    einsum = b.reshape(x=b.matmul(x=first, y=second), shape=[extents[c] for c in order] or [1])
    if order != list(result):
        einsum = b.transpose(x=einsum, perm=[order.index(c) for c in result])
    return einsum


def _arranged(value: Value, term: str, parts: tuple[list[str], ...], extents: dict[str, int], b: GraphBuilder) -> Value:
    order = [c for part in parts for c in part]
    perm = [term.index(c) for c in order]
    if perm != sorted(perm):
        value = b.transpose(x=value, perm=perm)
    shape = [prod(extents[c] for c in part) for part in parts]
    return value if tuple(shape) == value.shape else b.reshape(x=value, shape=shape)
