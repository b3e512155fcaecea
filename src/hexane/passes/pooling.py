"""Pools as reductions and convolutions."""

from __future__ import annotations

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.pooling import pool_geometry_of, window_counts
from hexane.graph.registry import with_trait
from hexane.graph.traits import POOLS
from hexane.lowering.windows import LARGEST_PAD, TALLEST
from hexane.passes.rewriting import NUMPY_FLOATS, as_dtype, is_static, sweep


def legalise_pools(function: Function) -> int:
    """Write mean pools as reductions (whole maps) or depthwise convolutions of ones: both are tasks that are known."""
    rules = {"avg_pool": _mean, "l2_pool": _root, "max_pool": _maximum}
    return sweep(function, dict.fromkeys(with_trait(POOLS), _raise_rank)) + sweep(function, rules)


def _is_global(op: Op) -> bool:
    _, _, reach, out = pool_geometry_of(op)
    return tuple(op.arg("kernel_sizes")) == op.inputs["x"].shape[2:] and not any(map(any, reach)) and set(out) == {1}


def _maximum(op: Op, b: GraphBuilder) -> Value | None:
    """A window as large as the map is a reduction."""
    x = op.inputs["x"]
    if not is_static(x) or len(x.shape) != 4:
        return None
    if _is_global(op):
        return b.reduce_max(x=x, axes=[2, 3], keep_dims=True)
    return None


def _raise_rank(op: Op, b: GraphBuilder) -> Value | None:
    """The pool over [N, C, L] as one over [N, C, 1, L]."""
    x = op.inputs["x"]
    if not is_static(x) or len(x.shape) != 3:
        return None
    steps, pads, _, _ = pool_geometry_of(op)
    tall = b.expand_dims(x=x, axes=[2])
    operands = {k: v for k, v in op.inputs.items() if k in ("ceil_mode", "exclude_padding_from_average")}
    result = b.op(
        op.type,
        **operands,
        x=tall,
        kernel_sizes=[1, *op.arg("kernel_sizes")],
        strides=[1, *steps],
        pad_type="custom",
        pad=[0, 0, *pads[0]],
    )
    return b.squeeze(x=result, axes=[2])


def _mean(op: Op, b: GraphBuilder) -> Value | None:
    """Sum by a depthwise convolution of ones, then 1 / count: a number, or a map where windows are cut."""
    x = op.inputs["x"]
    if not is_static(x) or len(x.shape) != 4:
        return None
    if _is_global(op):
        return b.reduce_mean(x=x, axes=[2, 3], keep_dims=True)
    if not _has_kernel(op) or x.dtype not in NUMPY_FLOATS:
        return None
    total = _window_sum(x, op, b)
    count = _counts(op)
    if np.all(count == count.flat[0]):
        return b.mul(x=total, y=float(1 / count.flat[0]))
    return b.mul(x=total, y=as_dtype(1 / count, x))


def _root(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    if not is_static(x) or len(x.shape) != 4 or not _has_kernel(op):
        return None
    return b.sqrt(x=_window_sum(b.square(x=x), op, b))


def _has_kernel(op: Op) -> bool:
    """True where a kernel of the window's size can be a task's; the host sums larger windows axis by axis."""
    _, _, reach, _ = pool_geometry_of(op)
    return max(op.arg("kernel_sizes")) <= TALLEST and max(map(max, reach)) <= LARGEST_PAD


def _window_sum(x: Value, op: Op, b: GraphBuilder) -> Value:
    steps, _, reach, _ = pool_geometry_of(op)
    channels, size = x.shape[1], op.arg("kernel_sizes")
    ones = as_dtype(np.ones((channels, 1, *size)), x)
    flat = [w for pair in reach for w in pair]
    return b.conv(x=x, weight=ones, strides=list(steps), pad_type="custom", pad=flat, groups=channels)


def _counts(op: Op) -> np.ndarray:
    """Elements that each window's mean counts, as a map [1, 1, Hout, Wout]."""
    rows, columns = axis_counts(op)
    return (rows[:, None] * columns[None, :])[None, None]


def axis_counts(op: Op) -> list[np.ndarray]:
    """Elements along each spatial axis that the means of its windows count: float64 arrays, one number per result."""
    shape, sizes, excluded = op.inputs["x"].shape, op.arg("kernel_sizes"), op.arg("exclude_padding_from_average")
    return [numbers.astype(np.float64) for numbers in window_counts(shape, sizes, pool_geometry_of(op), excluded)]
