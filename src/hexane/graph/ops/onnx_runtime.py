"""Host ops whose shape-like parameter (axes, sizes, counts) arrives at run time.

MIL wants such parameters as constants. Where an ONNX file computes one, or takes it as an input, but declares the shape
of the result, the op becomes one of these: typed by the declaration, and checked against it when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import axes_of, axis_of, padded
from hexane.graph.ops.onnx_data import cumprod
from hexane.graph.ops.onnx_signal import dft, stft
from hexane.graph.ops.onnx_vision import col2im, max_unpool
from hexane.graph.ops.reduction import REDUCTIONS
from hexane.graph.ops.sorting import sorted_indices
from hexane.graph.registry import op
from hexane.graph.types import TensorType


def runtime_op(name: str, signature: str, **words: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare ``onnx.<name>``: its result has the first operand's dtype and ``output_shape``, checked at run time."""

    def declare(evaluate: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def infer(output_shape: Sequence[int], **operands: Any) -> TensorType:
            first: TensorType = next(iter(operands.values()))
            return first.with_shape(output_shape)

        def checked(output_shape: Sequence[int], **arguments: Any) -> np.ndarray:
            try:
                result = evaluate(**arguments)
            except (ValueError, IndexError) as error:
                raise GraphError(f"onnx.{name}: {error}") from error
            if result.shape != tuple(output_shape):
                raise GraphError(
                    f"onnx.{name} made {result.shape} where the file declares {tuple(output_shape)}",
                    hint="the value of a shape-like input contradicts the model's declared shapes",
                )
            return result

        checked.__doc__ = evaluate.__doc__
        checked.__module__ = __name__
        op(f"onnx.{name}", f"{signature} output_shape:ints", infer=infer, **words)(checked)
        return evaluate

    return declare


@runtime_op("Reshape", "x:A shape:ints~ allow_zero:bool=False")
def reshape(x, shape, allow_zero):
    """Reshape; 0 copies an extent unless ``allow_zero``, -1 is what is left."""
    target = [x.shape[i] if extent == 0 and not allow_zero else extent for i, extent in enumerate(shape)]
    return x.reshape(target)


@runtime_op("Expand", "x:A shape:ints~")
def expand(x, shape):
    """Broadcast with a shape, in both directions."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape)))


@runtime_op("Tile", "x:A reps:ints~")
def tile(x, reps):
    """Repeat ``reps[i]`` times along axis i."""
    return np.tile(x, reps)


@runtime_op("Squeeze", "x:A axes:ints~")
def squeeze(x, axes):
    """Drop axes of extent 1."""
    return np.squeeze(x, axis=tuple(axes))


@runtime_op("Unsqueeze", "x:A axes:ints~")
def unsqueeze(x, axes):
    """Insert axes of extent 1; numbers count in the result."""
    return np.expand_dims(x, tuple(axes))


def slice_of(shape: Sequence[int], starts: Any, ends: Any, axes: Any, steps: Any) -> tuple[slice, ...]:
    """The Python slices that ONNX's Slice means: clamped, negative numbers counted from the end."""
    axes = range(len(starts)) if axes is None else [a % len(shape) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    window = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        extent = shape[axis]
        if step == 0:
            raise GraphError("a slice with step 0")
        start, end = (value + extent if value < 0 else value for value in (start, end))
        if step > 0:
            start, end = min(max(start, 0), extent), min(max(end, 0), extent)
            window[axis] = slice(start, max(end, start), step)
        else:
            start, end = min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)
            window[axis] = slice(start, None if end < 0 else end, step) if start > end else slice(0, 0, 1)
    return tuple(window)


@runtime_op("Slice", "x:A starts:ints~ ends:ints~ axes:ints~? steps:ints~?")
def slice_(x, starts, ends, axes, steps):
    """Strided slices along ``axes``."""
    return x[slice_of(x.shape, starts, ends, axes, steps)]


def pad_array(x: np.ndarray, pads: Sequence[int], axes: Sequence[int] | None, mode: str, value: Any) -> np.ndarray:
    """ONNX's Pad: ``pads`` all befores, then all afters; negative ones crop."""
    axes = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
    if len(pads) != 2 * len(axes):
        raise GraphError(f"{len(pads)} pads for {len(axes)} axes")
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    return padded(x, list(zip(before, after)), mode, value)


@runtime_op(
    "Pad", "x:A pads:ints~ value:A? axes:ints~? mode:str='constant'", mode=("constant", "reflect", "edge", "wrap")
)
def pad(x, pads, value, axes, mode):
    """Constant, reflected, repeated or wrapped borders; negative pads crop."""
    return pad_array(x, pads, axes, mode, 0 if value is None else value.reshape(()))


def onnx_reduction(name: str) -> str:
    """ONNX's name of a reduction: ``ReduceLogSum`` of ``reduce_log_sum``, ``ReduceL1`` of ``reduce_l1_norm``."""
    return name.removesuffix("_norm").title().replace("_", "")


def _reduction(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def reduce(x: np.ndarray, axes: Sequence[int], keep_dims: bool, keep_all: bool) -> np.ndarray:
        """A reduction whose axes arrive at run time; none mean all of them, or none with ``keep_all``."""
        over = axes_of(axes or (() if keep_all else None), x.ndim)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray(function(x, over, keep_dims)).astype(x.dtype)

    return reduce


for _name, _function in REDUCTIONS.items():
    runtime_op(onnx_reduction(_name), "x:A axes:ints~ keep_dims:bool=True keep_all:bool=False")(_reduction(_function))


@runtime_op("CumSum", "x:N axis:int~ exclusive:bool=False reverse:bool=False")
def cumsum(x, axis, exclusive, reverse):
    """Running sum along an axis known at run time."""
    y = np.flip(x, axis) if reverse else x
    total = np.cumsum(y, axis=axis, dtype=x.dtype)
    total = total - y if exclusive else total
    return np.flip(total, axis) if reverse else total


@runtime_op("Trilu", "x:A k:int~ upper:bool=True")
def trilu(x, k, upper):
    """Upper or lower triangle of the last two axes from diagonal ``k`` on."""
    return np.triu(x, k) if upper else np.tril(x, k)


@runtime_op("ConstantOfShape", "x:A shape:ints~")
def fill(x, shape):
    """A tensor full of ``x``."""
    return np.full(tuple(shape), x.reshape(()))


@runtime_op("Range", "x:N limit:N delta:N")
def arange(x, limit, delta):
    """``x, x + delta, ...`` up to and without ``limit``."""
    count = max(int(np.ceil((float(limit.reshape(())) - float(x.reshape(()))) / float(delta.reshape(())))), 0)
    return (x.reshape(()) + np.arange(count).astype(x.dtype) * delta.reshape(())).astype(x.dtype)


@runtime_op("OneHot", "x:A indices:N depth:int~ axis:int=-1")
def one_hot(x, indices, depth, axis):
    """``x = [off, on]``: one-hot rows of ``depth``; indices outside -depth..depth-1 give only ``off``."""
    axis %= indices.ndim + 1
    rows = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - axis))
    index = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    return np.where(index == rows, x[1], x[0]).astype(x.dtype)


@runtime_op("CenterCropPad", "x:A shape:ints~ axes:ints?")
def center_crop_pad(x, shape, axes):
    """Crop or zero-pad round the centre; an odd surplus goes behind."""
    widths = [(0, 0)] * x.ndim
    for extent, axis in zip(shape, range(x.ndim) if axes is None else axes):
        widths[axis] = centred(x.shape[axis], extent)
    return padded(x, widths)


def centred(extent: int, wanted: int) -> tuple[int, int]:
    """(before, after) by which an extent is cropped, or padded, round its centre; an odd surplus goes behind."""
    surplus = extent - wanted
    before = -(surplus // 2) if surplus > 0 else -surplus // 2
    return before, -surplus - before


@runtime_op("AffineGrid", "x:T size:ints~ align_corners:bool=False")
def affine_grid(x, size, align_corners):
    """Sampling grids ``[N, *spatial, len(spatial)]`` from the affine maps ``x [N, d, d + 1]``."""
    spatial = tuple(size[2:])
    axes = []
    for extent in spatial:
        step = np.arange(extent, dtype=np.float64)
        axes.append(2 * step / (extent - 1) - 1 if align_corners else (2 * step + 1) / extent - 1)
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(spatial)], axis=-1)
    return np.einsum("...k,njk->n...j", points, x.astype(np.float64)).astype(x.dtype)


def _topk_type(x: TensorType, output_shape: Sequence[int]) -> tuple[TensorType, TensorType]:
    return x.with_shape(output_shape), TensorType("int64", tuple(output_shape))


@op("onnx.TopK", "x:N k:int~ axis:int=-1 largest:bool=True output_shape:ints", infer=_topk_type)
def topk(x, k, axis, largest, output_shape):
    """The ``k`` largest or smallest along an axis, sorted; equal elements in the order of their indices."""
    if k != output_shape[axis]:
        raise GraphError(f"onnx.TopK: the file declares {output_shape[axis]} elements, asked for {k} at run time")
    index = sorted_indices(x, axis, not largest).take(range(k), axis)
    return np.take_along_axis(x, index, axis), index.astype(np.int64)


def agreed(name: str, declared: Sequence[int], asked: Sequence[int]) -> None:
    """GraphError where an op's parameters ask for another shape than the file declares."""
    if tuple(asked) != tuple(declared):
        raise GraphError(f"{name}: the file declares {tuple(declared)}, asked for {tuple(asked)} at run time")


def _split_type(x: TensorType, axis: int, output_sizes: Sequence[int]) -> tuple[TensorType, ...]:
    axis = axis_of(axis, x.rank)
    return tuple(x.with_shape((*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in output_sizes)


@op("onnx.Split", "x:A split:ints~ axis:int=0 output_sizes:ints", infer=_split_type)
def split(x, split, axis, output_sizes):
    """Pieces along an axis, of sizes that arrive at run time."""
    agreed("onnx.Split", output_sizes, split)
    return tuple(np.split(x, np.cumsum(split)[:-1], axis=axis))


def _declared_type(x: TensorType, output_shape: Sequence[int]) -> TensorType:
    return x.with_shape(output_shape)


@op(
    "onnx.Col2ImAt",
    "x:A image_shape:ints~ block_shape:ints~ strides:ints pad:ints dilations:ints output_shape:ints",
    infer=_declared_type,
)
def col2im_at(x, image_shape, output_shape, **block):
    """``onnx.Col2Im`` with shapes that arrive at run time."""
    agreed("onnx.Col2ImAt", output_shape[2:], image_shape)
    return col2im(x, image_shape, **block)


@op("onnx.MaxUnpoolAt", "x:T indices:I shape:ints~ index_shape:ints output_shape:ints", infer=_declared_type)
def max_unpool_at(x, indices, shape, index_shape, output_shape):
    """``onnx.MaxUnpool`` whose output shape arrives at run time."""
    agreed("onnx.MaxUnpoolAt", output_shape, shape)
    return max_unpool(x, indices, output_shape, index_shape)


for _name, _signature, _function in (
    ("CumProdAt", "x:N axis:int~ exclusive:bool=False reverse:bool=False", cumprod),
    ("DFTAt", "x:T dft_length:int~? axis:int~=1 onesided:bool=False inverse:bool=False", dft),
    ("STFTAt", "signal:T window:T? frame_step:int~ frame_length:int~? onesided:bool=True", stft),
):  # ops of constant parameters, where these arrive at run time
    runtime_op(_name, _signature)(_function)
