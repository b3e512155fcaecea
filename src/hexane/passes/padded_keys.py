"""Attention over an odd number of keys, of which no kernels can be cut: keys that nobody sees are added.

Rows of zeros are added to k and v, and a mask hides them: their weights are exactly 0.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hexane.lowering.attention import Attention, Sizes, mask_of, times_scale
from hexane.passes.attention import square_up, usual_form
from hexane.passes.rewriting import as_dtype, known, sweep
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

STEP = 8
"""Keys are added up to a multiple of this: cores then take eight rows of a kernel side by side."""

FEW_SCORES = 16_384
"""Below this nothing is gained: changes of unit take the time (``unit_switch_us``)."""


def pad_keys(function: Function, compilation: Compilation) -> int:
    """Add keys that a mask hides to attention over an odd number of them, so that it can have keys as channels."""
    if not (compilation.on.padded_keys and compilation.on.keys_as_channels):
        return 0
    square_up(function, compilation)
    return sweep(function, {"matmul": partial(_padded, compilation)})


def _wider(sizes: Sizes) -> Sizes:
    return replace(sizes, keys=align(sizes.keys, STEP), mask_heads=1)


def _suits_padded(compilation: Compilation, sizes: Sizes) -> bool:
    scores = sizes.heads * sizes.queries * sizes.keys
    return (
        sizes.keys % 2 == 1
        and scores >= FEW_SCORES
        and not sizes.suits(compilation)
        and _wider(sizes).suits(compilation)
    )


def _padded(compilation: Compilation, op: Op, b: GraphBuilder) -> Value | None:
    attention = usual_form(op, partial(_suits_padded, compilation))
    if attention is None:
        return None
    q, k, v = attention.scores.inputs["x"], attention.scores.inputs["y"], op.inputs["y"]
    queries, keys = attention.scores.output.shape[-2:]
    more = -keys % STEP
    transposed = not attention.scores.arg("transpose_y")
    scores = b.matmul(x=q, y=_more_tokens(k, more, -1 if transposed else -2, b), transpose_y=not transposed)
    scores = times_scale(attention, scores, b)
    scores = b.add(x=scores, y=_mask(attention, (queries, keys), more, b))
    weights = b.softmax(x=scores, axis=-1)
    return b.matmul(x=weights, y=_more_tokens(v, more, -2, b))


def _mask(attention: Attention, shape: tuple[int, int], more: int, b: GraphBuilder) -> Value:
    mask = mask_of(attention)
    if mask is not None and not mask.is_constant:
        return b.pad(x=mask, pad=[0, more], mode="constant", constant_val=-np.inf)
    data = np.zeros((1, 1, *shape)) if mask is None else np.asarray(mask.data)
    hidden = np.full((*data.shape[:-1], more), -np.inf)
    return b.const(as_dtype(np.concatenate([data, hidden], axis=-1), attention.scores.output))


def _more_tokens(value: Value, more: int, axis: int, b: GraphBuilder) -> Value:
    """Heads with rows of zeros behind their tokens; rows that only moves lead from get them before the moves."""
    turn = value.op
    cut = None if turn is None or turn.type != "transpose" or value.only_user is None else turn.inputs["x"].op
    if turn is not None and cut is not None and cut.type == "reshape" and cut.output.only_user is turn:
        rows, (images, tokens, heads, dims) = cut.inputs["x"], cut.output.shape
        whole = images == 1 and tuple(rows.shape[-2:]) == (tokens, heads * dims) and known(turn.arg("perm"))
        if whole and len(rows.shape) <= 3 and list(turn.arg("perm")).index(1) == 4 + axis:
            longer = b.pad(x=rows, pad=[0, more, 0, 0], mode="constant", constant_val=0.0)
            split = b.reshape(x=longer, shape=[1, tokens + more, heads, dims])
            return b.transpose(x=split, perm=list(turn.arg("perm")))
    pad = [0, more] if axis == -1 else [0, more, 0, 0]
    return b.pad(x=value, pad=pad, mode="constant", constant_val=0.0)
