"""The small network that comes with hexane, for machines that cannot fetch real ones: an edge filter made by hand."""

from __future__ import annotations

import numpy as np

from hexane.graph import Graph, GraphBuilder

SIDE = 320
LABEL = "an edge filter made by hand, not a trained network: two 3x3 convolutions, squares, a sum, a root"


def network() -> Graph:
    """Sobel's two filters on a grey picture (1, 1, 320, 320), and the length of their gradient."""
    across = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float16) / np.float16(4)
    kernels = np.stack([across, across.T])[:, None]
    b = GraphBuilder()
    x = b.input("picture", (1, 1, SIDE, SIDE), "fp16")
    slopes = b.conv(
        x=x, weight=kernels, strides=(1, 1), pad_type="custom", pad=(1, 1, 1, 1), dilations=(1, 1), groups=1,
        name="slopes",
    )  # fmt: skip
    squares = b.mul(x=slopes, y=slopes, name="squares")
    energy = b.reduce_sum(x=squares, axes=(1,), keep_dims=True, name="energy")
    b.output(b.sqrt(x=energy, name="edges"))
    return b.graph


def as_input(picture: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3) uint8 as the filter wants it: grey, 0 to 1."""
    grey = picture.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32) / 255
    return grey[None, None].astype(np.float16)
