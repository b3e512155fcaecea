"""Resizing of maps."""

from __future__ import annotations

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.resize import _upsample_mode, linear_along, sample_points
from hexane.passes.rewriting import as_dtype, is_static, known, sweep


def legalise_resampling(function: Function) -> int:
    """Nearest neighbour by whole factors is copying; linear resizing is a product with a constant matrix per axis."""
    return sweep(function, dict.fromkeys(RESIZES, _resize))


MOST_WEIGHTS = 1 << 24
"""Elements of a matrix of interpolation weights up to which an axis is resized on the engine: 32 MiB to be fetched for
each run, nearly all of them zeros."""

RESIZES = ("resize_nearest_neighbor", "resize_bilinear", "upsample_bilinear", "resize")


def _mode(op: Op) -> tuple[bool, str]:
    """(whether linear, sampling mode)."""
    if op.type == "resize_nearest_neighbor":
        return False, "DEFAULT"
    if op.type == "upsample_bilinear":
        return True, _upsample_mode(op.arg("align_corners"), op.arg("half_pixel_centers"))
    linear = op.type == "resize_bilinear" or op.arg("interpolation_mode") == "LINEAR"
    return linear, op.arg("sampling_mode")


def _resize(op: Op, b: GraphBuilder) -> Value | None:
    x, out = op.inputs["x"], op.output.shape
    if not is_static(x) or not is_static(op.output) or len(x.shape) != 4 or x.dtype not in ("fp16", "fp32"):
        return None
    if op.type == "resize" and not known(op.arg("shape"), op.arg("resized_dims")):
        return None
    if x.shape[:2] != out[:2]:
        return None
    linear, mode = _mode(op)
    if not linear:
        whole = all(after % before == 0 for before, after in zip(x.shape[2:], out[2:]))
        if not whole or mode != "DEFAULT":
            return None
        factors = [after // before for before, after in zip(x.shape[2:], out[2:])]
        return b.upsample_nearest_neighbor(
            x=x, scale_factor_height=float(factors[0]), scale_factor_width=float(factors[1])
        )
    high, wide = (_moves(before, after, mode) for before, after in zip(x.shape[2:], out[2:]))
    if (high and x.shape[2] * out[2] > MOST_WEIGHTS) or (wide and x.shape[3] * out[3] > MOST_WEIGHTS):
        return None
    result = x
    if wide:
        result = _along_width(result, out[3], mode, b)
    if high:
        transposed = b.transpose(x=result, perm=[0, 1, 3, 2])
        result = b.transpose(x=_along_width(transposed, out[2], mode, b), perm=[0, 1, 3, 2])
    return result


def _moves(extent: int, count: int, mode: str) -> bool:
    """True where an axis changes; some modes sample between the elements even where the extent stays."""
    return extent != count or not np.array_equal(sample_points(extent, count, mode), np.arange(extent))


def _along_width(x: Value, count: int, mode: str, b: GraphBuilder) -> Value:
    """[N, C, H, W] times the matrix of interpolation weights [count, W]."""
    extent = x.shape[3]
    weights = linear_along(np.eye(extent), 0, sample_points(extent, count, mode))
    n, c, h, _ = x.shape
    rows = b.reshape(x=x, shape=[n * c * h, extent])
    result = b.linear(x=rows, weight=as_dtype(weights, x))
    return b.reshape(x=result, shape=[n, c, h, count])
