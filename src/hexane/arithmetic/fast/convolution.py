"""Whole convolutions on the fast kernels, without a copy of the input per kernel position (see `planes`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat

import numpy as np

from hexane.arithmetic import multiply
from hexane.arithmetic import plain_convolution as plain
from hexane.arithmetic.fast import dense_job, depthwise, few_pixels, matrix, zero_blocks
from hexane.arithmetic.fast.jobs import CompiledJob
from hexane.arithmetic.fast.planes import Planes
from hexane.arithmetic.fast.product_record import PackedRows
from hexane.arithmetic.fast.targets import VectorKernels, fitting, kernels
from hexane.arithmetic.fast.winograd import conv2d as conv2d_winograd
from hexane.arithmetic.fast.workspace import Room, Workspace
from hexane.arithmetic.formats import halfwords


def prepare(form: plain.Plain, use: VectorKernels | None = None) -> plain.PlainConvolution:
    """The same convolution on the kernels, with the vector code of `use`; as it is where they lack its finish."""
    use = use or kernels()
    w, bias, window, groups = form.w, form.bias, form.window, form.groups
    finish = matrix.finish_of(form.post_scale, form.activation)
    if finish is None:
        return form
    if form.winograd:
        return Winograd(w, bias, window, finish, use)
    finish, per_group = matrix.capped(finish), w.shape[0] // groups
    if groups > 1 and per_group * w.shape[1] < use.shape.rows:
        return depthwise.Depthwise(w, bias, window, groups, finish, use)
    dense = Dense(w, bias, window, groups, finish, use)
    if few_pixels.takes(w, window, groups):
        return few_pixels.FewPixels(dense, w, multiply.bias_units(bias), window, finish, use)
    return dense


class Dense:
    """A convolution as one product per image and group; `plain_convolution.PlainConvolution`."""

    def __init__(
        self,
        w: np.ndarray,
        bias: np.ndarray,
        window: plain.PlainWindow,
        groups: int,
        finish: matrix.Finish,
        use: VectorKernels,
    ) -> None:
        self.image = ImageReader.of(w.shape[1] * groups, window, use)
        weights, start, offsets = halfwords(w), multiply.bias_units(bias), self.image.offsets.reshape(groups, -1)
        self.given = groups
        self.blocks = zero_blocks.blocks_of(weights.reshape(len(w), -1), use.shape.rows) if groups == 1 else None
        if self.blocks is None:
            self.channels = (groups, w.shape[0] // groups)
            self.rows = list(weights.reshape(*self.channels, -1))
            self.start, self.offsets = start.reshape(self.channels), np.ascontiguousarray(offsets)
        else:
            self.channels = (self.blocks.number, w.shape[0] // self.blocks.number)
            parts = self.blocks.outputs(weights.reshape(len(w), -1))
            self.rows = [part[:, terms] for part, terms in zip(parts, self.blocks.terms)]
            self.start = np.ascontiguousarray(self.blocks.outputs(start))
            self.offsets = offsets[0][self.blocks.terms]
        use = fitting(use, self.channels[1], self.image.extent)
        self.image = replace(self.image, use=use)
        self.kept: list[matrix.MatrixProduct] = []
        self.terms = [matrix.Terms(places, 0, self.image.extent) for places in self.offsets]
        self.output = window.output
        self.window, self.finish, self.use = window, finish, use
        self.whole: PackedRows | None = None
        self.last: tuple[np.ndarray | None, list[list[matrix.Place]]] = None, []

    def _products(self, packed: Iterable[PackedRows]) -> list[matrix.MatrixProduct]:
        """The product of each group, of its packed weights."""
        return [
            matrix.MatrixProduct(rows, terms, self.use, row_start=start, finish=self.finish)
            for rows, terms, start in zip(packed, self.terms, self.start)
        ]

    def _packed(self, room: Room) -> list[PackedRows]:
        """The weights of each group, packed in a room."""
        return [matrix.pack_rows(rows, self.use, room) for rows in self.rows]

    def keep(self) -> int:
        """Pack the weights for good: about twice the bytes of the halfwords, which are let go."""
        size = sum(rows.nbytes for rows in self.rows)
        if self.rows:
            whole = dense_job.stacked(self._packed(Room()))
            each = whole.values.shape[0] // self.channels[0]
            groups = [PackedRows(*(a[g * each : (g + 1) * each] for a in whole)) for g in range(self.channels[0])]
            self.whole, self.kept, self.rows = whole, self._products(groups), []
        return 2 * size

    def job(self, x: np.ndarray, out: np.ndarray) -> CompiledJob | None:
        """The same as a job, if the weights are kept: x (images, groups, channels, H, W) halfwords, in whatever groups,
        out (images, groups, outputs of a group, OH, OW)."""
        geometry = (self.given, self.channels[0] * self.channels[1] // self.given, *self.output)
        if self.whole is None or out.shape[1:] != geometry or x.shape[3:] != self.window.input:
            return None
        if self.blocks is not None:
            out = self.blocks.outputs(out[:, 0].swapaxes(0, 1)).transpose(2, 0, 1, 3, 4)
        planes = self.image.planes
        return dense_job.job(x, out, self.whole, self.start, self.offsets, self.window, planes, self.finish, self.use)

    def reading(self, places: plain.WindowPlaces, x: np.ndarray, out: np.ndarray) -> CompiledJob | None:
        """The job of the same convolution with weights (O, I, KH, KW) that it reads in every run; x and out as `job`
        takes them."""
        if self.blocks is not None or out.shape[1:] != (*self.channels, *self.output):
            return None
        if x.shape[3:] != self.window.input:
            return None
        where = plain.WindowPlaces(
            places.data, np.ascontiguousarray(places.index.reshape(len(places.index), -1), np.int32)
        )
        planes = self.image.planes
        return dense_job.job(x, out, where, self.start, self.offsets, self.window, planes, self.finish, self.use)

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if self.kept:
            return self._run(self.kept, x, out)
        with Workspace() as space:
            return self._run(self._products(self._packed(space)), x, out)

    def _run(self, products: list[matrix.MatrixProduct], x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if out is None:
            out = np.empty((x.shape[0], self.channels[0] * self.channels[1], *self.output), np.float16)
        last, places = self.last
        if last is not out:  # the same place in every run of a program
            places = self._places(out)
            self.last = out, places
        for image, groups in zip(x.view(np.uint16), places):
            with Workspace() as space:
                read = self.image.read(image, self.offsets, space)
                for product, columns, place in zip(products, read, groups):
                    product.into(columns, place, out)
        return out

    def _places(self, out: np.ndarray) -> list[list[matrix.Place]]:
        """Places of the results of each image and group."""
        target = out.view(np.uint16)
        if self.blocks is None:
            target = target.reshape(-1, *self.channels, *self.output)
        else:
            target = self.blocks.outputs(target.swapaxes(0, 1)).transpose(2, 0, 1, 3, 4)
        window = self.image.window_of(target.strides[3])
        if window[2] == 1:
            target = target.reshape(*target.shape[:3], 1, -1)
        return [[matrix.place_of(group, window) for group in image] for image in target]


@dataclass(frozen=True)
class Winograd:
    """A convolution in the form of M5 and M6; `plain_convolution.PlainConvolution`."""

    w: np.ndarray
    bias: np.ndarray
    window: plain.PlainWindow
    finish: matrix.Finish
    use: VectorKernels

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return conv2d_winograd(x, self.w, self.bias, self.window, self.finish, self.use)

    def keep(self) -> int:
        return 0


@dataclass(frozen=True)
class ImageReader:
    """Layout of an image as the vector operand of one product.

    ``offsets``: where the terms of output 0 stand; ``extent``: how many columns there are. Without ``planes`` the image
    is a matrix, which a 1x1 window that moves by 1 reads as it is, and offsets are numbers of channels.
    """

    window: plain.PlainWindow
    planes: Planes | None
    offsets: np.ndarray
    extent: int
    use: VectorKernels

    @classmethod
    def of(cls, channels: int, window: plain.PlainWindow, use: VectorKernels) -> ImageReader:
        oh, ow = window.output
        if window.kernel == (1, 1) and window.strides == (1, 1) and (oh, ow) == window.input:
            return cls(window, None, np.arange(channels, dtype=np.int64), oh * ow, use)
        planes = Planes.of(channels, window)
        extent = (oh - 1) * planes.pitch + ow
        return cls(window, planes, planes.offsets(window), extent, use)

    def window_of(self, line: int) -> tuple[int, int, int]:
        """Pitch, width and height of the outputs among the columns, for result lines that are `line` bytes apart."""
        oh, ow = self.output
        if self.planes is not None:
            return self.planes.pitch, ow, oh
        return (oh * ow, oh * ow, 1) if line == 2 * ow else (ow, ow, oh)

    @cached_property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        return self.window.output

    def read(self, image: np.ndarray, offsets: np.ndarray, space: Room) -> Iterable[matrix.Columns]:
        """One image (C, H, W) of halfwords, for the terms of each group."""
        if self.planes is None:
            return [matrix.pack_columns(image, channels, self.use, space)[0] for channels in offsets]
        columns = matrix.empty_columns(self.planes.size, self.use, space)
        for source, place, apart in self.planes.parts(image, self.window):
            matrix.decode_planes(source, columns, place, apart, self.planes.pitch, self.use)
        matrix.finish_columns(columns, self.use)
        return repeat(columns, len(offsets))
