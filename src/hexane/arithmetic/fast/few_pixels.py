"""Convolutions with few output pixels (fully connected layers): the outputs are the columns of the product.

A tile of the usual product holds 12 outputs by 32 pixels, most of which would be empty here. With the operands
exchanged a vector holds outputs, and every weight is read once. A product and its rounding do not depend on which
operand comes first, and the terms of a sum come in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from hexane.arithmetic import plain_convolution as plain
from hexane.arithmetic.fast import few_pixels_job, matrix
from hexane.arithmetic.fast.jobs import CompiledJob
from hexane.arithmetic.fast.targets import SHAPES, VectorKernels, kernels_of_shape
from hexane.arithmetic.fast.workspace import Room, Workspace
from hexane.arithmetic.formats import halfwords

MOST_PIXELS = 4
LEAST_WEIGHTS = 1 << 14
"""Below, packing the input costs more than the empty columns."""
VECTORS = 8
"""Accumulators of a tile of one row: enough to hide how long an addition takes."""


def takes(w: np.ndarray, window: plain.PlainWindow, groups: int) -> bool:
    """True where a convolution is worth exchanging its operands."""
    height, width = window.output
    return groups == 1 and height * width <= MOST_PIXELS and w.size >= LEAST_WEIGHTS


@lru_cache(maxsize=8)
def _one_row(name: str) -> VectorKernels:
    return kernels_of_shape(name, replace(SHAPES[name], rows=1, vectors=VECTORS))


class FewPixels:
    """Another way to compute a convolution until its weights are kept; `plain_convolution.PlainConvolution`."""

    def __init__(
        self,
        before: plain.PlainConvolution,
        w: np.ndarray,
        start: np.ndarray,
        window: plain.PlainWindow,
        finish: matrix.Finish,
        use: VectorKernels,
    ) -> None:
        self.before: plain.PlainConvolution | None = before
        self.weights: np.ndarray | None = halfwords(w).reshape(w.shape[0], -1)
        self.start, self.window, self.finish = np.ascontiguousarray(start.reshape(-1)), window, finish
        self.name = use.name
        self.kept: tuple[VectorKernels, matrix.Columns, matrix.Terms] | None = None

    def keep(self) -> int:
        """Pack the weights for good: their bytes, about twice those of the halfwords."""
        if self.kept is None:
            use, weights = _one_row(self.name), self.weights
            assert weights is not None
            transposed = np.ascontiguousarray(weights.T)[:, None]
            self.kept = use, *matrix.pack_columns(transposed, np.arange(len(transposed)), use, Room())
            self.before = self.weights = None  # another thread may still use what it took
        return sum(part.nbytes for part in self.kept[1])

    def job(self, x: np.ndarray, out: np.ndarray) -> CompiledJob | None:
        """The same as a job, if the weights are kept and the window moves by one pixel and has no padding: x (1,
        groups, channels, H, W) halfwords, in whatever groups, out (1, 1, outputs, OH, OW)."""
        window = self.window
        one = window.output == (1, 1)  # then it does not move
        simple = not any(window.pads) and (one or window.strides == (1, 1)) and window.dilations == (1, 1)
        if self.kept is None or not simple or x.shape[0] != 1 or x.shape[3:] != window.input:
            return None
        use, columns, terms = self.kept
        if out.shape != (1, 1, terms.extent, *window.output):
            return None
        return few_pixels_job.job(x, out, columns, window.kernel, self.start, self.finish, use)

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        before = self.before
        if before is not None and self.kept is None:
            return before(x, out)
        assert self.kept is not None
        use, columns, terms = self.kept
        height, width = self.window.output
        pixels, outputs = height * width, terms.extent
        if out is None:
            out = np.empty((x.shape[0], outputs, height, width), np.float16)
        taps = self.window.taps(x.view(np.uint16))  # what each output pixel sees
        for source, result in zip(taps, out.view(np.uint16)):
            with Workspace() as space:
                rows = matrix.pack_rows(source.T, use, space)
                ready = matrix.MatrixProduct(rows, terms, use, column_start=self.start, finish=self.finish)
                columns_out = np.empty((pixels, 1, outputs), np.uint16)
                ready.into(columns, matrix.place_of(columns_out, (outputs, outputs, 1)), columns_out)
            result[...] = columns_out.reshape(height, width, outputs).transpose(2, 0, 1)
        return out
