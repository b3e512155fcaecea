"""Host op ``onnx.Resize``: every mode of ONNX's Resize (op sets 10 to 19) as one small matrix per axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import axes_of
from hexane.graph.registry import UNKNOWN, op
from hexane.graph.types import TensorType


def resize_plan(
    shape: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    axes: Sequence[int] | None,
    policy: str,
) -> tuple[list[int], list[float]]:
    """Output extents and scale per axis, with ``axes`` spread out and ``keep_aspect_ratio_policy`` applied."""
    rank = len(shape)
    resized_axes = list(range(rank)) if not axes else list(axes_of(axes, rank))
    numbers = scales if scales else sizes
    if not numbers or len(numbers) != len(resized_axes):
        raise GraphError(
            f"Resize of rank {rank} over {len(resized_axes)} axes got {len(numbers or ())} scales or sizes"
        )
    out, factors = list(shape), [1.0] * rank
    if scales:
        for axis, scale in zip(resized_axes, scales):
            if not scale > 0:
                raise GraphError(f"Resize scale {scale} is not positive")
            out[axis], factors[axis] = int(np.floor(np.float64(shape[axis]) * scale)), float(scale)
        return out, factors
    assert sizes is not None
    if policy != "stretch":
        pick = min if policy == "not_larger" else max
        scale = pick(size / shape[axis] for size, axis in zip(sizes, resized_axes))
        sizes = [int(np.floor(scale * shape[axis] + 0.5)) for axis in resized_axes]
        for axis, size in zip(resized_axes, sizes):
            out[axis], factors[axis] = int(size), scale
        return out, factors
    for axis, size in zip(resized_axes, sizes):
        out[axis], factors[axis] = int(size), size / shape[axis] if shape[axis] else 1.0
    return out, factors


def _type(x: TensorType, scales: Any, sizes: Any, axes: Any, policy: str, output_shape: Any) -> TensorType:
    if output_shape is not None:
        return x.with_shape(output_shape)
    if scales is UNKNOWN or sizes is UNKNOWN:
        return x.with_shape((None,) * x.rank)
    return x.with_shape(resize_plan(x.shape, scales, sizes, axes, policy)[0])


def coordinates(mode: str, extent: int, out: int, scale: float, span: tuple[float, float]) -> np.ndarray:
    """The input coordinate of every output position along one axis (``coordinate_transformation_mode``)."""
    at = np.arange(out, dtype=np.float64)
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        centre = extent / 2
        return centre * (1 - out / (scale * extent)) + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
    if mode == "align_corners":
        # The resized length counts before it is rounded down (ONNX's own tests).
        return at * ((extent - 1) / (scale * extent - 1)) if out > 1 else np.zeros(out)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    start, end = span  # tf_crop_and_resize
    if out > 1:
        return start * (extent - 1) + at * ((end - start) * (extent - 1) / (out - 1))
    return np.full(out, 0.5 * (start + end) * (extent - 1))


COORDINATE_MODES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip


_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _triangle(d: np.ndarray, a: float) -> np.ndarray:
    return np.maximum(1 - np.abs(d), 0)


def cubic(d: np.ndarray, a: float) -> np.ndarray:
    """The weight of a neighbour at a distance (Keys' convolution)."""
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def axis_weights(
    at: np.ndarray, extent: int, kind: str, scale: float, a: float, exclude: bool, antialias: bool
) -> np.ndarray:
    """Matrix ``[out, extent]`` that interpolates one axis; samples outside repeat the edge or are left out."""
    support, function = (1, _triangle) if kind == "linear" else (2, cubic)
    shrink = min(scale, 1.0) if antialias else 1.0
    reach = int(np.ceil(support / shrink)) + 1
    index = np.floor(at)[:, None] + np.arange(-reach, reach + 1)
    weight = function((index - at[:, None]) * shrink, a)
    if exclude:
        weight = weight * ((index >= 0) & (index < extent))
    if exclude or antialias:
        weight = weight / weight.sum(axis=1, keepdims=True)
    matrix = np.zeros((len(at), extent))
    rows = np.broadcast_to(np.arange(len(at))[:, None], index.shape)
    np.add.at(matrix, (rows, np.clip(index, 0, extent - 1).astype(np.int64)), weight)
    return matrix


@op(
    "onnx.Resize",
    "x:A scales:floats~? sizes:ints~? roi:floats~? axes:ints? mode:str='nearest' coordinate_mode:str='half_pixel' "
    "nearest_mode:str='round_prefer_floor' cubic_coeff_a:float=-0.75 exclude_outside:bool=False antialias:bool=False "
    "extrapolation_value:float=0.0 policy:str='stretch' output_shape:ints?",
    infer=_type,
    mode=("nearest", "linear", "cubic"),
    coordinate_mode=COORDINATE_MODES,
    nearest_mode=_NEAREST,
    policy=("stretch", "not_larger", "not_smaller"),
)
def resize(
    x, scales, sizes, roi, axes, mode, coordinate_mode, nearest_mode, cubic_coeff_a, exclude_outside, antialias,
    extrapolation_value, policy, output_shape,
):  # fmt: skip
    """Resample ``x`` along any axes: nearest, linear or cubic, with antialiasing filters and crop extrapolation."""
    out, factors = resize_plan(x.shape, scales, sizes, axes, policy)
    if output_shape is not None and tuple(out) != tuple(output_shape):
        raise GraphError(f"onnx.Resize: the file declares {tuple(output_shape)}, the inputs ask for {tuple(out)}")
    resized_axes = list(range(x.ndim)) if not axes else [a % x.ndim for a in axes]
    crop = coordinate_mode == "tf_crop_and_resize"
    result, outside = x, []
    for position, axis in enumerate(resized_axes):
        extent = x.shape[axis]
        span = (roi[position], roi[position + len(resized_axes)]) if crop and roi else (0.0, 1.0)
        at = coordinates(coordinate_mode, extent, out[axis], factors[axis], span)
        if out[axis] == extent and np.array_equal(at, np.arange(extent)):
            continue
        if crop:
            outside.append((axis, (at < 0) | (at > extent - 1)))
        if mode == "nearest":
            nearest = np.clip(_NEAREST[nearest_mode](at), 0, extent - 1).astype(np.int64)
            result = np.take(result, nearest, axis=axis)
        else:
            matrix = axis_weights(at, extent, mode, factors[axis], cubic_coeff_a, exclude_outside, antialias)
            result = np.moveaxis(np.tensordot(result.astype(np.float64), matrix, axes=(axis, 1)), -1, axis)
    if x.dtype.kind in "iu" and mode != "nearest":
        info = np.iinfo(x.dtype)
        result = np.clip(np.rint(result), info.min, info.max)
    result = np.array(result, x.dtype)
    for axis, beyond in outside:
        if beyond.any():
            result[(slice(None),) * axis + (beyond,)] = extrapolation_value
    return result
