"""Parts that derivatives of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import KERNEL_BYTES_EVERYWHERE
from hexane.graph.ops._rules import axes_of

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def zero(d: Derivation) -> None:
    """The gradient of what is constant between its jumps."""
    return None


def passed(d: Derivation) -> Formula:
    """The result's gradient as it is."""
    return d.grad


def reshaped(d: Derivation) -> Formula:
    """The gradient of an op that only changes the shape of its ``x``."""
    return d.grad.shaped(d.x.shape)


def channels(vector: Formula, rank: int) -> Formula:
    """A vector with one number per channel, ready to broadcast against [N, C, *D]."""
    return vector.shaped((1, -1 if 0 in vector.shape else vector.shape[0], *(1,) * (rank - 2)))


def per_channel(full: Formula, vector: Formula) -> Formula:
    """The sum of a tensor [N, C, *D] for each channel, in the shape of a vector [C] or [1]."""
    return full.summed_to(channels(vector, full.rank).shape).shaped(vector.shape)


def with_kept_axes(term: Formula, x: Formula, axes: Any) -> Formula:
    """A reduction's result, or its gradient, with the reduced axes of ``x`` as axes of one element."""
    gone = set(axes_of(axes, x.rank))
    return term.shaped([1 if axis in gone else extent for axis, extent in enumerate(x.shape)])


def through_matrix(d: Derivation, term: Formula, axis: int, matrix: np.ndarray) -> Formula:
    """A constant matrix [M, n] times every vector of n elements along an axis."""
    shape = term.shape
    before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
    factor = d.constant(matrix, term)
    if after == 1:
        product = term.shaped((before, shape[axis])).matmul(y=factor, transpose_y=True)
    else:
        product = factor.matmul(y=term.shaped((before, shape[axis], after)))
    return product.shaped((*shape[:axis], matrix.shape[0], *shape[axis + 1 :]))


LONGEST_SUM = KERNEL_BYTES_EVERYWHERE // 16
"""Terms of one matrix product of two computed operands: more do not fit a core of every generation."""


def summed_product(x: Formula, y: Formula, axis: int) -> Formula:
    """Products of matrices summed along the last axis of both, or the last but one, in parts where it is long."""
    length = x.shape[axis]
    side = {"transpose_x": True} if axis == -2 else {"transpose_y": True}
    parts = [
        x.cut(axis % x.rank, start, size).matmul(y=y.cut(axis % y.rank, start, size), **side)
        for start in range(0, max(length, 1), LONGEST_SUM)
        for size in (min(LONGEST_SUM, length - start),)
    ]
    return reduce(add, parts)


def joined(parts: Sequence[Formula], axis: int) -> Formula:
    """Parts one after the other along an axis."""
    return parts[0] if len(parts) == 1 else parts[0].op("concat", values=tuple(parts), axis=axis)


def tap(
    term: Formula, offset: Sequence[int], steps: Sequence[int], spread: Sequence[int], out: Sequence[int]
) -> Formula:
    """Elements that one kernel position of a convolution over [N, C, *D] meets, [N, C, *out]."""
    begin = [0, 0, *(k * dilation for k, dilation in zip(offset, spread))]
    end = [*term.shape[:2], *(b + (n - 1) * s + 1 for b, n, s in zip(begin[2:], out, steps))]
    if (begin, end) == ([0] * term.rank, list(term.shape)) and max(steps) == 1:
        return term
    return term.slice_by_index(begin=begin, end=end, stride=[1, 1, *steps])
