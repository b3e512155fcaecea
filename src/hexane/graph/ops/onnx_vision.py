"""Host ops that sample images: ``onnx.GridSample``, ``onnx.RoiAlign``, ``onnx.DeformConv``, and kin."""

from __future__ import annotations

from itertools import product

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import fits, per_axis, positive
from hexane.graph.ops.onnx_resize import cubic
from hexane.graph.registry import op
from hexane.graph.types import TensorType

# ---------------------------------------------------------------------------------------------------- GridSample


def _grid_type(x: TensorType, grid: TensorType) -> TensorType:
    spatial = x.rank - 2
    if spatial < 1 or grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != spatial:
        raise GraphError(f"onnx.GridSample: a grid {grid.shape} does not fit {x.shape}")
    return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))


def _reflect(at: np.ndarray, low: float, high: float) -> np.ndarray:
    """Fold coordinates into ``low..high`` by mirroring at both ends."""
    span = high - low
    if span <= 0:
        return np.zeros_like(at)
    folded = np.mod(np.abs(at - low), 2 * span)
    return low + np.where(folded > span, 2 * span - folded, folded)


def _gather_pixels(x: np.ndarray, index: list[np.ndarray], padding: str, align: bool) -> np.ndarray:
    """``x [N, C, *D]`` at integer coordinates ``[N, points]`` per axis: ``[N, C, points]``, by padding mode."""
    inside = np.ones(index[0].shape, bool)
    place = []
    for at, extent in zip(index, x.shape[2:]):
        if padding == "zeros":
            inside &= (at >= 0) & (at <= extent - 1)
        elif padding == "reflection":
            at = np.rint(_reflect(at, 0, extent - 1) if align else _reflect(at, -0.5, extent - 0.5))
        place.append(np.clip(at, 0, extent - 1).astype(np.int64))
    flat = np.ravel_multi_index(tuple(place), x.shape[2:])
    pixels = np.take_along_axis(x.reshape(*x.shape[:2], -1), flat[:, None, :], axis=2)
    return pixels * inside[:, None, :]


@op(
    "onnx.GridSample",
    "x:A grid:T mode:str='linear' padding_mode:str='zeros' align_corners:bool=False",
    mode=("nearest", "linear", "cubic"),
    padding_mode=("zeros", "border", "reflection"),
    infer=_grid_type,
)
def grid_sample(x, grid, mode, padding_mode, align_corners):
    """Sample ``x [N, C, *D]`` at ``grid [N, *O, len(D)]`` in -1..1, innermost axis first: ``[N, C, *O]``."""
    spatial = x.shape[2:]
    points = grid.reshape(grid.shape[0], -1, len(spatial)).astype(np.float64)
    where = []
    for axis, extent in enumerate(spatial):
        u = points[..., len(spatial) - 1 - axis]
        at = (u + 1) / 2 * (extent - 1) if align_corners else ((u + 1) * extent - 1) / 2
        if mode != "cubic":
            if padding_mode == "border":
                at = np.clip(at, 0, extent - 1)
            elif padding_mode == "reflection":
                at = _reflect(at, 0, extent - 1) if align_corners else _reflect(at, -0.5, extent - 0.5)
                at = np.clip(at, 0, extent - 1)
        where.append(at)
    if mode == "nearest":
        out = _gather_pixels(x, [np.rint(at) for at in where], padding_mode, align_corners)
    else:
        base = [np.floor(at) for at in where]
        if mode == "cubic":
            steps = (-1, 0, 1, 2)
            axis_weights = [[cubic(at - b - n, -0.75) for n in steps] for at, b in zip(where, base)]
        else:
            axis_weights, steps = [[1 - (at - b), at - b] for at, b in zip(where, base)], (0, 1)
        out = np.zeros((*x.shape[:2], points.shape[1]), np.float64)
        for choice in product(range(len(steps)), repeat=len(spatial)):
            weight = np.prod([axis_weights[a][c] for a, c in enumerate(choice)], axis=0)
            pixels = _gather_pixels(x, [b + steps[c] for b, c in zip(base, choice)], padding_mode, align_corners)
            out += pixels * weight[:, None, :]
    return out.reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype)


# ------------------------------------------------------------------------------------------------------ RoiAlign


def _roi_type(x: TensorType, rois: TensorType, batch_indices: TensorType, output_height=1, output_width=1):
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4:
        raise GraphError(f"onnx.RoiAlign takes x of rank 4 and rois [n, 4], not {x.shape} and {rois.shape}")
    fits(batch_indices, rois.shape[:1], "batch_indices")
    return TensorType(x.dtype, (rois.shape[0], x.shape[1], int(output_height), int(output_width)))


@op(
    "onnx.RoiAlign",
    "x:T rois:T batch_indices:I mode:str='avg' output_height:int=1 output_width:int=1 sampling_ratio:int=0 "
    "spatial_scale:float=1.0 half_pixel:bool=True",
    mode=("avg", "max"),
    infer=_roi_type,
)
def roi_align(x, rois, batch_indices, mode, output_height, output_width, sampling_ratio, spatial_scale, half_pixel):
    """Bilinear samples in each cell of each region, averaged (or their weighted maximum): ``[n, C, height, width]``."""
    height, width = x.shape[2:]
    out = np.zeros((len(rois), x.shape[1], output_height, output_width), np.float64)
    for n, (roi, batch) in enumerate(zip(rois.astype(np.float64), batch_indices)):
        x1, y1, x2, y2 = roi * spatial_scale - (0.5 if half_pixel else 0.0)
        roi_w, roi_h = (x2 - x1, y2 - y1) if half_pixel else (max(x2 - x1, 1.0), max(y2 - y1, 1.0))
        cell_h, cell_w = roi_h / output_height, roi_w / output_width
        count_h = sampling_ratio if sampling_ratio > 0 else int(np.ceil(cell_h))
        count_w = sampling_ratio if sampling_ratio > 0 else int(np.ceil(cell_w))
        if count_h < 1 or count_w < 1:
            continue
        ys = y1 + (np.arange(output_height * count_h) + 0.5) * (cell_h / count_h)
        xs = x1 + (np.arange(output_width * count_w) + 0.5) * (cell_w / count_w)
        wy, iy = _edge_weights(ys, height)
        wx, ix = _edge_weights(xs, width)
        image = x[int(batch)].astype(np.float64)
        parts = np.stack([image[:, iy[a]][:, :, ix[b]] * wy[a][:, None] * wx[b] for a in range(2) for b in range(2)])
        shape = (-1, output_height, count_h, output_width, count_w)
        if mode == "max":
            out[n] = parts.max(axis=0).reshape(shape).max(axis=(2, 4))
        else:
            out[n] = parts.sum(axis=0).reshape(shape).mean(axis=(2, 4))
    return out.astype(x.dtype)


def _edge_weights(at: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and indices of the two neighbours of each coordinate; points beyond one pixel outside weigh nothing."""
    outside = (at < -1) | (at > extent)
    at = np.maximum(at, 0)
    low = np.minimum(at.astype(np.int64), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    at = np.where(low >= extent - 1, low, at)
    fraction = at - low
    weights = np.stack([1 - fraction, fraction]) * ~outside
    return weights, np.stack([low, high])


# ---------------------------------------------------------------------------------------------------- DeformConv


def _deform_type(x, weight, offset, bias, mask, strides, pad, dilations, groups, offset_groups):
    if x.rank != 4 or weight.rank != 4:
        raise GraphError(f"onnx.DeformConv takes two spatial axes, not x {x.shape} and weight {weight.shape}")
    for values, what in ((strides, "strides"), (dilations, "dilations")):
        per_axis(values, 2, 1, what)
        positive(values, what)
    per_axis(pad, 4, 0, "pad")
    positive((groups, offset_groups), "groups")
    n, cout, taps = x.shape[0], weight.shape[0], weight.shape[2] * weight.shape[3]
    if x.shape[1] != weight.shape[1] * groups or cout % groups or x.shape[1] % offset_groups:
        raise GraphError(f"onnx.DeformConv: {x.shape[1]} channels and weight {weight.shape} in {groups} groups")
    out = [
        (x.shape[2 + i] + pad[2 * i] + pad[2 * i + 1] - dilations[i] * (weight.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(2)
    ]
    fits(offset, (n, 2 * offset_groups * taps, *out), "offset")
    fits(bias, (cout,), "bias")
    fits(mask, (n, offset_groups * taps, *out), "mask")
    return TensorType(x.dtype, (n, cout, *map(int, out)))


@op(
    "onnx.DeformConv",
    "x:T weight:T offset:T bias:T? mask:T? strides:ints=(1,1) pad:ints=(0,0,0,0) dilations:ints=(1,1) "
    "groups:int=1 offset_groups:int=1",
    infer=_deform_type,
)
def deform_conv(x, weight, offset, bias, mask, strides, pad, dilations, groups, offset_groups):
    """Convolution with taps displaced by ``offset [N, offset_groups * kh * kw * 2, oh, ow]``, scaled by ``mask``."""
    n, c, height, width = x.shape
    cout, cin, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    shift = offset.reshape(n, offset_groups, kh, kw, 2, oh, ow).astype(np.float64)
    base_y = np.arange(oh) * strides[0] - pad[0]
    base_x = np.arange(ow) * strides[1] - pad[2]
    tap_y, tap_x = np.arange(kh) * dilations[0], np.arange(kw) * dilations[1]
    ys = shift[..., 0, :, :] + base_y[:, None] + tap_y[:, None, None, None]
    xs = shift[..., 1, :, :] + base_x + tap_x[:, None, None]
    planes = x.reshape(n * offset_groups, c // offset_groups, height, width)
    points = (n * offset_groups, kh * kw * oh * ow)
    ys, xs = ys.reshape(points), xs.reshape(points)
    y0, x0 = np.floor(ys), np.floor(xs)
    columns = np.zeros((n * offset_groups, c // offset_groups, points[1]), np.float64)
    for dy, dx in product((0, 1), repeat=2):
        part = (1 - np.abs(ys - y0 - dy)) * (1 - np.abs(xs - x0 - dx))
        columns += _gather_pixels(planes, [y0 + dy, x0 + dx], "zeros", False) * part[:, None, :]
    if mask is not None:
        columns *= mask.reshape(n * offset_groups, 1, -1)
    columns = columns.reshape(n, groups, cin * kh * kw, oh * ow)
    kernels = weight.reshape(groups, cout // groups, cin * kh * kw)
    out = np.matmul(kernels[None], columns).reshape(n, cout, oh, ow)
    if bias is not None:
        out = out + bias[:, None, None]
    return out.astype(x.dtype)


# -------------------------------------------------------------------------------------------------- col2im, unpool


def _col2im_steps(image_shape, block_shape, strides, pad, dilations):
    """Positions of the block along each axis of the image."""
    d = len(image_shape)
    for values, what in ((block_shape, "block_shape"), (strides, "strides"), (dilations, "dilations")):
        per_axis(values, d, 1, what)
        positive(values, what)
    per_axis(pad, 2 * d, 0, "pad")
    return [
        (image_shape[i] + pad[2 * i] + pad[2 * i + 1] - dilations[i] * (block_shape[i] - 1) - 1) // strides[i] + 1
        for i in range(d)
    ]


def _col2im_type(x, image_shape, block_shape, **places):
    _col2im_steps(image_shape, block_shape, **places)
    block = int(np.prod(block_shape))
    if x.rank != 3 or block < 1 or x.shape[1] % block:
        raise GraphError(f"onnx.Col2Im: columns {x.shape} do not fit blocks {tuple(block_shape)}")
    return TensorType(x.dtype, (x.shape[0], x.shape[1] // block, *map(int, image_shape)))


@op("onnx.Col2Im", "x:A image_shape:ints block_shape:ints strides:ints pad:ints dilations:ints", infer=_col2im_type)
def col2im(x, image_shape, block_shape, strides, pad, dilations):
    """Add columns ``x [N, C * block, positions]`` into an image ``[N, C, *image_shape]``; pad in pairs per axis."""
    d = len(image_shape)
    steps = _col2im_steps(image_shape, block_shape, strides, pad, dilations)
    if int(np.prod(steps)) != x.shape[2]:
        raise GraphError(f"onnx.Col2Im: {x.shape[2]} positions where the image has {int(np.prod(steps))}")
    channels = x.shape[1] // int(np.prod(block_shape))
    columns = x.reshape(x.shape[0], channels, *block_shape, *steps)
    padded = np.zeros(
        (x.shape[0], channels, *(image_shape[i] + pad[2 * i] + pad[2 * i + 1] for i in range(d))), x.dtype
    )
    for tap in product(*map(range, block_shape)):
        window = tuple(
            slice(tap[i] * dilations[i], tap[i] * dilations[i] + (steps[i] - 1) * strides[i] + 1, strides[i])
            for i in range(d)
        )
        padded[(slice(None), slice(None), *window)] += columns[(slice(None), slice(None), *tap)]
    inner = tuple(slice(pad[2 * i], pad[2 * i] + image_shape[i]) for i in range(d))
    return padded[(slice(None), slice(None), *inner)]


def _unpool_type(x, output_shape=()):
    return TensorType(x.dtype, tuple(output_shape))


@op("onnx.MaxUnpool", "x:T indices:I output_shape:ints index_shape:ints", infer=_unpool_type)
def max_unpool(x, indices, output_shape, index_shape):
    """Put each value at its flat index in a zero tensor ``index_shape``, in the corner of ``output_shape``."""
    flat = np.zeros(int(np.prod(index_shape)), x.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= flat.size):
        raise GraphError("onnx.MaxUnpool: an index outside the output")
    flat[indices.reshape(-1)] = x.reshape(-1)
    out = np.zeros(output_shape, x.dtype)
    out[tuple(slice(0, extent) for extent in index_shape)] = flat.reshape(index_shape)
    return out
