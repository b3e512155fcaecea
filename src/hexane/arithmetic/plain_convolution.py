"""The plain statement of convolutions: windows, the terms of every output in the engine's order, and their sums.

The terms of one output are taken in the order channel, kernel row, kernel column. Order matters only where a sum can
reach the limit; elsewhere the fast kernels take what order they like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hexane.arithmetic import multiply, winograd
from hexane.arithmetic.formats import halfwords
from hexane.arithmetic.multiply import Activation, Sums


@dataclass(frozen=True)
class PlainWindow:
    """Position of the kernel on the input: everything in elements; padding is left, top, right, bottom."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    input: tuple[int, int]

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        left, top, right, bottom = self.pads
        return (
            (self.input[0] + top + bottom - self.dilations[0] * (self.kernel[0] - 1) - 1) // self.strides[0] + 1,
            (self.input[1] + left + right - self.dilations[1] * (self.kernel[1] - 1) - 1) // self.strides[1] + 1,
        )

    @property
    def winograd(self) -> bool:
        """True where M5 and M6 compute this window in Winograd form (docs/reference/numerics.md 6)."""
        dilated = any(spread != 1 for spread, taps in zip(self.dilations, self.kernel) if taps > 1)
        return self.kernel[1] == 3 and self.kernel[0] in (1, 3) and self.strides == (1, 1) and not dilated

    def padded(self, x: np.ndarray, extra_columns: int = 0) -> np.ndarray:
        """The input (N, C, H, W) with its zero border, cut or filled to what the output reads."""
        left, top, _, _ = self.pads
        height = (self.output[0] - 1) * self.strides[0] + self.dilations[0] * (self.kernel[0] - 1) + 1
        width = (self.output[1] - 1) * self.strides[1] + self.dilations[1] * (self.kernel[1] - 1) + 1 + extra_columns
        result = np.zeros((*x.shape[:2], height, width), x.dtype)
        rows, columns = min(height - top, x.shape[2]), min(width - left, x.shape[3])
        if rows > 0 and columns > 0:
            result[:, :, top : top + rows, left : left + columns] = x[:, :, :rows, :columns]
        return result

    def taps(self, x: np.ndarray) -> np.ndarray:
        """The terms of every output (N, C * KH * KW, OH * OW) of an input (N, C, H, W), in the engine's order."""
        padded = self.padded(x)
        oh, ow = self.output
        sy, sx = self.strides
        dy, dx = self.dilations
        taps = [
            padded[:, :, ky * dy : ky * dy + (oh - 1) * sy + 1 : sy, kx * dx : kx * dx + (ow - 1) * sx + 1 : sx]
            for ky in range(self.kernel[0])
            for kx in range(self.kernel[1])
        ]
        return np.stack(taps, 2).reshape(x.shape[0], -1, oh * ow)


@dataclass(frozen=True)
class WindowPlaces:
    """Place of weights that are read in every run: halfwords number ``index`` (int32) of the bytes ``data``."""

    data: np.ndarray
    index: np.ndarray


@dataclass(frozen=True)
class Grouped:
    """A convolution for each group of ``channels`` input channels; `PlainConvolution`."""

    parts: tuple[PlainConvolution, ...]
    channels: int

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        groups = (x[:, g * self.channels : (g + 1) * self.channels] for g in range(len(self.parts)))
        return np.concatenate([part(np.ascontiguousarray(group)) for part, group in zip(self.parts, groups)], axis=1)

    def keep(self) -> int:
        return sum(part.keep() for part in self.parts)


class PlainConvolution(Protocol):
    """A convolution that waits for its input: x (N, C, H, W) float16 of the shape that it was made for."""

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The result (N, O, OH, OW) float16: in `out`, whose lines have no gaps, if this form can and it is given."""
        ...

    def keep(self) -> int:
        """Make the weights ready once and for all, and give the bytes that this takes; 0 where there is no need."""
        ...


@dataclass(frozen=True)
class Plain:
    """The plain statement as something that is `PlainConvolution`, its arguments checked."""

    w: np.ndarray
    bias: np.ndarray
    window: PlainWindow
    groups: int
    post_scale: float
    activation: Activation
    winograd: bool

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return self._winograd(x) if self.winograd else self._direct(x)

    def keep(self) -> int:
        return 0

    def _direct(self, x: np.ndarray) -> np.ndarray:
        """One matrix of terms per image and group."""
        outputs, groups = self.w.shape[0], self.groups
        terms = self.window.taps(halfwords(x))
        weights = halfwords(self.w).reshape(groups, outputs // groups, -1)
        start = multiply.bias_units(self.bias).reshape(groups, -1, 1)
        oh, ow = self.window.output
        result = np.empty((x.shape[0], groups, outputs // groups, oh * ow), np.float16)
        for n, image in enumerate(terms):
            for g, columns in enumerate(image.reshape(groups, -1, oh * ow)):
                sums = multiply.accumulate(weights[g], columns, np.broadcast_to(start[g], result.shape[2:]))
                result[n, g] = multiply.finish(sums.value(), self.post_scale, self.activation)
        return result.reshape(x.shape[0], outputs, oh, ow)

    def _winograd(self, x: np.ndarray) -> np.ndarray:
        """With an odd width the last pair's second output is computed and left out."""
        outputs = self.w.shape[0]
        oh, ow = self.window.output
        pairs = (ow + 1) // 2
        v = winograd.transform_input(self.window.padded(x, extra_columns=ow % 2))
        u = winograd.transform_kernel(self.w)
        kh = self.window.kernel[0]
        columns = [
            np.stack([halfwords(vi)[:, :, ky : ky + oh] for ky in range(kh)], 2).reshape(x.shape[0], -1, oh * pairs)
            for vi in v
        ]
        start = np.broadcast_to(multiply.bias_units(self.bias)[:, None], (outputs, oh * pairs))
        result = np.empty((x.shape[0], outputs, oh, 2 * pairs), np.float16)
        for n in range(x.shape[0]):
            sums: list[Sums] = [
                multiply.accumulate(halfwords(u[i]).reshape(outputs, -1), columns[i][n], np.zeros_like(start))
                for i in range(4)
            ]
            for parity, total in enumerate(winograd.combine(sums, start)):
                finished = multiply.finish(total.value(), self.post_scale, self.activation)
                result[n, :, :, parity::2] = finished.reshape(outputs, oh, pairs)
        return np.ascontiguousarray(result[..., :ow])
