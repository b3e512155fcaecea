"""Layout of a padded image in which every term of a window stands at a fixed distance from its output.

An image becomes planes of padded rows, one set of planes per phase where the stride is not 1. Output position
p = row * pitch + column then reads tap (ky, kx) at a fixed offset from p, so that a run of outputs may go over row
ends; what falls into the padding is computed and left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hexane.arithmetic.plain_convolution import PlainWindow
from hexane.rounding import ceil_div


def pitch_of(width: int) -> int:
    """A row pitch in elements that spreads rows over all cache sets: an odd number of cache lines."""
    lines = ceil_div(width, 16)
    return 16 * (lines | 1)


@dataclass(frozen=True)
class Planes:
    """Sizes in elements; ``phases``, ``height`` and ``pitch`` of the planes of one channel, for one window."""

    channels: int
    phases: tuple[int, int]
    height: int
    pitch: int

    @property
    def plane(self) -> int:
        """From one plane to the next."""
        return pitch_of(self.height * self.pitch)

    @property
    def size(self) -> int:
        return self.channels * self.phases[0] * self.phases[1] * self.plane

    @classmethod
    def of(cls, channels: int, window: PlainWindow) -> Planes:
        oh, ow = window.output
        rows = (oh - 1) * window.strides[0] + window.dilations[0] * (window.kernel[0] - 1) + 1
        columns = (ow - 1) * window.strides[1] + window.dilations[1] * (window.kernel[1] - 1) + 1
        phases = min(window.strides[0], rows), min(window.strides[1], columns)
        return cls(channels, phases, ceil_div(rows, window.strides[0]), ceil_div(columns, window.strides[1]))

    def offsets(self, window: PlainWindow) -> np.ndarray:
        """Places of the terms of output 0 (int64), in the engine's order: channel, kernel row, kernel column."""
        (sy, sx), (dy, dx) = window.strides, window.dilations
        y, x = np.arange(window.kernel[0]) * dy, np.arange(window.kernel[1]) * dx
        phase = (y % sy)[:, None] * self.phases[1] + (x % sx)[None]
        inside = (y // sy)[:, None] * self.pitch + (x // sx)[None]
        channel = np.arange(self.channels) * self.phases[0] * self.phases[1]
        return ((channel[:, None, None] + phase) * self.plane + inside).ravel().astype(np.int64)

    def parts(self, image: np.ndarray, window: PlainWindow) -> Iterator[tuple[np.ndarray, int, int]]:
        """Every phase of an image (C, H, W): its pixels, where the first belongs, and how far channels are apart."""
        (sy, sx), (left, top, _, _) = window.strides, window.pads
        for py in range(self.phases[0]):
            for px in range(self.phases[1]):
                # The first row and column of this phase that lie inside the image, and where they go.
                y, x = ceil_div(max(top - py, 0), sy), ceil_div(max(left - px, 0), sx)
                source = image[:, y * sy + py - top :: sy, x * sx + px - left :: sx]
                source = source[:, : max(self.height - y, 0), : max(self.pitch - x, 0)]
                if source.size:
                    place = (py * self.phases[1] + px) * self.plane + y * self.pitch + x
                    yield source, place, self.phases[0] * self.phases[1] * self.plane
