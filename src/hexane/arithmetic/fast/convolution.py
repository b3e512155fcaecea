"""Whole convolutions on the fast kernels, without a copy of the input per kernel position.

An image is decoded once into planes of padded rows (one set of planes per phase where the stride is not 1). Output
position p = row * pitch + column then reads tap (ky, kx) at a fixed offset from p, so that a tile of outputs may run
over
row ends; what falls into the padding is computed and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.arithmetic import convolution as plain
from hexane.arithmetic import multiply
from hexane.arithmetic.fast import depthwise, matrix
from hexane.arithmetic.fast.targets import Kernels, kernels
from hexane.arithmetic.fast.winograd import conv2d as conv2d_winograd
from hexane.arithmetic.fast.workspace import Workspace
from hexane.arithmetic.formats import halfwords
from hexane.arithmetic.multiply import Activation


@dataclass(frozen=True)
class Planes:
    """Where the phases of a padded image lie, for one window; sizes in elements."""

    channels: int
    phases: tuple[int, int]
    height: int
    pitch: int

    @property
    def plane(self) -> int:
        """From one plane to the next: an odd number of cache lines."""
        return matrix.pitch_of(self.height * self.pitch)

    @property
    def size(self) -> int:
        return self.channels * self.phases[0] * self.phases[1] * self.plane

    @classmethod
    def of(cls, channels: int, window: plain.Window) -> Planes:
        oh, ow = window.output
        rows = (oh - 1) * window.strides[0] + window.dilations[0] * (window.kernel[0] - 1) + 1
        columns = (ow - 1) * window.strides[1] + window.dilations[1] * (window.kernel[1] - 1) + 1
        phases = min(window.strides[0], rows), min(window.strides[1], columns)
        return cls(channels, phases, -(-rows // window.strides[0]), -(-columns // window.strides[1]))

    def offsets(self, window: plain.Window) -> np.ndarray:
        """Where the terms of output 0 stand, in the engine's order: channel, kernel row, kernel column."""
        (sy, sx), (dy, dx) = window.strides, window.dilations
        y, x = np.arange(window.kernel[0]) * dy, np.arange(window.kernel[1]) * dx
        phase = (y % sy)[:, None] * self.phases[1] + (x % sx)[None]
        inside = (y // sy)[:, None] * self.pitch + (x // sx)[None]
        channel = np.arange(self.channels) * self.phases[0] * self.phases[1]
        return ((channel[:, None, None] + phase) * self.plane + inside).ravel().astype(np.int64)

    def fill(self, image: np.ndarray, window: plain.Window, columns: matrix.Columns, use: Kernels) -> None:
        """Decode one image (C, H, W) of halfwords."""
        (sy, sx), (left, top, _, _) = window.strides, window.pads
        for py in range(self.phases[0]):
            for px in range(self.phases[1]):
                # The first row and column of this phase that lie inside the image, and where they go.
                y, x = -(-max(top - py, 0) // sy), -(-max(left - px, 0) // sx)
                source = image[:, y * sy + py - top :: sy, x * sx + px - left :: sx]
                source = source[:, : max(self.height - y, 0), : max(self.pitch - x, 0)]
                if source.size:
                    base = (py * self.phases[1] + px) * self.plane + y * self.pitch + x
                    step = self.phases[0] * self.phases[1] * self.plane
                    matrix.decode_planes(source, columns, base, step, self.pitch, use)


def conv2d(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    window: plain.Window,
    groups: int,
    post_scale: float,
    activation: Activation,
    winograd: bool,
    use: Kernels | None = None,
) -> np.ndarray:
    """As `hexane.arithmetic.conv2d`, arguments checked, with the vector code of `use`."""
    use = use or kernels()
    finish = matrix.finish_of(post_scale, activation)
    if finish is None:
        form = plain.conv2d_winograd_plain if winograd else plain.conv2d_plain
        return form(x, w, bias, window, groups, post_scale, activation)
    if winograd:
        return conv2d_winograd(x, w, bias, window, finish, use)
    per_group = w.shape[0] // groups
    if groups > 1 and per_group * w.shape[1] < use.shape.rows:
        return depthwise.conv2d(x, w, bias, window, groups, finish)
    bits = halfwords(w).reshape(groups, per_group, -1)
    start = multiply.bias_units(bias).reshape(groups, per_group)
    oh, ow = window.output
    out = np.empty((x.shape[0], groups, per_group, oh * ow), np.uint16)
    with Workspace() as kept:
        packed = [matrix.pack_rows(bits[g], use, kept) for g in range(groups)]
        for n, image in enumerate(halfwords(x)):
            with Workspace() as space:
                columns, reading = read_image(image, window, use, space)
                offsets = reading.offsets.reshape(groups, -1)
                for g in range(groups):
                    matrix.multiply(
                        packed[g], columns, matrix.Terms(offsets[g], 0, reading.extent), use,
                        row_start=start[g], out=out[n, g], window=reading.places, finish=finish,
                    )  # fmt: skip
    return out.reshape(x.shape[0], w.shape[0], oh, ow).view(np.float16)


@dataclass(frozen=True)
class Reading:
    """Where the terms of output 0 stand, how many columns there are, and (pitch, width, height) of the outputs."""

    offsets: np.ndarray
    extent: int
    places: tuple[int, int, int]


def read_image(
    image: np.ndarray, window: plain.Window, use: Kernels, space: Workspace
) -> tuple[matrix.Columns, Reading]:
    """One image (C, H, W) of halfwords as the vector operand; a 1x1 window that moves by 1 reads it as a matrix."""
    channels = image.shape[0]
    oh, ow = window.output
    if window.kernel == (1, 1) and window.strides == (1, 1) and (oh, ow) == window.input:
        columns, pitch = matrix.decode_matrix(image.reshape(channels, -1), use, space)
        return columns, Reading(np.arange(channels, dtype=np.int64) * pitch, oh * ow, (oh * ow, oh * ow, 1))
    planes = Planes.of(channels, window)
    columns = matrix.empty_columns(planes.size, use, space)
    planes.fill(image, window, columns, use)
    matrix.finish_columns(columns, use)
    extent = (oh - 1) * planes.pitch + ow
    return columns, Reading(planes.offsets(window), extent, (planes.pitch, ow, oh))
