"""Convolutions that store their channels as pixels: the graph's bits, one task a row phase, never slower."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.program import Program

from .levels import agreed

CASES = {  # op, block, channels of the result, of the source, height, width, kernel, stride, function
    "pixel shuffle": ("pixel_shuffle", 2, 8, 16, 32, 32, 3, 1, ""),
    "depth to space": ("depth_to_space", 2, 8, 16, 32, 32, 1, 1, "relu"),
    "blocks of four": ("depth_to_space", 4, 8, 32, 32, 32, 1, 1, ""),
    "a picture": ("pixel_shuffle", 4, 3, 32, 20, 24, 3, 1, "sigmoid"),
    "blocks of eight": ("pixel_shuffle", 8, 2, 16, 9, 11, 3, 1, ""),
    "one channel": ("pixel_shuffle", 2, 1, 64, 17, 30, 5, 1, "tanh"),
    "a stride": ("pixel_shuffle", 2, 4, 8, 32, 40, 3, 2, "relu"),
    "a small map": ("depth_to_space", 2, 16, 24, 4, 6, 1, 1, ""),
}


def network(op: str, block: int, c: int, cin: int, h: int, w: int, k: int, stride: int, function: str) -> Graph:
    rng = np.random.default_rng(c)
    b = GraphBuilder()
    weight = rng.normal(size=(c * block * block, cin, k, k)) / np.sqrt(cin * k * k)
    bias = rng.normal(size=c * block * block).astype(np.float16)
    x = b.input("x", (1, cin, h, w), "fp16")
    y = b.conv(x=x, weight=weight.astype(np.float16), bias=bias, strides=[stride] * 2, pad_type="same")
    y = b.op(function, x=y) if function else y
    size = "upscale_factor" if op == "pixel_shuffle" else "block_size"
    b.output(b.op(op, x=y, **{size: block}), name="y")
    return b.graph


def stores(program: Program) -> bool:
    return any("stores its pixels in place" in segment.reason for segment in program.segments)


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "M5", "A19"])
@pytest.mark.parametrize("name", CASES)
def test_bits(name: str, chip: str) -> None:
    graph = network(*CASES[name])
    x = np.random.default_rng(1).normal(size=graph.main.inputs[0].shape).astype(np.float16)
    (wanted,) = graph.evaluate({"x": x}).values()
    for dialect in ("default", "apple"):
        program = hexane.compile(graph, chip, dialect=dialect)
        assert [segment.kind for segment in program.segments] == ["engine"] and stores(program)
        assert program.stats()["tasks"] == CASES[name][1]
        (found,) = agreed(program, {"x": x}).values()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.004 * np.abs(wanted).max())


@pytest.mark.parametrize("batch", [2])
def test_images_of_a_batch(batch: int) -> None:
    b = GraphBuilder()
    x = b.input("x", (batch, 8, 10, 12), "fp16")
    weight = np.random.default_rng(2).normal(size=(16, 8, 1, 1)).astype(np.float16)
    b.output(b.pixel_shuffle(x=b.conv(x=x, weight=weight), upscale_factor=2), name="y")
    program = hexane.compile(b.graph)
    assert stores(program)
    agreed(program, {"x": np.random.default_rng(1).normal(size=x.shape).astype(np.float16)})


def test_large_maps_and_maps_that_go_on_stay_as_they_were() -> None:
    """A source beyond L2 would come twice; pixels that another task reads are in L2 already."""
    large = network("pixel_shuffle", 2, 3, 64, 120, 160, 3, 1, "")
    assert not stores(hexane.compile(large)) and stores(hexane.compile(large, dialect="apple"))
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, 16), "fp16")
    weight = np.random.default_rng(2).normal(size=(32, 8, 1, 1)).astype(np.float16)
    b.output(b.relu(x=b.avg_pool(x=b.pixel_shuffle(x=b.conv(x=x, weight=weight), upscale_factor=2), kernel_sizes=[2, 2],
                                 strides=[2, 2], pad_type="valid")))  # fmt: skip
    assert not stores(hexane.compile(b.graph))


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize(("name", "least"), [("pixel shuffle", 1.4), ("blocks of four", 2.0)])
def test_faster(name: str, least: float, chip: str) -> None:
    """Two and four tasks where the shuffle alone takes five and seventeen."""
    op, block, c, _, h, w, *_ = CASES[name]
    b = GraphBuilder()
    size = "upscale_factor" if op == "pixel_shuffle" else "block_size"
    b.output(b.op(op, x=b.input("x", (1, c * block * block, h, w), "fp16"), **{size: block}))
    together, alone = (hexane.estimate(hexane.compile(g, chip)).engine_us for g in (network(*CASES[name]), b.graph))
    assert least * together < alone


@pytest.mark.parametrize(("c", "size", "block"), [(8, 128, 4), (16, 64, 4), (3, 64, 4), (5, 32, 2)])
def test_pixels_to_channels_and_back(c: int, size: int, block: int) -> None:
    """Dialect apple on M4: three copies, then a task for each row phase, as its compiler has them."""
    rng, b = np.random.default_rng(c), GraphBuilder()
    x = b.space_to_depth(x=b.input("x", (1, c, size, size), "fp16"), block_size=block)
    weight = rng.normal(size=(x.shape[1], x.shape[1], 1, 1)) / np.sqrt(x.shape[1])
    b.output(b.depth_to_space(x=b.conv(x=x, weight=weight.astype(np.float16)), block_size=block), name="y")
    program = hexane.compile(b.graph, "M4", dialect="apple")
    assert program.stats()["tasks"] == 3 + block and stores(program)
    agreed(program, {"x": rng.normal(size=(1, c, size, size)).astype(np.float16)})
