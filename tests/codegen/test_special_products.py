"""Products and convolutions that take a way of their own: when they do, and the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.codegen.operations import ONE_HOT_KERNEL
from hexane.graph import GraphBuilder

from .levels import near


@pytest.mark.parametrize("n, k, tasks", [(260, 1024, 4), (528, 512, 3), (272, 2048, 3)])
def test_blocks_of_a_folded_product_stand_side_by_side(n: int, k: int, tasks: int) -> None:
    rng = np.random.default_rng(n)
    b = GraphBuilder()
    weight = (rng.normal(size=(n, k)) / 32).astype(np.float16)
    b.output(b.linear(x=b.input("x", (16, k), "fp16"), weight=weight), name="y")
    program = near(b.graph)
    assert [len(segment.plans) for segment in program.segments] == [tasks]


@pytest.mark.parametrize("width", [20, 200])
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 8, 12, 16, 32])
def test_a_shift_by_one_hot_kernels_of_a_core_each(channels: int, width: int) -> None:
    """Powers of two up to the cores (docs/reference/engine-h13.md 9.10); others get their padding from the window."""
    b = GraphBuilder()
    x = b.input("x", (1, channels, 6, width), "fp16")
    weight = np.linspace(-1, 1, channels).astype(np.float16).reshape(-1, 1, 1, 1)
    b.output(b.conv(x=x, weight=weight, groups=channels, pad_type="custom", pad=[0, 0, 1, 0]), name="y")
    (segment,) = (program := hexane.compile(b.graph)).segments
    formats = [plan.kernel_format for plan in segment.plans]
    assert formats.count(ONE_HOT_KERNEL) == (channels in (2, 4, 8, 16))
    data = {"x": np.random.default_rng(1).normal(size=x.shape).astype(np.float16)}
    made, wanted = program.run(data)["y"], b.graph.evaluate(data)["y"]
    # one-hot kernels lose what is below 2^-16; both round to fp16
    assert np.all(np.abs(made - wanted) <= 2**-14 + 2**-10 * np.abs(wanted)) and not made[..., 0].any()
