"""Sampling images at computed places: crop_resize, resample, affine (docs/reference/mil.md 5.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import along, positive, rank_between
from hexane.graph.ops.resize import SAMPLING_MODES, linear_along, points_between
from hexane.graph.registry import op
from hexane.graph.types import INTS, NUMBERS, TensorType

_SAMPLED = "places are sampled on the host, and no op adds what a sample gives back to its neighbours"


_BOX_MODES = ("CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST")
_PADDING = ("constant", "border", "reflection", "symmetric")
_COORDINATES = ("unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one")
_CROP_WORDS: dict[str, Any] = {"box_coordinate_mode": _BOX_MODES, "sampling_mode": SAMPLING_MODES}
_PLACE_WORDS: dict[str, Any] = {
    "sampling_mode": ("bilinear", "nearest"),
    "padding_mode": _PADDING,
    "coordinates_mode": _COORDINATES,
}


def _box_corners(boxes: np.ndarray, mode: str) -> np.ndarray:
    """Boxes [N, 4] as (top, left, bottom, right)."""
    if "WIDTH_FIRST" in mode:
        boxes = boxes[:, [1, 0, 3, 2]]
    if mode.startswith("CENTER"):
        centre, half = boxes[:, :2], boxes[:, 2:] / 2
        boxes = np.concatenate([centre - half, centre + half], axis=1)
    return boxes


def _crop(image: np.ndarray, box: np.ndarray, size: tuple[int, int], mode: str, pad_value: float | None) -> np.ndarray:
    """One resized box of an image [C, H, W]; outside it the border is repeated, or ``pad_value`` stands."""
    result = image.astype(np.float64)
    for axis, (start, end, count) in enumerate(((box[0], box[2], size[0]), (box[1], box[3], size[1])), start=1):
        points = points_between(start, end, count, mode)
        extent = image.shape[axis]
        result = linear_along(result, axis, np.clip(points, 0, extent - 1))
        if pad_value is not None:
            result = np.where(along((points < 0) | (points > extent - 1), 3, axis), pad_value, result)
    return result.astype(image.dtype)


def _crop_check(x: TensorType, height: int, width: int) -> None:
    rank_between(x, 4, 4)
    positive((height, width), "target size")


def _roi_type(x: TensorType, roi: TensorType, target_height: int, target_width: int) -> TensorType:
    _crop_check(x, target_height, target_width)
    if roi.rank != 5 or roi.shape[1] != 1 or roi.shape[2] not in (4, 5) or roi.shape[3:] != (1, 1):
        raise GraphError(f"roi has shape {roi.shape}", hint="[N, 1, 4, 1, 1] or [N, 1, 5, 1, 1] is needed")
    return x.with_shape((roi.shape[0], 1 if roi.shape[2] == 5 else x.shape[0], x.shape[1], target_height, target_width))


def _scaled_boxes(
    boxes: np.ndarray, x: np.ndarray, normalized_coordinates: bool, spatial_scale: float, box_coordinate_mode: str
) -> np.ndarray:
    corners = _box_corners(boxes.astype(np.float64), box_coordinate_mode) * spatial_scale
    if normalized_coordinates:
        corners = corners * np.array([x.shape[2] - 1, x.shape[3] - 1] * 2)
    return corners


def _pick(x: np.ndarray, index: float) -> int:
    image = int(index)
    if not 0 <= image < x.shape[0]:
        raise GraphError(f"box index {image} of {x.shape[0]} images")
    return image


@op(
    "crop_resize",
    "x:T roi:T target_height:int=1 target_width:int=1 normalized_coordinates:bool=False spatial_scale:float=1.0 "
    "box_coordinate_mode:str='CORNERS_HEIGHT_FIRST' sampling_mode:str='DEFAULT' pad_value:float?@16",
    infer=_roi_type,
    derivative=_SAMPLED,
    **_CROP_WORDS,
)
def crop_resize(
    x: np.ndarray,
    roi: np.ndarray,
    target_height: int,
    target_width: int,
    sampling_mode: str,
    pad_value: Any,
    **how: Any,
) -> np.ndarray:
    """Boxes [N, 1, 4 or 5, 1, 1] of every image, or of the image whose index comes first, resized linearly."""
    rows = roi[:, 0, :, 0, 0]
    indexed = rows.shape[1] == 5
    size = (target_height, target_width)
    crops = []
    for row, box in zip(rows, _scaled_boxes(rows[:, -4:], x, **how)):
        images = [_pick(x, row[0])] if indexed else range(x.shape[0])
        crops.append(np.stack([_crop(x[image], box, size, sampling_mode, pad_value) for image in images]))
    return np.stack(crops)


def _boxes_type(
    x: TensorType, boxes: TensorType, box_indices: TensorType | None, target_height: int, target_width: int
) -> TensorType:
    _crop_check(x, target_height, target_width)
    if boxes.rank != 2 or boxes.shape[1] != 4:
        raise GraphError(f"boxes has shape {boxes.shape}, [N, 4] is needed")
    if box_indices is not None and box_indices.shape != boxes.shape[:1]:
        raise GraphError(f"box_indices has shape {box_indices.shape}, {boxes.shape[:1]} is needed")
    return x.with_shape((boxes.shape[0], x.shape[1], target_height, target_width))


@op(
    "crop_resize",
    "x:T boxes:V box_indices:J? target_height:int=1 target_width:int=1 normalized_coordinates:bool=False "
    "spatial_scale:float=1.0 box_coordinate_mode:str='CORNERS_HEIGHT_FIRST' sampling_mode:str='DEFAULT' "
    "pad_value:float=0.0",
    infer=_boxes_type,
    **_CROP_WORDS,
    since=17,
    V=NUMBERS,
    J=INTS,
    derivative=_SAMPLED,
)
def crop_resize_17(
    x: np.ndarray, boxes: np.ndarray, box_indices: Any, target_height: int, target_width: int, sampling_mode: str,
    pad_value: float, **how: Any,
) -> np.ndarray:  # fmt: skip
    """Boxes [N, 4] of the images ``box_indices`` (0, 1, 2 ... by default), resized linearly."""
    indices = np.arange(len(boxes)) if box_indices is None else box_indices
    corners = _scaled_boxes(boxes, x, **how)
    size = (target_height, target_width)
    crops = [_crop(x[_pick(x, i)], box, size, sampling_mode, pad_value) for i, box in zip(indices, corners)]
    return np.stack(crops) if crops else np.zeros((0, x.shape[1], *size), x.dtype)


def _pixels(coordinates: np.ndarray, extent: int, coordinates_mode: str, align_corners: bool) -> np.ndarray:
    """Coordinates of one axis in elements."""
    if coordinates_mode == "unnormalized":
        return coordinates
    unit = (coordinates + 1) / 2 if coordinates_mode == "normalized_minus_one_to_one" else coordinates
    return unit * (extent - 1) if align_corners else unit * extent - 0.5


def _folded(index: np.ndarray, extent: int, padding: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices brought inside, and which of them count."""
    valid = np.ones(index.shape, bool)
    if padding == "constant":
        valid = (index >= 0) & (index < extent)
    elif padding == "reflection" and extent > 1:
        period = 2 * (extent - 1)
        index = np.abs(np.mod(index, period))
        index = np.where(index >= extent, period - index, index)
    elif padding == "symmetric":
        index = np.mod(index, 2 * extent)
        index = np.where(index >= extent, 2 * extent - 1 - index, index)
    return np.clip(index, 0, extent - 1), valid


def _sample(
    x: np.ndarray, px: np.ndarray, py: np.ndarray, sampling_mode: str, padding_mode: str, padding_value: float
) -> np.ndarray:
    """Values of one image [C, H, W] at pixel positions of shape [H2, W2]."""
    limit = 2.0**40
    px = np.clip(np.nan_to_num(px), -limit, limit)
    py = np.clip(np.nan_to_num(py), -limit, limit)
    corners = ((0, 0), (0, 1), (1, 0), (1, 1)) if sampling_mode == "bilinear" else ((0, 0),)
    base_x, base_y = (np.floor(px), np.floor(py)) if sampling_mode == "bilinear" else (np.rint(px), np.rint(py))
    total = np.zeros((x.shape[0], *px.shape), np.float64)
    for dy, dx in corners:
        column, valid_x = _folded((base_x + dx).astype(np.int64), x.shape[2], padding_mode)
        row, valid_y = _folded((base_y + dy).astype(np.int64), x.shape[1], padding_mode)
        weight: Any = 1.0
        if sampling_mode == "bilinear":
            share_x = px - base_x if dx else 1 - (px - base_x)
            share_y = py - base_y if dy else 1 - (py - base_y)
            weight = share_x * share_y
        total += weight * np.where(valid_x & valid_y, x[:, row, column], padding_value)
    return total.astype(x.dtype)


def _resample_type(x: TensorType, coordinates: TensorType) -> TensorType:
    rank_between(x, 4, 4)
    if coordinates.rank != 4 or coordinates.shape[0] != x.shape[0] or coordinates.shape[3] != 2:
        raise GraphError(f"coordinates has shape {coordinates.shape}, [{x.shape[0]}, H, W, 2] is needed")
    return x.with_shape((*x.shape[:2], *coordinates.shape[1:3]))


@op(
    "resample",
    "x:T coordinates:V sampling_mode:str padding_mode:str padding_value:float coordinates_mode:str align_corners:bool",
    infer=_resample_type,
    **_PLACE_WORDS,
    V=NUMBERS,
    derivative=_SAMPLED,
)
def resample(
    x: np.ndarray, coordinates: np.ndarray, coordinates_mode: str, align_corners: bool, **sampling: Any
) -> np.ndarray:
    """Values at coordinates [B, H2, W2, (x, y)]."""
    places = coordinates.astype(np.float64)
    px = _pixels(places[..., 0], x.shape[3], coordinates_mode, align_corners)
    py = _pixels(places[..., 1], x.shape[2], coordinates_mode, align_corners)
    return np.stack([_sample(x[b], px[b], py[b], **sampling) for b in range(x.shape[0])])


def _affine_type(x: TensorType, transform_matrix: TensorType, output_height: int, output_width: int) -> TensorType:
    rank_between(x, 4, 4)
    positive((output_height, output_width), "output size")
    if transform_matrix.shape not in ((x.shape[0], 6), (1, 6)):
        raise GraphError(f"transform_matrix has shape {transform_matrix.shape}, [{x.shape[0]} or 1, 6] is needed")
    return x.with_shape((*x.shape[:2], output_height, output_width))


def _grid(count: int, mode: str, align_corners: bool) -> np.ndarray:
    """Coordinates of the output's own elements, in the coordinate mode."""
    i = np.arange(count, dtype=np.float64)
    if mode == "unnormalized":
        return i
    unit = (i / max(count - 1, 1)) if align_corners else (i + 0.5) / count
    return 2 * unit - 1 if mode == "normalized_minus_one_to_one" else unit


@op(
    "affine",
    "x:T transform_matrix:T output_height:int output_width:int sampling_mode:str padding_mode:str padding_value:float "
    "coordinates_mode:str align_corners:bool",
    infer=_affine_type,
    derivative=_SAMPLED,
    **_PLACE_WORDS,
)
def affine(
    x: np.ndarray, transform_matrix: np.ndarray, output_height: int, output_width: int, coordinates_mode: str,
    align_corners: bool, **sampling: Any,
) -> np.ndarray:  # fmt: skip
    """Values at a0 x + a1 y + a2, b0 x + b1 y + b2 for the output's own coordinates x, y."""
    column = _grid(output_width, coordinates_mode, align_corners)[None, :]
    row = _grid(output_height, coordinates_mode, align_corners)[:, None]
    images = []
    for index, image in enumerate(x):
        a0, a1, a2, b0, b1, b2 = transform_matrix[index % len(transform_matrix)].astype(np.float64)
        px = _pixels(a0 * column + a1 * row + a2, x.shape[3], coordinates_mode, align_corners)
        py = _pixels(b0 * column + b1 * row + b2, x.shape[2], coordinates_mode, align_corners)
        images.append(_sample(image, px, py, **sampling))
    return np.stack(images)
