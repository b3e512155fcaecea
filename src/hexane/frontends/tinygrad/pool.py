"""Sums and maxima over windows of one view: pooling."""

from __future__ import annotations

from math import prod

import numpy as np

from hexane.formats.operands import Folder, Operand, type_of
from hexane.frontends.tinygrad.contract import Kinds, NoContraction, laid_out, ordered, windows_of
from hexane.frontends.tinygrad.views import View


def pooled(ops: Folder, x: View, operand: Operand, reduced: int, kind: str) -> Operand:
    """The sum ("ADD") or maximum ("MAX") over the first ``reduced`` axes of a windowed view, without these axes.

    NoContraction where no window slides, or something else than windows is reduced.
    """
    moving = [axis for axis, extent in enumerate(x.shape) if extent > 1]
    for axis in moving:
        if not any(steps[axis] for steps in x.steps):
            raise NoContraction
    axes = Kinds((), tuple(a for a in moving if a >= reduced), (), tuple(a for a in moving if a < reduced))
    windows = windows_of(x, axes)
    if not windows or len(windows) > 2 or {w.kernel for w in windows} != set(axes.summed):
        raise NoContraction
    outs = [window.out for window in windows]
    if any(window.dilation != 1 for window in windows):
        raise NoContraction
    others = tuple(axis for axis in axes.left if axis not in outs)
    image = laid_out(ops, x, operand, [(), others, *((axis,) for axis in outs)], windows)
    sizes = [x.shape[window.kernel] for window in windows]
    strides = [window.stride for window in windows]
    how = {"kernel_sizes": sizes, "strides": strides, "pad_type": "valid", "pad": np.zeros(2 * len(windows), np.int32)}
    if kind == "MAX":
        result = ops.max_pool(x=image, **how)
    else:
        result = ops.avg_pool(x=image, exclude_padding_from_average=False, **how)
        result = ops.mul(x=result, y=np.array(prod(sizes), type_of(result).carrier))
    return ordered(ops, result, [*others, *outs], x.shape, reduced)
