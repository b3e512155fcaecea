"""Sums of products of views: what is a product of matrices, and what is a convolution."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from hexane.formats.compositions import reshape
from hexane.formats.operands import Folder, Operand, transposed, type_of
from hexane.frontends.tinygrad.views import View
from hexane.rounding import ceil_div


@dataclass(frozen=True)
class Kinds:
    """The axes of a product by what they do; each is an index into the product's shape."""

    groups: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    summed: tuple[int, ...]


class NoContraction(Exception):
    """Two views whose product is something else."""


def contraction(ops: Folder, x: tuple[View, Operand], w: tuple[View, Operand], reduced: int) -> Operand:
    """The sum over the first ``reduced`` axes of the product of two views of operands, without these axes.

    NoContraction where it is neither a product of matrices nor a convolution.
    """
    axes = _sorted(x[0], w[0], reduced)
    x, w = _split(ops, *x, axes), _split(ops, *w, axes)
    spatial = windows_of(x[0], axes)
    if spatial is None:
        windows = windows_of(w[0], Kinds(axes.groups, axes.right, axes.left, axes.summed))
        if windows is None:
            raise NoContraction
        if windows:  # the windows are the second's: it is the map, and the first the kernel
            return contraction(ops, w, x, reduced)
        raise NoContraction
    if not spatial:
        if not axes.left and not axes.right:
            raise NoContraction  # element by element, then summed
        if windows_of(w[0], Kinds(axes.groups, axes.right, axes.left, axes.summed)):
            return contraction(ops, w, x, reduced)
        return _product(ops, x, w, axes, reduced)
    return _convolution(ops, x, w, axes, spatial, reduced)


def _sorted(x: View, w: View, reduced: int) -> Kinds:
    groups, left, right, summed = [], [], [], []
    for axis, extent in enumerate(x.shape):
        if extent == 1:
            continue
        in_x, in_w = (any(steps[axis] for steps in view.steps) for view in (x, w))
        if axis < reduced:
            if not (in_x and in_w):
                raise NoContraction
            summed.append(axis)
        elif in_x and in_w:
            groups.append(axis)
        elif in_x:
            left.append(axis)
        elif in_w:
            right.append(axis)
        else:
            raise NoContraction
    return Kinds(tuple(groups), tuple(left), tuple(right), tuple(summed))


def _split(ops: Folder, view: View, operand: Operand, axes: Kinds) -> tuple[View, Operand]:
    """A source axis that groups share with another axis (channel = group * 4 + i) as one axis for each of the two."""
    shape: list[int] = []
    offsets: list[int] = []
    steps: list[tuple[int, ...]] = []
    for extent, offset, along in zip(type_of(operand).shape, view.offsets, view.steps):
        moving = sorted((axis for axis, step in enumerate(along) if step), key=lambda axis: -abs(along[axis]))
        shared = len(moving) == 2 and any(axis in axes.groups for axis in moving)
        outer, inner = (along[axis] for axis in moving) if shared else (0, 0)
        if outer < 2 or inner < 0 or extent % outer or offset % outer + (view.shape[moving[1]] - 1) * inner >= outer:
            shape, offsets, steps = [*shape, extent], [*offsets, offset], [*steps, along]
            continue
        shape += [extent // outer, outer]
        offsets += [offset // outer, offset % outer]
        steps += [tuple(int(axis == moving[0]) for axis in range(len(along)))]
        steps += [tuple(inner * (axis == moving[1]) for axis in range(len(along)))]
    return View(view.source, view.shape, tuple(offsets), tuple(steps)), reshape(ops, operand, shape)


@dataclass(frozen=True)
class Slide:
    """One spatial axis: the source's, and the product's axes along the result and along the kernel."""

    place: int
    out: int
    kernel: int
    stride: int
    dilation: int


def windows_of(x: View, axes: Kinds) -> list[Slide] | None:
    """The source's axes along which windows slide; None where an axis moves in a way that no window does."""
    windows = []
    for place, steps in enumerate(x.steps):
        moving = [axis for axis, step in enumerate(steps) if step]
        if len(moving) < 2:
            if moving and steps[moving[0]] < 0:
                return None
            continue
        kernel = [axis for axis in moving if axis in axes.summed]
        out = [axis for axis in moving if axis in axes.left]
        if len(moving) != 2 or len(kernel) != 1 or len(out) != 1 or min(steps[kernel[0]], steps[out[0]]) < 1:
            return None
        windows.append(Slide(place, out[0], kernel[0], steps[out[0]], steps[kernel[0]]))
    return windows


def laid_out(ops: Folder, view: View, operand: Operand, order: list[tuple[int, ...]], windows: list[Slide]) -> Operand:
    """The source, cut to what the view reads, with its axes in an order, each entry of which becomes one axis.

    An entry names axes of the product; a window's source axis stands where its result's axis is named.
    """
    view, operand = _forward(ops, view, operand)
    spans = {window.place: window for window in windows}
    begin, end, stride = [], [], []
    which: dict[int, int] = {}
    for place, steps in enumerate(view.steps):
        first = view.offsets[place]
        if place in spans:
            window = spans[place]
            span = (view.shape[window.out] - 1) * window.stride + (view.shape[window.kernel] - 1) * window.dilation + 1
            which[window.out] = place
            step = 1
        else:
            moving = [axis for axis, step in enumerate(steps) if step]
            if not moving:
                span, step = 1, 1
            else:
                if len(moving) > 1 or moving[0] in which:
                    raise NoContraction  # an axis of several, a diagonal
                which[moving[0]] = place
                step = steps[moving[0]]
                span = (view.shape[moving[0]] - 1) * step + 1
        begin.append(first)
        end.append(first + span)
        stride.append(step)
    shape = type_of(operand).shape
    if any(b or e != n or s != 1 for b, e, s, n in zip(begin, end, stride, shape)):
        operand = ops.slice_by_index(x=operand, begin=begin, end=end, stride=stride)
    if any(axis not in which for entry in order for axis in entry):
        raise NoContraction
    extents = [ceil_div(e - b, s) for b, e, s in zip(begin, end, stride)]
    places = [which[axis] for entry in order for axis in entry]
    if places != sorted(places):
        perm = places + [place for place in range(len(extents)) if place not in places]  # of one element each
        operand = transposed(ops, operand, perm)
    target = [prod(extents[which[axis]] for axis in entry) for entry in order]
    return reshape(ops, operand, target)


def _forward(ops: Folder, view: View, operand: Operand) -> tuple[View, Operand]:
    """The same view of a source whose axes are turned round where the view reads them backwards."""
    flipped = [place for place, steps in enumerate(view.steps) if min(steps, default=0) < 0]
    if not flipped:
        return view, operand
    offsets, steps = list(view.offsets), list(view.steps)
    for place in flipped:
        offsets[place] = type_of(operand).shape[place] - 1 - offsets[place]
        steps[place] = tuple(-step for step in steps[place])
        if min(steps[place]) < 0:
            raise NoContraction
    operand = ops.reverse(x=operand, axes=flipped)
    return View(view.source, view.shape, tuple(offsets), tuple(steps)), operand


def _product(ops: Folder, x: tuple[View, Operand], w: tuple[View, Operand], axes: Kinds, reduced: int) -> Operand:
    a = laid_out(ops, *x, [axes.groups, axes.left, axes.summed], [])
    b = laid_out(ops, *w, [axes.groups, axes.summed, axes.right], [])
    if not axes.groups:
        a, b = (reshape(ops, value, type_of(value).shape[1:]) for value in (a, b))
    result = ops.matmul(x=a, y=b, transpose_x=False, transpose_y=False)
    return ordered(ops, result, [*axes.groups, *axes.left, *axes.right], x[0].shape, reduced)


def _convolution(
    ops: Folder, x: tuple[View, Operand], w: tuple[View, Operand], axes: Kinds, windows: list[Slide], reduced: int
) -> Operand:
    """x as N, groups * channels, space; the kernel as groups * results, channels, space."""
    if len(windows) > 2:
        raise NoContraction
    outs, kernels = tuple(window.out for window in windows), tuple(window.kernel for window in windows)
    batch = tuple(axis for axis in axes.left if axis not in outs)
    channels = tuple(axis for axis in axes.summed if axis not in kernels)
    shape = x[0].shape
    groups = prod(shape[axis] for axis in axes.groups)
    image = laid_out(ops, *x, [batch, axes.groups + channels, *((axis,) for axis in outs)], windows)
    kernel = laid_out(ops, *w, [axes.groups + axes.right, channels, *((axis,) for axis in kernels)], [])
    result = ops.conv(
        x=image,
        weight=kernel,
        strides=[window.stride for window in windows],
        dilations=[window.dilation for window in windows],
        groups=groups,
        pad_type="valid",
        pad=np.zeros(2 * len(windows), np.int32),
    )
    return ordered(ops, result, [*batch, *axes.groups, *axes.right, *outs], shape, reduced)


def ordered(ops: Folder, result: Operand, order: list[int], shape: tuple[int, ...], reduced: int) -> Operand:
    """The product's own order of axes, those of one element included, without the summed ones."""
    target = sorted(order)
    if order != target:
        result = reshape(ops, result, [shape[axis] for axis in order])
        result = transposed(ops, result, [order.index(axis) for axis in target])
    return reshape(ops, result, shape[reduced:])
