"""Resizing the last axes: nearest neighbour and linear (docs/reference/mil.md 5.5)."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import through_matrix
from hexane.graph.ops._rules import along, positive
from hexane.graph.registry import op
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation

SAMPLING_MODES = ("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS")


def sample_points(extent: int, count: int, mode: str) -> np.ndarray:
    """Places of ``count`` results on an axis of ``extent`` elements, float64, within [0, extent - 1]."""
    return np.clip(points_between(0.0, extent - 1.0, count, mode), 0, extent - 1)


def points_between(start: float, end: float, count: int, mode: str) -> np.ndarray:
    """Sample positions from the element at ``start`` to that at ``end``."""
    i = np.arange(count, dtype=np.float64)
    if mode == "DEFAULT":
        return start + i * ((end - start + 1) / count)
    if mode == "UNALIGN_CORNERS":
        return start + (i + 0.5) * ((end - start + 1) / count) - 0.5
    if mode == "OFFSET_CORNERS":
        return start + (i + 0.5) * (max(1.0, end - start) / count)
    if count == 1:
        return np.array([(start + end) / 2 if mode == "ALIGN_CORNERS" else start])
    return start + i * ((end - start) / (count - 1))


def linear_along(x: np.ndarray, axis: int, points: np.ndarray) -> np.ndarray:
    """Linear interpolation at fractional positions along one axis."""
    extent = x.shape[axis]
    if len(points) == extent and np.array_equal(points, np.arange(extent)):
        return x
    low = np.clip(np.floor(points).astype(np.intp), 0, extent - 1)
    high = np.minimum(low + 1, extent - 1)
    weight = along((points - low).astype(x.dtype), x.ndim, axis)
    return x.take(low, axis) * (1 - weight) + x.take(high, axis) * weight


def nearest_along(x: np.ndarray, axis: int, count: int, mode: str) -> np.ndarray:
    """Nearest element: rounded down in the DEFAULT mode, halves up in the others."""
    extent = x.shape[axis]
    if mode == "DEFAULT":
        index = np.arange(count) * extent // count
    else:
        index = np.floor(sample_points(extent, count, mode) + 0.5).astype(np.intp)
    return x.take(np.clip(index, 0, extent - 1), axis)


def _resized(x: TensorType, height: int, width: int) -> TensorType:
    if x.rank < 3:
        raise GraphError(f"x has rank {x.rank}, at least 3 is needed")
    positive((height, width), "target size")
    if 0 in x.shape[-2:]:
        raise GraphError(f"there is nothing to resize in {x.shape}")
    return x.with_shape((*x.shape[:-2], height, width))


def _to_size_type(x: TensorType, target_size_height: int, target_size_width: int) -> TensorType:
    return _resized(x, target_size_height, target_size_width)


def _resized_back(d: Derivation, along: Callable[[np.ndarray, int, int], np.ndarray]) -> Formula:
    """The transposed matrix of each axis, which ``along`` gives of an identity, the axis and its new extent.

    Copies side by side are added as such, where every element was copied as often.
    """
    total = d.grad
    for axis, (extent, count) in enumerate(zip(d.x.shape, d.out.shape)):
        matrix = along(np.eye(extent), axis, count)
        if count % extent == 0 and np.array_equal(matrix, np.repeat(np.eye(extent), count // extent, 0)):
            total = total.summed_runs(axis, count // extent) if count != extent else total
        else:
            total = through_matrix(d, total, axis, matrix.T)
    return total


def _last_two(d: Derivation, mode: str | None) -> Formula:
    """Resizing of height and width, linear in a sampling mode, or to the nearest."""

    def along(identity: np.ndarray, axis: int, count: int) -> np.ndarray:
        if axis < d.x.rank - 2:
            return identity
        if mode is None:
            return nearest_along(identity, 0, count, "DEFAULT")
        return linear_along(identity, 0, sample_points(len(identity), count, mode))

    return _resized_back(d, along)


def _resize_gradient(d: Derivation) -> Formula:
    def along(identity: np.ndarray, axis: int, count: int) -> np.ndarray:
        if axis < d.x.rank - d.resized_dims:
            return identity
        if d.interpolation_mode == "LINEAR":
            return linear_along(identity, 0, sample_points(len(identity), count, d.sampling_mode))
        return nearest_along(identity, 0, count, d.sampling_mode)

    return _resized_back(d, along)


@op(
    "resize_nearest_neighbor",
    "x:T target_size_height:int target_size_width:int",
    infer=_to_size_type,
    derivative=lambda d: _last_two(d, None),
)
def resize_nearest_neighbor(x: np.ndarray, target_size_height: int, target_size_width: int) -> np.ndarray:
    """Element floor(i * extent / target) of each axis."""
    rows = nearest_along(x, x.ndim - 2, target_size_height, "DEFAULT")
    return nearest_along(rows, x.ndim - 1, target_size_width, "DEFAULT")


@op(
    "resize_bilinear",
    "x:T target_size_height:int=1 target_size_width:int=1 sampling_mode:str='DEFAULT'",
    infer=_to_size_type,
    derivative=lambda d: _last_two(d, d.sampling_mode),
    sampling_mode=SAMPLING_MODES,
)
def resize_bilinear(x: np.ndarray, target_size_height: int, target_size_width: int, sampling_mode: str) -> np.ndarray:
    """Linear interpolation at the points of the sampling mode."""
    rows = linear_along(x, x.ndim - 2, sample_points(x.shape[-2], target_size_height, sampling_mode))
    return linear_along(rows, x.ndim - 1, sample_points(x.shape[-1], target_size_width, sampling_mode))


def _scaled(x: TensorType, height: float, width: float) -> TensorType:
    if x.rank < 3:
        raise GraphError(f"x has rank {x.rank}, at least 3 is needed")
    if height <= 0 or width <= 0:
        raise GraphError(f"scale factors {height} and {width} must be positive")
    return _resized(x, floor(np.float32(height) * x.shape[-2]), floor(np.float32(width) * x.shape[-1]))


def _upsample_type(
    x: TensorType, scale_factor_height: float, scale_factor_width: float, **corners: bool | None
) -> TensorType:
    _upsample_mode(**{"align_corners": True, "half_pixel_centers": None, **corners})
    return _scaled(x, scale_factor_height, scale_factor_width)


def _upsample_mode(align_corners: bool | None, half_pixel_centers: bool | None) -> str:
    half = not align_corners if half_pixel_centers is None else half_pixel_centers
    if align_corners and half:
        raise GraphError("align_corners and half_pixel_centers exclude each other")
    return "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"


@op(
    "upsample_nearest_neighbor",
    "x:T scale_factor_height:float=1.0 scale_factor_width:float=1.0",
    infer=_upsample_type,
    derivative=lambda d: _last_two(d, None),
)
def upsample_nearest_neighbor(x: np.ndarray, scale_factor_height: float, scale_factor_width: float) -> np.ndarray:
    """Nearest neighbour to floor(extent * factor) elements."""
    out = _scaled(TensorType("fp32", x.shape), scale_factor_height, scale_factor_width).shape
    rows = nearest_along(x, x.ndim - 2, out[-2], "DEFAULT")
    return nearest_along(rows, x.ndim - 1, out[-1], "DEFAULT")


@op(
    "upsample_bilinear",
    "x:T scale_factor_height:float=1.0 scale_factor_width:float=1.0 align_corners:bool=True "
    "half_pixel_centers:bool?@16",
    infer=_upsample_type,
    derivative=lambda d: _last_two(d, _upsample_mode(d.align_corners, d.half_pixel_centers)),
)
def upsample_bilinear(
    x: np.ndarray, scale_factor_height: float, scale_factor_width: float, **corners: bool | None
) -> np.ndarray:
    """Linear to floor(extent * factor) elements; the factor is then recomputed from the extents."""
    out = _scaled(TensorType("fp32", x.shape), scale_factor_height, scale_factor_width).shape
    mode = _upsample_mode(**corners)
    rows = linear_along(x, x.ndim - 2, sample_points(x.shape[-2], out[-2], mode))
    return linear_along(rows, x.ndim - 1, sample_points(x.shape[-1], out[-1], mode))


def _resize_shape(x: Any, shape: Any, resized_dims: int) -> tuple[int, ...]:
    if not 0 <= resized_dims <= len(shape) <= len(x):
        raise GraphError(f"resized_dims {resized_dims} of a shape with {len(shape)} entries for rank {len(x)}")
    head = x[: len(x) - resized_dims]
    tail = shape[len(shape) - resized_dims :]
    return (*head, *(extent or own for extent, own in zip(tail, x[len(x) - resized_dims :])))


def _resize_type(x: TensorType, shape: Any, resized_dims: int) -> TensorType:
    out = _resize_shape(x.shape, shape, resized_dims)
    positive(out, "the resized shape")
    return x.with_shape(out)


@op(
    "resize",
    "x:N shape:ints resized_dims:uint interpolation_mode:str='LINEAR' sampling_mode:str='DEFAULT'",
    infer=_resize_type,
    since=17,
    derivative=_resize_gradient,
    interpolation_mode=("LINEAR", "NEAREST_NEIGHBOR"),
    sampling_mode=SAMPLING_MODES,
)
def resize(x: np.ndarray, shape: Any, resized_dims: int, interpolation_mode: str, sampling_mode: str) -> np.ndarray:
    """The last ``resized_dims`` axes to these extents (0 keeps one)."""
    out = _resize_shape(x.shape, shape, resized_dims)
    result = x if x.dtype.kind == "f" or interpolation_mode != "LINEAR" else x.astype(np.float64)
    for axis in range(x.ndim - resized_dims, x.ndim):
        if interpolation_mode == "LINEAR":
            result = linear_along(result, axis, sample_points(x.shape[axis], out[axis], sampling_mode))
        else:
            result = nearest_along(result, axis, out[axis], sampling_mode)
    return np.rint(result) if result.dtype != x.dtype else result
