"""Matrix products, attention and einsum (docs/reference/mil.md 5.3)."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import passed, summed_product
from hexane.graph.ops._rules import broadcast, channel_vector
from hexane.graph.registry import op
from hexane.graph.traits import PRODUCTS
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def _matmul_type(x: TensorType, y: TensorType, transpose_x: bool, transpose_y: bool) -> TensorType:
    if not x.rank or not y.rank:
        raise GraphError("a matrix product of a scalar")
    left_shape = (1, *x.shape) if x.rank == 1 else x.shape
    right = (*y.shape, 1) if y.rank == 1 else y.shape
    if transpose_x and x.rank > 1:
        left_shape = (*left_shape[:-2], left_shape[-1], left_shape[-2])
    if transpose_y and y.rank > 1:
        right = (*right[:-2], right[-1], right[-2])
    if left_shape[-1] != right[-2]:
        raise GraphError(f"inner extents {left_shape[-1]} and {right[-2]} differ (shapes {x.shape} and {y.shape})")
    shape = [*broadcast(left_shape[:-2], right[:-2]), left_shape[-2], right[-1]]
    if y.rank == 1:
        del shape[-1]
    if x.rank == 1:
        del shape[len(shape) - (1 if y.rank == 1 else 2)]
    return TensorType(x.dtype, tuple(shape))


def _matmul_gradient(d: Derivation, of: str) -> Formula:
    """Of [.., M, K] times [.., K, N]; a matrix that many rows meet meets them at once, not batch by batch."""
    x, y, tx, ty = d.x, d.y, d.transpose_x and d.x.rank > 1, d.transpose_y and d.y.rank > 1
    if x.rank == 1:
        x = x.shaped((1, *x.shape))
    if y.rank == 1:
        y = y.shaped((*y.shape, 1))
    rows, columns = x.shape[-1 if tx else -2], y.shape[-2 if ty else -1]
    grad = d.grad.shaped((*broadcast(x.shape[:-2], y.shape[:-2]), rows, columns))
    if of == "x":
        product = grad.matmul(y=y, transpose_y=not ty) if not tx else y.matmul(y=grad, transpose_x=ty, transpose_y=True)
        return product.summed_to(x.shape).shaped(d.x.shape)
    if y.rank == 2 and not tx:
        count = prod(x.shape[:-1])
        x, grad = x.shaped((count, x.shape[-1])), grad.shaped((count, columns))
        return (summed_product(grad, x, -2) if ty else summed_product(x, grad, -2)).shaped(d.y.shape)
    product = grad.matmul(y=x, transpose_x=True, transpose_y=tx) if ty else x.matmul(y=grad, transpose_x=not tx)
    return product.summed_to(y.shape).shaped(d.y.shape)


@op(
    "matmul",
    "x:N y:M transpose_x:bool=False transpose_y:bool=False",
    infer=_matmul_type,
    traits=PRODUCTS,
    derivative={"x": partial(_matmul_gradient, of="x"), "y": partial(_matmul_gradient, of="y")},
)
def matmul(x: np.ndarray, y: np.ndarray, transpose_x: bool, transpose_y: bool) -> np.ndarray:
    """[.., M, K] times [.., K, N]; batch axes broadcast, rank 1 means one row or one column."""
    if transpose_x and x.ndim > 1:
        x = x.swapaxes(-1, -2)
    if transpose_y and y.ndim > 1:
        y = y.swapaxes(-1, -2)
    return np.matmul(x, y.astype(x.dtype, copy=False))


def _linear_type(x: TensorType, weight: TensorType, bias: TensorType | None) -> TensorType:
    if x.rank < 1 or weight.rank != 2 or x.shape[-1] != weight.shape[1]:
        raise GraphError(
            f"x {x.shape} and weight {weight.shape} do not go together", hint="weight is [outputs, inputs]"
        )
    channel_vector(bias, weight.shape[0], "bias")
    return x.with_shape((*x.shape[:-1], weight.shape[0]))


def _weight_gradient(d: Derivation) -> Formula:
    outputs, inputs = d.weight.shape
    count = prod(d.x.shape[:-1])
    return summed_product(d.grad.shaped((count, outputs)), d.x.shaped((count, inputs)), -2)


@op(
    "linear",
    "x:N weight:M bias:M?",
    infer=_linear_type,
    traits=PRODUCTS,
    derivative={"x": lambda d: d.grad.matmul(y=d.weight), "weight": _weight_gradient, "bias": passed},
)
def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """x times the transposed weight [O, K], plus bias [O]."""
    rows = np.ascontiguousarray(x).reshape(prod(x.shape[:-1]), x.shape[-1]) @ weight.astype(x.dtype, copy=False).T
    if bias is not None:
        rows += bias.astype(x.dtype, copy=False)
    return rows.reshape(*x.shape[:-1], weight.shape[0])


def parse_equation(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Terms and result of an einsum equation with ``...`` spelled out in spare letters; GraphError when malformed."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise GraphError(f"the equation {equation!r} has {len(terms)} operands, {len(ranks)} were given")
    letters = set(text) - set(",->.")
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise GraphError(f"{equation!r} is no einsum equation")
    spare = [chr(c) for c in (*range(65, 91), *range(97, 123)) if chr(c) not in letters]
    widest = max((rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks) if "..." in term), default=0)
    if widest > len(spare) or widest < 0:
        raise GraphError(f"{equation!r} does not fit operands of rank {ranks}")
    dots = "".join(spare[:widest])
    full = []
    for term, rank in zip(terms, ranks):
        if term.count("...") > 1 or "." in term.replace("...", ""):
            raise GraphError(f"{equation!r} is no einsum equation")
        count = rank - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term):
            raise GraphError(f"the term {term!r} of {equation!r} does not fit rank {rank}")
        full.append(term.replace("...", dots[len(dots) - count :] if count else ""))
    if arrow:
        result = right.replace("...", dots)
    else:
        labels = "".join(full)
        result = dots + "".join(sorted(c for c in set(labels) if labels.count(c) == 1 and c not in dots))
    letters_present = set("".join(full))
    if len(set(result)) != len(result) or not set(result) <= letters_present or "." in result:
        raise GraphError(f"the result {right!r} of {equation!r} is malformed")
    return full, result


def _einsum_type(values: tuple[TensorType, ...], equation: str) -> TensorType:
    terms, result = parse_equation(equation, [type_.rank for type_ in values])
    sizes: dict[str, int] = {}
    for term, type_ in zip(terms, values):
        for letter, extent in zip(term, type_.shape):
            earlier = sizes.setdefault(letter, extent)
            if earlier == 1:
                sizes[letter] = extent
            elif extent not in (1, earlier):
                raise GraphError(f"axis {letter!r} of {equation!r} is {earlier} and {extent}")
    return TensorType(values[0].dtype, tuple(sizes[letter] for letter in result))


def _einsum_gradients(d: Derivation) -> tuple[Formula | None, ...]:
    """Each operand's by an equation in which result and operand have changed places."""
    values = d.values
    terms, result = parse_equation(d.equation, [value.rank for value in values])
    if any(len(set(term)) < len(term) for term in terms):
        raise d.refuse(f"an operand of {d.equation!r} has a letter twice: its diagonal has no derivative here")
    gradients = []
    for number, (term, value) in enumerate(zip(terms, values)):
        others = [(t, v) for i, (t, v) in enumerate(zip(terms, values)) if i != number]
        parts = [(result, d.grad), *others]
        sizes = {c: n for t, v in reversed(parts) for c, n in zip(t, v.shape) if n != 1}
        common = "".join(c for c in term if any(c in t for t, _ in parts))
        equation = ",".join(t for t, _ in parts) + "->" + common
        share = d.grad.op("einsum", values=tuple(v for _, v in parts), equation=equation)
        # letters that only this operand has: every element counts the same
        share = share.shaped([n if c in common else 1 for c, n in zip(term, _extents(term, common, share))])
        full = [sizes.get(c, n) if c in common else n for c, n in zip(term, value.shape)]
        gradients.append(share.spread(full).summed_to(value.shape))
    return tuple(gradients)


def _extents(term: str, common: str, share: Formula) -> list[int]:
    extents = dict(zip(common, share.shape))
    return [extents.get(c, 1) for c in term]


@op("einsum", "values:N* equation:str", infer=_einsum_type, derivative={"values": _einsum_gradients})
def einsum(values: tuple[np.ndarray, ...], equation: str) -> np.ndarray:
    """Einstein summation in any letters; the engine takes the patterns of docs/reference/mil.md 5.3 only."""
    terms, result = parse_equation(equation, [value.ndim for value in values])
    return np.einsum(",".join(terms) + "->" + result, *values, optimize=len(values) < 8)


def _attention_type(query: TensorType, key: TensorType, value: TensorType, attn_mask: TensorType | None) -> TensorType:
    if query.rank < 3 or key.rank != query.rank or value.rank != query.rank:
        raise GraphError(
            f"query, key and value have ranks {query.rank}, {key.rank}, {value.rank}; one rank from 3 on is needed"
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise GraphError(f"query {query.shape}, key {key.shape} and value {value.shape} do not go together")
    batch = broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    if attn_mask is not None:
        if attn_mask.dtype not in ("bool", query.dtype):
            raise GraphError(f"attn_mask is {attn_mask.dtype}", hint=f"bool or {query.dtype}")
        scores = (*batch, query.shape[-2], key.shape[-2])
        if broadcast(attn_mask.shape, scores) != scores:
            raise GraphError(f"attn_mask {attn_mask.shape} does not broadcast to {scores}")
    return query.with_shape((*batch, query.shape[-2], value.shape[-1]))


_LOWEST = {"fp16": -6e4, "bf16": -3e38, "fp32": -3e38, "fp64": -1e300}
"""A score that counts as none, by dtype."""


def _attention_gradient(d: Derivation, of: str) -> Formula:
    """The weights are computed again; of a row that is masked all over they are zero."""
    query, key, value, mask = d.query, d.key, d.value, d.attn_mask
    scale = float(1 / np.sqrt(query.shape[-1]))
    scores, counts = query.matmul(y=key, transpose_y=True) * scale, None
    if mask is not None:
        lowest = d.constant(_LOWEST[scores.dtype], scores)
        if mask.dtype == "bool":
            scores, counts = mask.select(a=scores, b=lowest), mask.cast(dtype=scores.dtype)
        else:
            scores = (scores + mask).maximum(y=lowest)
            counts = scores.where("greater", lowest)
    weights = scores.softmax(axis=-1)
    if counts is not None:
        weights = weights * counts
    if of == "value":
        return weights.matmul(y=d.grad, transpose_x=True)
    shares = d.grad.matmul(y=value, transpose_y=True)
    shares = weights * (shares - (weights * shares).total([-1], keep=True))
    if of == "attn_mask":
        return shares
    return (shares.matmul(y=key) if of == "query" else shares.matmul(y=query, transpose_x=True)) * scale


@op(
    "scaled_dot_product_attention",
    "query:T key:T value:T attn_mask:M?",
    infer=_attention_type,
    since=18,
    derivative={name: partial(_attention_gradient, of=name) for name in ("query", "key", "value", "attn_mask")},
    M=("bool", "fp16", "fp32", "fp64"),
)
def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any) -> np.ndarray:
    """softmax(query key^T / sqrt(E) + mask) value; a bool mask keeps where it is true."""
    scores = np.matmul(query, key.swapaxes(-1, -2)) * query.dtype.type(1 / np.sqrt(query.shape[-1]))
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == bool else scores + attn_mask
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.matmul(weights / np.where(total == 0, 1, total), value).astype(query.dtype)
