"""Whole convolutions on the fast kernels, without a copy of the input per kernel position (see `planes`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hexane.arithmetic import multiply
from hexane.arithmetic import plain_convolution as plain
from hexane.arithmetic.fast import depthwise, few_pixels, matrix
from hexane.arithmetic.fast.planes import Planes, pitch_of
from hexane.arithmetic.fast.targets import Kernels, kernels
from hexane.arithmetic.fast.winograd import conv2d as conv2d_winograd
from hexane.arithmetic.fast.workspace import Room, Workspace
from hexane.arithmetic.formats import halfwords
from hexane.arithmetic.multiply import Activation


def prepare(
    w: np.ndarray,
    bias: np.ndarray,
    window: plain.Window,
    groups: int,
    post_scale: float,
    activation: Activation,
    winograd: bool,
    use: Kernels | None = None,
) -> plain.Ready:
    """As `hexane.arithmetic.convolution.prepare`, arguments checked, with the vector code of `use`."""
    use = use or kernels()
    finish = matrix.finish_of(post_scale, activation)
    if finish is None:
        return plain.Plain(w, bias, window, groups, post_scale, activation, winograd)
    if winograd:
        return Winograd(w, bias, window, finish, use)
    per_group = w.shape[0] // groups
    if groups > 1 and per_group * w.shape[1] < use.shape.rows:
        return depthwise.Depthwise(w, bias, window, groups, finish, use)
    dense = Dense(w, bias, window, groups, finish, use)
    if few_pixels.takes(w, window, groups):
        return few_pixels.FewPixels(dense, w, dense.start, window, finish, use)
    return dense


class Dense:
    """A convolution as one product per image and group; `arithmetic.plain_convolution.Ready`."""

    def __init__(
        self, w: np.ndarray, bias: np.ndarray, window: plain.Window, groups: int, finish: matrix.Finish, use: Kernels
    ) -> None:
        self.channels = (groups, w.shape[0] // groups)
        self.rows = list(halfwords(w).reshape(*self.channels, -1))
        self.kept: list[matrix.Product] = []
        self.start = multiply.bias_units(bias).reshape(self.channels)
        self.image = ImageReader.of(w.shape[1] * groups, window, use)
        self.terms = [matrix.Terms(offsets, 0, self.image.extent) for offsets in self.image.offsets.reshape(groups, -1)]
        self.output = window.output
        self.finish, self.use = finish, use
        self.last: tuple[np.ndarray | None, list[list[matrix.Place]]] = None, []

    def _products(self, room: Room) -> list[matrix.Product]:
        """The product of each group, its packed weights in a room."""
        return [
            matrix.Product(matrix.pack_rows(rows, self.use, room), terms, self.use, row_start=start, finish=self.finish)
            for rows, terms, start in zip(self.rows, self.terms, self.start)
        ]

    def keep(self) -> int:
        """Pack the weights for good: about twice the bytes of the halfwords, which are let go."""
        size = sum(rows.nbytes for rows in self.rows)
        if self.rows:
            self.kept, self.rows = self._products(Room()), []
        return 2 * size

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if self.kept:
            return self._run(self.kept, x, out)
        with Workspace() as space:
            return self._run(self._products(space), x, out)

    def _run(self, products: list[matrix.Product], x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if out is None:
            out = np.empty((x.shape[0], self.channels[0] * self.channels[1], *self.output), np.float16)
        last, places = self.last
        if last is not out:  # the same place in every run of a program
            places = self._places(out)
            self.last = out, places
        for image, groups in zip(x.view(np.uint16), places):
            with Workspace() as space:
                columns = self.image.read(image, space)
                for product, place in zip(products, groups):
                    product.into(columns, place, out)
        return out

    def _places(self, out: np.ndarray) -> list[list[matrix.Place]]:
        """Where the results of each image and group go."""
        target = out.view(np.uint16).reshape(-1, *self.channels, *self.output)
        window = self.image.window_of(target.strides[3])
        if window[2] == 1:
            target = target.reshape(*target.shape[:3], 1, -1)
        return [[matrix.place_of(group, window) for group in image] for image in target]


@dataclass(frozen=True)
class Winograd:
    """A convolution in the form of M5 and M6; `arithmetic.plain_convolution.Ready`."""

    w: np.ndarray
    bias: np.ndarray
    window: plain.Window
    finish: matrix.Finish
    use: Kernels

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return conv2d_winograd(x, self.w, self.bias, self.window, self.finish, self.use)

    def keep(self) -> int:
        return 0


@dataclass(frozen=True)
class ImageReader:
    """How an image becomes the vector operand of one product.

    ``offsets``: where the terms of output 0 stand; ``extent``: how many columns there are. Without ``planes`` the image
    is read as a matrix: a 1x1 window that moves by 1.
    """

    window: plain.Window
    planes: Planes | None
    offsets: np.ndarray
    extent: int
    use: Kernels

    @classmethod
    def of(cls, channels: int, window: plain.Window, use: Kernels) -> ImageReader:
        oh, ow = window.output
        if window.kernel == (1, 1) and window.strides == (1, 1) and (oh, ow) == window.input:
            size = oh * ow
            offsets = np.arange(channels, dtype=np.int64) * pitch_of(size)
            return cls(window, None, offsets, size, use)
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

    def read(self, image: np.ndarray, space: Room) -> matrix.Columns:
        """One image (C, H, W) of halfwords."""
        if self.planes is None:
            return matrix.decode_matrix(image, self.use, space)[0]
        columns = matrix.empty_columns(self.planes.size, self.use, space)
        for source, place, apart in self.planes.parts(image, self.window):
            matrix.decode_planes(source, columns, place, apart, self.planes.pitch, self.use)
        matrix.finish_columns(columns, self.use)
        return columns
