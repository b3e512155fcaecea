"""Pooling windows in one to three dimensions (docs/reference/mil.md 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import per_axis, positive, rank_between
from hexane.graph.ops.conv import pad_spatial, window_pads
from hexane.graph.registry import op
from hexane.graph.types import TensorType


def pool_geometry(
    x: Sequence[int], kernel_sizes: Sequence[int], strides: Any, pad_type: str, pad: Any, ceil_mode: bool
) -> tuple[tuple[int, ...], list[tuple[int, int]], list[tuple[int, int]], tuple[int, ...]]:
    """Strides, pads as asked for, pads that the last windows reach, and output extents.

    With ``ceil_mode`` a last window that would begin in the padding after the input is left out.
    """
    rank = len(x) - 2
    per_axis(kernel_sizes, rank, 1, "kernel_sizes")
    steps = per_axis(strides, rank, 1, "strides")
    positive(kernel_sizes, "kernel_sizes")
    positive(steps, "strides")
    pads = window_pads(pad_type, pad, x[2:], kernel_sizes, steps, (1,) * rank)
    reach, out = [], []
    for extent, k, stride, (before, after) in zip(x[2:], kernel_sizes, steps, pads):
        room = extent + before + after - k
        if min(before, after) < 0:
            raise GraphError("pads of a pool must not be negative")
        if room < 0 and not (ceil_mode and room > -stride):
            raise GraphError(f"a window of {k} does not fit into {extent + before + after}")
        count = (-(-room // stride) if ceil_mode else room // stride) + 1
        if ceil_mode and (count - 1) * stride >= extent + before and (before > 0 or after > 0):
            count -= 1
        if count < 1:
            raise GraphError(f"a window of {k} does not fit into {extent + before + after}")
        out.append(count)
        reach.append((before, max((count - 1) * stride + k - extent - before, after)))
    return steps, pads, reach, tuple(out)


def pool_type(
    x: TensorType, kernel_sizes: Any, strides: Any, pad_type: str, pad: Any, ceil_mode: bool, **_: Any
) -> TensorType:
    rank_between(x, 3, 5)
    out = pool_geometry(x.shape, kernel_sizes, strides, pad_type, pad, ceil_mode)[3]
    return x.with_shape((*x.shape[:2], *out))


def fold_windows(
    x: np.ndarray, kernel: Sequence[int], steps: Sequence[int], out: Sequence[int], combine: Any
) -> np.ndarray:
    """Combine the elements of every window, one axis after the other (the operation is separable)."""
    for axis, (k, stride, count) in enumerate(zip(kernel, steps, out), start=2):
        lead = (slice(None),) * axis
        total = x[(*lead, slice(0, (count - 1) * stride + 1, stride))].copy()
        for offset in range(1, k):
            combine(total, x[(*lead, slice(offset, offset + (count - 1) * stride + 1, stride))], out=total)
        x = total
    return x


_POOL = "x:T kernel_sizes:ints strides:ints? pad_type:str pad:ints? ceil_mode:bool=False"


@op("max_pool", _POOL, infer=pool_type)
def max_pool(x: np.ndarray, kernel_sizes: Any, strides: Any, pad_type: str, pad: Any, ceil_mode: bool) -> np.ndarray:
    """The largest element of each window; padding never wins."""
    steps, _, reach, out = pool_geometry(x.shape, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return fold_windows(pad_spatial(x, reach, -np.inf), kernel_sizes, steps, out, np.maximum)


@op("avg_pool", _POOL + " exclude_padding_from_average:bool=False", infer=pool_type)
def avg_pool(
    x: np.ndarray,
    kernel_sizes: Any,
    strides: Any,
    pad_type: str,
    pad: Any,
    ceil_mode: bool,
    exclude_padding_from_average: bool,
) -> np.ndarray:
    """The mean of each window; padding counts as zeros, or not at all. What ``ceil_mode`` adds beyond never counts."""
    steps, pads, reach, out = pool_geometry(x.shape, kernel_sizes, strides, pad_type, pad, ceil_mode)
    total = fold_windows(pad_spatial(x, reach), kernel_sizes, steps, out, np.add)
    for axis, (extent, k, stride, count, (before, after)) in enumerate(
        zip(x.shape[2:], kernel_sizes, steps, out, pads), start=2
    ):
        low, high = (before, before + extent) if exclude_padding_from_average else (0, before + extent + after)
        starts = np.arange(count) * stride
        inside = np.minimum(starts + k, high) - np.maximum(starts, low)
        shape = [1] * x.ndim
        shape[axis] = count
        total /= np.maximum(inside, 1).astype(x.dtype).reshape(shape)
    return total


@op("l2_pool", _POOL, infer=pool_type)
def l2_pool(x: np.ndarray, kernel_sizes: Any, strides: Any, pad_type: str, pad: Any, ceil_mode: bool) -> np.ndarray:
    """The square root of the sum of squares of each window."""
    steps, _, reach, out = pool_geometry(x.shape, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return np.sqrt(fold_windows(np.square(pad_spatial(x, reach)), kernel_sizes, steps, out, np.add))
