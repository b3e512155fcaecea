"""Small networks of every kind: products of ops and odd shapes, of numbers that are sums of few bits.

A group is a function that yields name, what builds the network, and the shapes of its inputs. Weights are multiples of
1/16 and inputs multiples of 1/8, from integers alone, so that no processor folds or rounds them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from hexane.graph import GraphBuilder
from hexane.graph.ir import Value
from hexane.studies.probe.examples import Build

Row = tuple[str, Build, tuple[tuple[int, ...], ...]]

MAPS = ((1, 3, 5, 7), (2, 17, 3, 33), (1, 130, 1, 9), (3, 1, 4, 64), (1, 64, 1, 1), (1, 20, 16, 40))
"""Channels odd, one, many; widths below, at and above a burst of 32 numbers; batches."""
SHAPES = (*MAPS, (37,), (5, 70), (2, 9, 33), (1, 2, 3, 5, 9))


def numbers(*shape: int, step: int = 7, most: int = 8, unit: float = 0.0625) -> np.ndarray:
    """Multiples of a unit, from -most to most, in an order of their own for each step."""
    places = np.arange(prod(shape))
    return (((places * step + places // 13) % (2 * most + 1) - most) * unit).astype(np.float16).reshape(shape)


def title(*parts: Any) -> str:
    """The name of a network: its parts, shapes with an x between extents."""
    return " ".join("x".join(map(str, p)) if isinstance(p, tuple | list) else str(p) for p in parts)


def spread(*choices: Sequence[Any], count: int) -> Iterator[tuple[Any, ...]]:
    """So many rows of one choice each, in which pairs of choices meet as they come, none in step with another."""
    for row in range(count):
        yield tuple(
            column[(row * (2 * i + 1) + row // len(column) * i) % len(column)] for i, column in enumerate(choices)
        )


def one(op: str, **parameters: Any) -> Build:
    """One op on all inputs in order."""
    names = ("x", "y") if op != "select" else ("cond", "a", "b")
    return lambda b, *values: b.op(op, **dict(zip(names, values)), **parameters)


UNARY = {
    "clip": {"alpha": np.float16(-0.5), "beta": np.float16(0.75)},
    "elu": {"alpha": np.float16(1)},
    "gelu": {"mode": "TANH_APPROXIMATION"},
    "leaky_relu": {"alpha": np.float16(0.125)},
    "linear_activation": {"alpha": np.float16(0.5), "beta": np.float16(0.25)},
    "sigmoid_hard": {"alpha": np.float16(0.25), "beta": np.float16(0.5)},
    "thresholded_relu": {"alpha": np.float16(0.5)},
    "threshold": {"alpha": np.float16(0.5)},
    "scaled_tanh": {"alpha": np.float16(2), "beta": np.float16(0.5)},
    "clamped_relu": {"alpha": np.float16(0.5), "beta": np.float16(1)},
} | {
    op: {}
    for op in (
        "abs atan ceil cos erf exp exp2 floor inverse log relu relu6 round rsqrt sigmoid sign silu sin softplus "
        "softsign sqrt square tan tanh"
    ).split()
}


def unary() -> Iterator[Row]:
    for (op, parameters), shapes in zip(UNARY.items(), spread(SHAPES, SHAPES[3:], count=len(UNARY))):
        for shape in dict.fromkeys(shapes):
            yield title(op, shape), one(op, **parameters), (shape,)
        yield title("scaled", op, shapes[0]), scaled(op, parameters), (shapes[0],)


def scaled(op: str, parameters: dict[str, Any]) -> Build:
    """A function between a scale and a shift, as fused runs have them."""

    def build(b: GraphBuilder, x: Value) -> Value:
        return b.add(x=b.op(op, x=b.mul(x=x, y=np.float16(0.5)), **parameters), y=np.float16(0.25))

    return build


BINARY = "add sub mul real_div maximum minimum pow floor_div mod".split()
COMPARISON = "equal not_equal less less_equal greater greater_equal".split()


def beside(shape: tuple[int, ...], *axes: int) -> tuple[int, ...]:
    """The shape with one element along all axes but these."""
    return tuple(extent if axis in axes else 1 for axis, extent in enumerate(shape))


def binary() -> Iterator[Row]:
    for i, op in enumerate((*BINARY, *COMPARISON)):
        ends = (lambda b, v: b.cast(x=v, dtype="fp16")) if op in COMPARISON else (lambda b, v: v)
        call = lambda b, x, y, op=op, ends=ends: ends(b, b.op(op, x=x, y=y))  # noqa: E731
        for j, axes in enumerate(((0, 1, 2, 3), (0, 1), (2,), (0, 3), ())):
            shape = MAPS[(i + j) % len(MAPS)]
            other = beside(shape, *axes)
            if (other == shape and j) or (op in COMPARISON and j == i % 5):
                continue
            yield title(op, shape, other), call, (shape, other)
            if j % 2:
                yield title(op, other, shape), call, (other, shape)
            constant = np.float16(0.375) if not axes else numbers(*other) + np.float16(0.03125)
            yield title(op, shape, "constant", other), lambda b, x, c=constant, call=call: call(b, x, c), (shape,)
            if j % 2 == 0:
                yield title(op, "constant", other, shape), lambda b, x, c=constant, call=call: call(b, c, x), (shape,)
    for shape in MAPS:
        yield title("select", shape), lambda b, x, y: b.select(cond=b.less(x=x, y=y), a=y, b=x), (shape, shape)
        yield title("logical", shape), logical, (shape, shape)


def logical(b: GraphBuilder, x: Value, y: Value) -> Value:
    less, small = b.less(x=x, y=y), b.greater(x=x, y=np.float16(0.25))
    both = b.logical_xor(x=b.logical_and(x=less, y=small), y=b.logical_not(x=b.logical_or(x=small, y=less)))
    return b.cast(x=both, dtype="fp16")


REDUCTIONS = "max min mean sum sum_square l1_norm l2_norm log_sum log_sum_exp prod argmax argmin".split()


def along_axes() -> Iterator[Row]:
    axes = ([1], [3], [2, 3], [1, 2, 3], [2], [0])
    for op, shape, over, keep in spread(REDUCTIONS, MAPS, axes, (True, False), count=3 * len(REDUCTIONS)):
        which = {"axis": over[0]} if op.startswith("arg") else {"axes": over}
        if op.startswith("arg"):
            over = over[-1:]
        yield title("reduce", op, shape, over, keep), one(f"reduce_{op}", keep_dims=keep, **which), (shape,)
    for shape, axis in product(MAPS, (1, 2, 3)):
        yield title("softmax", shape, axis), one("softmax", axis=axis), (shape,)
    for shape, over in spread(MAPS, axes[:4], count=8):
        gamma = numbers(*(shape[axis] for axis in over), step=5)
        norm = one("layer_norm", axes=over, gamma=gamma, beta=gamma, epsilon=np.float16(2.0**-10))
        yield title("layer_norm", shape, over), norm, (shape,)
    for op, shape in product(("instance_norm", "l2_norm", "batch_norm", "local_response_norm"), MAPS[::2]):
        vector = numbers(shape[1], step=5)
        more: dict[str, Any] = {"epsilon": np.float16(2.0**-10)}
        if op == "batch_norm":
            more |= {"mean": vector, "variance": np.abs(vector) + np.float16(0.5), "gamma": vector}
        more = {"size": 3, "alpha": np.float16(0.125)} if op == "local_response_norm" else more
        yield title(op, shape), one(op, **more), (shape,)
    for shape, axis in ((MAPS[0], 2), (MAPS[1], 3), ((5, 70), 1)):
        yield title("cumsum", shape, axis), one("cumsum", axis=axis), (shape,)
        yield title("topk", shape, axis), lambda b, x, axis=axis: b.topk(x=x, k=2, axis=axis)[0], (shape,)
    for shape in SHAPES[6:9]:
        yield title("softmax", shape), one("softmax", axis=-1), (shape,)
        yield title("reduce mean", shape), one("reduce_mean", axes=[-1], keep_dims=True), (shape,)


def convolutions() -> Iterator[Row]:
    columns = (
        (3, 8, 17, 32, 48, 1),  # channels
        (1, 5, 16, 33, 66, 130),  # outputs
        ((3, 3), (1, 1), (1, 3), (5, 2), (7, 7), (1, 9), (3, 1)),  # kernels
        ((1, 1), (2, 2), (1, 2), (3, 1)),  # strides
        ("same", "valid", (1, 0, 2, 1)),
        ((1, 1), (1, 1), (2, 2), (1, 3)),  # dilations
        ((26, 26), (27, 33), (40, 29)),
        (1, 1, 2),  # batches
        (None, "relu", "sigmoid"),
    )
    for cin, cout, kernel, strides, pad, dilations, area, batch, function in spread(*columns, count=48):
        weight = numbers(cout, cin, *kernel, step=5)
        build = layer(weight, pad, strides, dilations, function=function)
        name = title("conv", cin, cout, kernel, strides, pad, dilations, area, batch, function)
        yield name, build, ((batch, cin, *area),)
    for groups, each, outs, strides in spread((2, 3, 17, 32, 8), (1, 4, 16, 3), (1, 2, 5), ((1, 1), (2, 2)), count=14):
        weight = numbers(groups * outs, each, 3, 3, step=5)
        build = layer(weight, "same", strides, (1, 1), groups=groups)
        yield title("conv groups", groups, each, outs, strides), build, ((1, groups * each, 9, 18),)
    for cin, cout, kernel, strides, pad in spread((3, 16, 33), (1, 8, 20), ((2, 2), (3, 3), (4, 4)), ((2, 2), (1, 1)),
                                                  ("valid", "same", (1, 0, 0, 1)), count=8):  # fmt: skip
        weight = numbers(cin, cout, *kernel, step=5)
        build = layer(weight, pad, strides, (1, 1), op="conv_transpose")
        yield title("conv_transpose", cin, cout, kernel, strides, pad), build, ((1, cin, 6, 10),)
    for cin, kernel in ((4, 3), (33, 7)):
        weight = numbers(16, cin, kernel, step=5)
        yield title("conv signal", cin, kernel), lambda b, x, w=weight: b.conv(x=x, weight=w), ((1, cin, 100),)
    weight = numbers(8, 4, 2, 3, 3, step=5)
    yield "conv volume", lambda b, x: b.conv(x=x, weight=weight, pad_type="same"), ((1, 4, 3, 6, 10),)


def layer(weight: np.ndarray, pad: Any, strides: Any, dilations: Any, *, function: str | None = None,
          groups: int = 1, op: str = "conv") -> Build:  # fmt: skip
    """A convolution with a bias, and a function behind it."""
    outs = weight.shape[0] if op == "conv" else weight.shape[1] * groups
    padding = {"pad_type": pad} if isinstance(pad, str) else {"pad_type": "custom", "pad": list(pad)}
    more = {"strides": list(strides), "dilations": list(dilations), "groups": groups, **padding}

    def build(b: GraphBuilder, x: Value) -> Value:
        y = b.op(op, x=x, weight=weight, bias=numbers(outs, step=3), **more)
        return b.op(function, x=y) if function else y

    return build


def pools() -> Iterator[Row]:
    kernels, strides = ((2, 2), (3, 3), (1, 4), (5, 3), (2, 1)), ((1, 1), (2, 2), (3, 1))
    pads = ("valid", "same", (1, 0, 1, 0))
    for op, shape, kernel, stride, pad in spread(("max_pool", "avg_pool", "l2_pool"), MAPS[:2] + MAPS[3:4] + MAPS[5:],
                                                 kernels, strides, pads, count=21):  # fmt: skip
        padding = {"pad_type": pad} if isinstance(pad, str) else {"pad_type": "custom", "pad": list(pad)}
        if any(k > extent for k, extent in zip(kernel, shape[2:])):
            continue
        more = {"exclude_padding_from_average": stride == (2, 2)} if op == "avg_pool" else {}
        build = one(op, kernel_sizes=list(kernel), strides=list(stride), **padding, **more)
        yield title(op, shape, kernel, stride, pad), build, (shape,)
    yield "avg_pool whole", one("avg_pool", kernel_sizes=[16, 40], strides=[1, 1], pad_type="valid"), ((1, 20, 16, 40),)


def products() -> Iterator[Row]:
    rows, inner, outs = (1, 5, 16, 33, 100), (8, 33, 64, 3, 130), (1, 7, 32, 65, 200)
    for m, k, n, lead in spread(rows, inner, outs, ((), (1,), (1, 1), (2,), (1, 3)), count=20):
        weight, bias = numbers(n, k, step=5), numbers(n, step=3)
        yield (
            title("linear", (*lead, m, k), n),
            lambda b, x, w=weight, c=bias: b.linear(x=x, weight=w, bias=c),
            ((*lead, m, k),),
        )
    leads = (((), ()), ((1, 1), (1, 1)), ((1, 4), (1, 4)), ((2, 3), (2, 3)), ((5,), (5,)), ((2, 1), (1, 3)))
    for m, k, n, (one_lead, other), turned in spread(
        rows, inner, outs, leads, ((False, False), (False, True), (True, False)), count=16
    ):
        x = (*one_lead, k, m) if turned[0] else (*one_lead, m, k)
        y = (*other, n, k) if turned[1] else (*other, k, n)
        build = one("matmul", transpose_x=turned[0], transpose_y=turned[1])
        yield title("matmul", x, y, *turned), build, (x, y)
    for m, k, n in spread(rows, inner, outs, count=6):
        first = numbers(n, k, step=5)
        yield title("matmul constant", n, k, m), lambda b, x, w=first: b.matmul(x=w, y=x), ((k, m),)
    for name, equation, shapes in (
        ("heads", "nchw,nwhu->nchu", ((1, 3, 4, 8), (1, 8, 4, 9))),
        ("rows", "bij,bjk->bik", ((3, 5, 9), (3, 9, 7))),
    ):
        yield title("einsum", name), lambda b, x, y, e=equation: b.einsum(values=(x, y), equation=e), shapes


def compressed() -> Iterator[Row]:
    """Layers whose weights are palettes, steps, or mostly zeros."""

    def of(kernel: str, b: GraphBuilder, shape: tuple[int, ...]) -> Any:
        places = np.arange(prod(shape)).reshape(shape)
        if kernel.startswith("palette"):
            bits = int(kernel[-1])
            codes = (places * 7 % 2**bits).astype(f"uint{bits}" if bits == 8 else np.uint8)
            table = numbers(2**bits, step=3).reshape(*(1,) * len(shape), 2**bits, 1)
            return b.op("constexpr_lut_to_dense", opset="ios18", indices=b.const(codes, f"uint{bits}"), lut=table)
        if kernel.startswith("steps"):
            bits = int(kernel[-1])
            half = 2 ** (bits - 1)
            codes = (places * 7 % (2 * half - 1) - half + 1).astype(np.int8)
            scale = (2.0 ** -(4 + np.arange(shape[0]) % 3)).astype(np.float16).reshape(-1, *(1,) * (len(shape) - 1))
            return b.constexpr_blockwise_shift_scale(data=b.const(codes, f"int{bits}"), scale=scale)
        mask = (places * 5 % 3 == 0).astype(np.uint8)
        return b.op(
            "constexpr_sparse_to_dense",
            opset="ios18",
            nonzero_data=numbers(int(mask.sum())),
            mask=b.const(mask, "uint1"),
        )

    kinds = (*(f"palette {bits}" for bits in (1, 2, 4, 6, 8)), "steps 4", "steps 8", "sparse")
    for kind, (cin, cout, size) in product(kinds, ((32, 48, 1), (17, 33, 3))):

        def build(
            b: GraphBuilder, x: Value, kind: str = kind, shape: tuple[int, ...] = (cout, cin, size, size)
        ) -> Value:
            return b.conv(x=x, weight=of(kind, b, shape), pad_type="same")

        yield title("conv", kind, cin, cout, size), build, ((1, cin, 8, 9),)
    for kind, (k, n) in product(("palette 4", "steps 8", "steps 4"), ((64, 96), (33, 40))):

        def rows(b: GraphBuilder, x: Value, kind: str = kind, shape: tuple[int, ...] = (n, k)) -> Value:
            return b.linear(x=x, weight=of(kind, b, shape))

        yield title("linear", kind, k, n), rows, ((16, k),)


def moves() -> Iterator[Row]:
    for shape, perm in spread(
        MAPS,
        ([0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 2, 1], [0, 2, 3, 1], [0, 3, 1, 2], [1, 0, 2, 3], [3, 2, 1, 0]),
        count=15,
    ):
        yield title("transpose", shape, perm), one("transpose", perm=perm), (shape,)
    for shape, perm in (
        ((9, 33), [1, 0]),
        ((2, 9, 33), [0, 2, 1]),
        ((2, 9, 33), [1, 0, 2]),
        ((1, 2, 3, 5, 9), [0, 3, 1, 4, 2]),
    ):
        yield title("transpose", shape, perm), one("transpose", perm=perm), (shape,)
    for shape, other in (
        ((1, 20, 16, 40), (1, 40, 8, 40)), ((1, 20, 16, 40), (1, 20, 640, 1)), ((1, 20, 16, 40), (1, 320, 1, 40)),
        ((1, 20, 16, 40), (1, 1, 320, 40)), ((2, 17, 3, 33), (1, 34, 3, 33)), ((2, 17, 3, 33), (34, 99)),
        ((1, 3, 5, 7), (105,)), ((5, 70), (1, 7, 5, 10)), ((1, 130, 1, 9), (1, 1, 130, 9)), ((37,), (1, 37, 1, 1)),
        ((1, 64, 1, 1), (1, 1, 8, 8)), ((1, 2, 3, 5, 9), (6, 5, 9)),
    ):  # fmt: skip
        yield title("reshape", shape, other), one("reshape", shape=list(other)), (shape,)
    for shape, axis in product((MAPS[1], MAPS[5], (5, 70)), range(4)):
        if axis < len(shape):
            yield (
                title("concat", shape, axis),
                lambda b, x, y, axis=axis: b.concat(values=(x, y, x), axis=axis),
                (shape, shape),
            )
            yield (
                title("stack", shape, axis),
                lambda b, x, y, axis=axis: b.stack(values=(x, y), axis=axis),
                (shape, shape),
            )
            begin, size = [0] * len(shape), list(shape)
            begin[axis], size[axis] = shape[axis] // 2, shape[axis] - shape[axis] // 2
            yield title("slice", shape, axis), one("slice_by_size", begin=begin, size=size), (shape,)
            stride = [2 if i == axis else 1 for i in range(len(shape))]
            yield (
                title("stride", shape, axis),
                one("slice_by_index", begin=begin, end=list(shape), stride=stride),
                (shape,),
            )
            yield title("reverse", shape, axis), one("reverse", axes=[axis]), (shape,)
            yield (
                title("tile", shape, axis),
                one("tile", reps=[3 if i == axis else 1 for i in range(len(shape))]),
                (shape,),
            )
            sizes = [shape[axis] // 3, shape[axis] - shape[axis] // 3]
            if sizes[0]:
                yield (
                    title("split", shape, axis),
                    lambda b, x, s=sizes, axis=axis: b.concat(
                        values=b.split(x=x, split_sizes=s, axis=axis)[::-1], axis=axis
                    ),
                    (shape,),
                )
            indices = np.int32([shape[axis] - 1, 0, shape[axis] // 2])
            yield (
                title("gather", shape, axis),
                lambda b, x, i=indices, axis=axis: b.gather(x=x, indices=i, axis=axis),
                (shape,),
            )
            if shape[axis] > 1:
                yield (
                    title("sliding_windows", shape, axis),
                    one("sliding_windows", axis=axis, size=2, stride=1),
                    (shape,),
                )
    for mode, pads, shape in spread(
        ("constant", "reflect", "replicate"),
        ([1, 1, 2, 2], [0, 2, 0, 0], [2, 0, 1, 4]),
        (MAPS[0], MAPS[1], MAPS[5]),
        count=9,
    ):
        more = {"constant_val": np.float16(0.5)} if mode == "constant" else {}
        yield title("pad", mode, pads, shape), one("pad", pad=pads, mode=mode, **more), (shape,)
    yield (
        "pad channels",
        one("pad", pad=[0, 0, 3, 2, 0, 0, 0, 0], mode="constant", constant_val=np.float16(0)),
        (MAPS[0],),
    )
    for op, shape, factor in (
        ("pixel_shuffle", (1, 12, 5, 9), {"upscale_factor": 2}),
        ("pixel_shuffle", (1, 18, 4, 33), {"upscale_factor": 3}),
        ("pixel_unshuffle", (1, 3, 6, 66), {"downscale_factor": 2}),
        ("pixel_unshuffle", (2, 5, 9, 9), {"downscale_factor": 3}),
        ("space_to_depth", (1, 5, 8, 34), {"block_size": 2}),
        ("depth_to_space", (1, 16, 3, 7), {"block_size": 2}),
        ("space_to_batch", (1, 5, 8, 34), {"block_shape": [2, 2], "paddings": [[0, 0], [0, 0]]}),
        ("batch_to_space", (4, 5, 4, 17), {"block_shape": [2, 2], "crops": [[0, 0], [0, 0]]}),
        ("crop", (1, 5, 8, 34), {"crop_height": [1, 2], "crop_width": [3, 0]}),
        ("upsample_nearest_neighbor", (1, 5, 3, 17), {"scale_factor_height": 2, "scale_factor_width": 3}),
        ("upsample_nearest_neighbor", (2, 20, 4, 4), {"scale_factor_height": 2, "scale_factor_width": 2}),
        (
            "upsample_bilinear",
            (1, 5, 3, 16),
            {"scale_factor_height": 2, "scale_factor_width": 2, "align_corners": False},
        ),
        ("resize_bilinear", (1, 5, 4, 8), {"target_size_height": 8, "target_size_width": 12}),
        ("expand_dims", (5, 70), {"axes": [0, 2]}),
        ("squeeze", (1, 64, 1, 1), {"axes": [2, 3]}),
        ("flatten2d", (2, 17, 3, 33), {"axis": 1}),
        ("band_part", (5, 70), {"lower": 1, "upper": 2}),
    ):
        yield title(op, shape), one(op, **factor), (shape,)
