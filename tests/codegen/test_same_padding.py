"""``same`` puts an odd surplus of padding behind, ``same_lower`` in front (docs/reference/mil.md 5.3), on both sides.

Compared with sums and maxima written out here: float32, graph level and engine take their padding from one rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

H, W = 5, 7


def surplus(extent: int, k: int, stride: int, pad_type: str) -> tuple[int, int]:
    """Padding before and after."""
    results = -(-extent // stride)
    total = max(0, (results - 1) * stride + k - extent)
    less = total // 2
    return (less, total - less) if pad_type == "same" else (total - less, less)


def windows(x: np.ndarray, kernel: tuple[int, int], stride: int, pad_type: str, fill: float) -> np.ndarray:
    """Every window of one map: results along the first two axes, the window along the last two."""
    pads = [surplus(extent, k, stride, pad_type) for extent, k in zip(x.shape, kernel)]
    wide = np.pad(x, pads, constant_values=fill)
    size = [-(-extent // stride) for extent in x.shape]
    return np.array(
        [
            [wide[stride * i : stride * i + kernel[0], stride * j : stride * j + kernel[1]] for j in range(size[1])]
            for i in range(size[0])
        ]
    )


@pytest.mark.parametrize("pad_type", ["same", "same_lower"])
@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("kernel, stride", [((2, 2), 1), ((2, 4), 1), ((3, 3), 2), ((4, 2), 2), ((3, 2), 1)])
@pytest.mark.parametrize("kind", ["conv", "max_pool", "avg_pool"])
def test_where_the_odd_surplus_lies(kind: str, kernel: tuple[int, int], stride: int, chip: str, pad_type: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-8, 8, (H, W)).astype(np.float16)
    weight = rng.integers(-3, 4, kernel).astype(np.float16)
    b = GraphBuilder()
    given = b.input("x", (1, 1, H, W), "fp16")
    strides = (stride, stride)
    if kind == "conv":
        y = b.conv(x=given, weight=weight[None, None], strides=strides, pad_type=pad_type, name="y")
        wanted = (windows(x, kernel, stride, pad_type, 0) * weight).sum((2, 3))
    elif kind == "max_pool":
        y = b.max_pool(x=given, kernel_sizes=kernel, strides=strides, pad_type=pad_type, name="y")
        wanted = windows(x, kernel, stride, pad_type, -np.inf).max((2, 3))
    else:
        y = b.avg_pool(
            x=given, kernel_sizes=kernel, strides=strides, pad_type=pad_type,
            exclude_padding_from_average=False, name="y",
        )  # fmt: skip
        wanted = windows(x, kernel, stride, pad_type, 0).mean((2, 3), dtype=np.float32)
    b.output(y)
    inputs = {"x": x[None, None]}
    np.testing.assert_allclose(b.graph.evaluate(inputs)["y"][0, 0], wanted, rtol=2e-3, atol=1e-3)
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    np.testing.assert_allclose(agreed(program, inputs)["y"][0, 0], wanted, rtol=2e-3, atol=2e-3)


def _scattered(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """All contributions of a transposed convolution, added, before anything is cut."""
    whole = np.zeros([(extent - 1) * stride + k for extent, k in zip(x.shape, weight.shape)], np.float32)
    for i, j in np.ndindex(x.shape):
        whole[stride * i :, stride * j :][: weight.shape[0], : weight.shape[1]] += x[i, j] * weight
    return whole


def _transposed_is(wanted: np.ndarray, x: np.ndarray, weight: np.ndarray, stride: int, **cuts: Any) -> None:
    b = GraphBuilder()
    given = b.input("x", (1, 1, *x.shape), "fp16")
    b.output(b.conv_transpose(x=given, weight=weight[None, None], strides=(stride, stride), name="y", **cuts))
    inputs = {"x": x[None, None]}
    np.testing.assert_array_equal(b.graph.evaluate(inputs)["y"][0, 0], wanted)
    np.testing.assert_array_equal(agreed(hexane.compile(b.graph), inputs)["y"][0, 0], wanted)


@pytest.mark.parametrize("pad_type", ["same", "same_lower"])
@pytest.mark.parametrize("kernel, stride", [((4, 3), 1), ((3, 4), 2), ((2, 5), 2)])
def test_what_a_transposed_convolution_cuts(kernel: tuple[int, int], stride: int, pad_type: str) -> None:
    """The surplus is cut: the odd element behind, or in front."""
    rng = np.random.default_rng(4)
    x = rng.integers(-8, 8, (H, W)).astype(np.float16)
    weight = rng.integers(-3, 4, kernel).astype(np.float16)
    whole = _scattered(x, weight, stride)
    for axis, extent in enumerate(x.shape):
        total = max(0, whole.shape[axis] - stride * extent)
        before = total // 2 if pad_type == "same" else total - total // 2
        whole = np.take(whole, range(before, before + stride * extent), axis=axis)
    _transposed_is(whole, x, weight, stride, pad_type=pad_type)


@pytest.mark.parametrize(
    "kernel, stride, pad",
    [((4, 3), 2, (0, 1, 2, 3)), ((2, 3), 3, (1, 2, 0, 5)), ((1, 2), 2, (0, 0, 0, 2)), ((3, 1), 1, (2, 4, 0, 2))],
)
def test_cuts_as_wide_as_the_kernel_and_wider(kernel: tuple[int, int], stride: int, pad: tuple[int, ...]) -> None:
    """Whole rows and columns of the source then count for nothing."""
    rng = np.random.default_rng(5)
    x = rng.integers(-8, 8, (H, W)).astype(np.float16)
    weight = rng.integers(-3, 4, kernel).astype(np.float16)
    whole = _scattered(x, weight, stride)
    rows, columns = (slice(before, extent - after) for before, after, extent in zip(pad[::2], pad[1::2], whole.shape))
    _transposed_is(whole[rows, columns], x, weight, stride, pad_type="custom", pad=pad)
