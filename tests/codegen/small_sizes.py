"""Small networks on both sides of what a task takes: rows that fold, more keys than a pass, windows in the padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen.small_layers import attention
from codegen.small_ops import Row, layer, numbers, one, spread, title
from hexane.graph import GraphBuilder
from hexane.graph.ir import Value
from hexane.studies.probe.examples import Build


def long_products() -> Iterator[Row]:
    """Many rows with few outputs, given by rows or by columns."""
    columns = ((256, 512, 1024, 200, 320), (64, 33, 128), (1, 3, 6, 20, 40, 100), (False, True))
    for m, k, n, turned in spread(*columns, count=12):
        yield title("linear", m, k, n, turned), linear(k, n, turned=turned), ((k, m) if turned else (m, k),)
    columns = ((1, 2, 5), (64, 9, 130), (130, 77, 200), (32, 16, 64), (1, 1, 2))
    for heads, queries, keys, width, images in spread(*columns, count=8):
        shapes = [(images, heads, tokens, width) for tokens in (queries, keys, keys)]
        yield title("attention", *shapes[:2]), attention(heads, width, masked=False), tuple(shapes)


def linear(k: int, n: int, *, turned: bool) -> Build:
    def build(b: GraphBuilder, x: Value) -> Value:
        rows = b.transpose(x=x, perm=[1, 0]) if turned else x
        return b.linear(x=rows, weight=numbers(n, k, step=5), bias=numbers(n, step=3))

    return build


def windows() -> Iterator[Row]:
    """Pools whose windows reach far into the padding, wide kernels, windows and groups of whole rows."""
    columns = (("max_pool", "avg_pool"), ((2, 3), (3, 3), (5, 4)), ((1, 1), (2, 2), (3, 3)), (0, 1, 2), (False, True))
    shapes = ((1, 5, 6, 9), (2, 3, 7, 33), (1, 17, 5, 5))
    for op, kernel, strides, reach, ceil, shape in spread(*columns, shapes, count=18):
        pad = [min(reach, kernel[0] - 1), min(reach + 1, kernel[0] - 1), min(reach, kernel[1] - 1), kernel[1] - 1]
        parameters = {"kernel_sizes": list(kernel), "strides": list(strides), "pad_type": "custom", "pad": pad}
        yield title(op, shape, kernel, strides, pad, ceil), one(op, ceil_mode=ceil, **parameters), (shape,)
    for cin, cout, kernel, strides in spread(
        (3, 16), (8, 33), ((9, 9), (13, 11), (1, 15), (10, 10)), ((2, 2), (1, 1)), count=6
    ):
        build = layer(numbers(cout, cin, *kernel, step=5), "same", strides, (1, 1))
        yield title("conv", cin, cout, kernel, strides), build, ((1, cin, 20, 36),)
    for shape, axis, size, stride in (
        ((8, 64), 0, 3, 1),
        ((3, 9, 32), 1, 2, 2),
        ((1, 4, 16, 32), 2, 4, 3),
        ((1, 6, 5, 64), 1, 2, 1),
    ):
        name = title("sliding_windows", shape, axis, size, stride)
        yield name, one("sliding_windows", axis=axis, size=size, stride=stride), (shape,)
    for shape, other in (
        ((1, 64, 1, 32), (1, 32, 2, 32)),
        ((1, 16, 4, 64), (1, 64, 1, 64)),
        ((1, 64, 3, 32), (1, 32, 6, 32)),
        ((1, 8, 8, 96), (1, 32, 2, 96)),
        ((1, 128, 1, 256), (1, 64, 2, 256)),
    ):
        yield title("regroup", shape, other), one("reshape", shape=list(other)), (shape,)


def in_bytes() -> Iterator[Row]:
    """Results of 8 bits, with a sign and without, and layers of them."""
    for dtype, zero, shape in spread(
        ("int8", "uint8"), (0, 5), ((1, 32, 4, 32), (1, 17, 3, 9), (2, 8, 5, 64)), count=6
    ):
        yield title("quantize", dtype, zero, shape), codes(dtype, zero), (shape,)


def codes(dtype: str, zero: int) -> Build:
    point = {"zero_point": np.dtype(dtype).type(zero)} if zero or dtype == "uint8" else {}
    return lambda b, x: b.quantize(input=x, scale=np.float16(0.03125), output_dtype=dtype, **point)
