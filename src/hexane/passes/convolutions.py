"""Convolutions within the engine's window: stride 1 or 2, no dilation, at most 7 wide and 29 tall."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.ops.conv import geometry_of
from hexane.lowering.limits import LONGEST_STRIDE
from hexane.lowering.windows import NATIVE_WIDTH, TALLEST, WIDEST
from hexane.passes.rewriting import Rule, array_of, as_dtype, bias_of, fitted, is_static, sweep
from hexane.passes.rows import instead_of_parts
from hexane.passes.transposed import dilated
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

MOST_GATHERED = 64
"""Input channels up to which a sum that gathers pixels takes less time than copies (docs/timing.md: rates of M1)."""
MOST_HALVINGS = 4
SHORTEST_ROW = 32
"""Columns of fp16 in a burst of 64 bytes."""


def legalise_convolutions(function: Function, compilation: Compilation) -> int:
    """Bring kernels and strides within the task's fields: zeros for dilation, channels for long strides and kernels."""
    changed = sweep(function, {"conv": _raise_rank})
    of_long_strides: list[Rule] = [_square_stride, _swap_stride, _fold_rows, _keep_some]
    if compilation.on.gathered_strides:
        of_long_strides = [_halve_stride] * MOST_HALVINGS + of_long_strides
    rules: list[Rule] = [_dilated_rows, _dilation, _swap, partial(_tall, compilation), _wide]
    if any(op.type == "conv" and max(op.arg("strides") or (1,)) > LONGEST_STRIDE for op in function.walk()):
        changed += sum(sweep(function, {"conv": rule}) for rule in of_long_strides)
    return changed + sum(sweep(function, {"conv": rule}) for rule in rules)


def _plain(op: Op) -> bool:
    x, weight = op.inputs["x"], op.inputs["weight"]
    return weight.is_constant and is_static(x) and len(x.shape) == 4


def _like(op: Op, b: GraphBuilder, x: Value, weight: Any, pads: Any, **steps: Sequence[int]) -> Value:
    """The convolution with another map, kernel and window; ``steps`` are strides and dilations beside 1."""
    return b.conv(
        x=x,
        weight=weight,
        **bias_of(op),
        **{name: list(numbers) for name, numbers in steps.items()},
        pad_type="custom",
        pad=[int(width) for pair in pads for width in pair],
        groups=op.arg("groups"),
    )


def _raise_rank(op: Op, b: GraphBuilder) -> Value | None:
    """A convolution over [N, C, L] as one over [N, C, 1, L]."""
    x, weight = op.inputs["x"], op.inputs["weight"]
    if len(x.shape) != 3 or not weight.is_constant or not is_static(x):
        return None
    steps, spread, pads, _ = geometry_of(op)
    high, kernel, pads = b.expand_dims(x=x, axes=[2]), weight.data[:, :, None, :], [(0, 0), *pads]
    return b.squeeze(x=_like(op, b, high, kernel, pads, strides=(1, *steps), dilations=(1, *spread)), axes=[2])


def _halve_stride(op: Op, b: GraphBuilder) -> Value | None:
    """An even stride beyond 2 as half of it over four times the channels, which a convolution of stride 2 gathers.

    Its kernel holds a one in each place: no copy, and the map never leaves L2. What is gathered is rounded to 2^-16 as
    the sums behind it are (docs/reference/numerics.md 3.1).
    """
    if not _plain(op) or op.arg("groups") != 1:
        return None
    steps, spread, pads, out = geometry_of(op)
    x, weight = op.inputs["x"], op.inputs["weight"]
    if max(steps) <= LONGEST_STRIDE or any(step % 2 for step in steps) or max(spread) > 1 or x.shape[0] > 1:
        return None
    if x.shape[1] > MOST_GATHERED or weight.constant is None or weight.constant.coding is not None:
        return None
    taps = [ceil_div(k, 2) for k in weight.shape[2:]]
    first: list[int] = []
    second: list[tuple[int, int]] = []
    used: list[int] = []
    for extent, t, step, count, (before, _) in zip(x.shape[2:], taps, steps, out, pads):
        shift = before % 2
        length = (count - 1) * (step // 2) + t
        used.append(min(extent, 2 * (length - before // 2) - shift))
        cells = ceil_div(used[-1] + shift, 2)
        after = length - before // 2 - cells
        if used[-1] < 1 or before // 2 >= max(t, 2) or after >= t:
            return None
        first += [shift, 2 * cells - used[-1] - shift]
        second.append((before // 2, after))
    x = fitted(x, {axis: (0, length) for axis, length in enumerate(used, 2)}, b)
    cout, cin = weight.shape[:2]
    gather = np.zeros((cin, 4, cin, 4))
    for c in range(cin):
        gather[c, :, c] = np.eye(4)
    full = np.zeros((cout, cin, 2 * taps[0], 2 * taps[1]))
    full[:, :, : weight.shape[2], : weight.shape[3]] = array_of(weight)
    kernel = full.reshape(cout, cin, taps[0], 2, taps[1], 2).transpose(0, 1, 3, 5, 2, 4)
    cells_of = b.conv(
        x=x,
        weight=as_dtype(gather.reshape(4 * cin, cin, 2, 2), weight),
        strides=[2, 2],
        pad_type="custom",
        pad=first,
    )
    kernel = as_dtype(kernel.reshape(cout, 4 * cin, *taps), weight)
    return _like(op, b, cells_of, kernel, second, strides=[step // 2 for step in steps])


def _square_stride(op: Op, b: GraphBuilder) -> Value | None:
    """The same stride beyond 2 on both axes: the pixels of one stride become channels."""
    if not _plain(op) or op.arg("groups") != 1:
        return None
    steps, spread, pads, out = geometry_of(op)
    if max(steps) <= LONGEST_STRIDE or steps[0] != steps[1] or op.inputs["weight"].shape[2:] == (1, 1):
        return None
    return _stride_to_channels(op, steps[0], spread, pads, out, b)


def _swap_stride(op: Op, b: GraphBuilder) -> Value | None:
    """A stride beyond 2 along rows only: rows and columns change places, since rows fold into channels in one copy."""
    if not _plain(op) or op.arg("groups") != 1:
        return None
    steps = geometry_of(op)[0]
    if steps[1] <= LONGEST_STRIDE or steps[0] == steps[1]:
        return None
    return _exchanged(op, b)


def _fold_rows(op: Op, b: GraphBuilder) -> Value | None:
    """A stride s beyond 2 from row to row: s rows become channels, and the kernel has ceil(k / s) rows of them."""
    if not _plain(op) or op.arg("groups") != 1:
        return None
    steps, spread, pads, out = geometry_of(op)
    s = steps[0]
    if s <= LONGEST_STRIDE or s == steps[1]:
        return None
    weight = dilated(array_of(op.inputs["weight"]), (spread[0], 1))  # type: ignore[arg-type]
    cout, cin, k, kw = weight.shape
    taps = ceil_div(k, s)
    rows = out[0] - 1 + taps
    x = fitted(op.inputs["x"], {2: (-pads[0][0], rows * s)}, b)
    n, _, _, width = x.shape
    folded = b.transpose(x=b.reshape(x=x, shape=[n * cin, rows, s, width]), perm=[0, 2, 1, 3])
    folded = b.reshape(x=folded, shape=[n, cin * s, rows, width])
    full = np.zeros((cout, cin, taps * s, kw))
    full[:, :, :k] = weight
    kernel = full.reshape(cout, cin, taps, s, kw).transpose(0, 1, 3, 2, 4).reshape(cout, cin * s, taps, kw)
    kernel = as_dtype(kernel, op.inputs["weight"])
    return _like(op, b, folded, kernel, [(0, 0), pads[1]], strides=(1, steps[1]), dilations=(1, spread[1]))


def _keep_some(op: Op, b: GraphBuilder) -> Value | None:
    """Other strides beyond 2: every step-th pixel of a pointwise kernel, else every step-th result of a shorter one."""
    if not _plain(op):
        return None
    steps, spread, pads, out = geometry_of(op)
    if max(steps) <= LONGEST_STRIDE:
        return None
    weight = op.inputs["weight"]
    if weight.shape[2:] == (1, 1) and not any(map(any, pads)):
        some = b.slice_by_index(
            x=op.inputs["x"], begin=[0] * 4, end=list(op.inputs["x"].shape), stride=[1, 1, *map(int, steps)]
        )
        return b.conv(x=some, weight=weight, **bias_of(op), groups=op.arg("groups"))
    part = [2 if s % 2 == 0 else 1 for s in steps]
    # as many results as the last kept one needs
    extents: list[tuple[int, int]] = []
    sides = zip(op.inputs["x"].shape[2:], weight.shape[2:], spread, steps, pads, out)
    for extent, k, d, step, (before, _), count in sides:
        last = (count - 1) * step + (k - 1) * d + 1
        extents.append((before, last - before - extent))
    if min(map(min, extents)) < 0:
        extents = pads
    dense = _like(op, b, op.inputs["x"], weight, extents, strides=part, dilations=spread)
    begin, end = [0, 0, 0, 0], list(dense.shape)
    jump = [1, 1, steps[0] // part[0], steps[1] // part[1]]
    for axis in (2, 3):
        end[axis] = (out[axis - 2] - 1) * jump[axis] + 1
    return b.slice_by_index(x=dense, begin=begin, end=end, stride=jump)


def _stride_to_channels(
    op: Op, s: int, spread: tuple[int, ...], pads: list[tuple[int, int]], out: tuple[int, ...], b: GraphBuilder
) -> Value:
    x, weight = op.inputs["x"], dilated(array_of(op.inputs["weight"]), spread)  # type: ignore[arg-type]
    taps = [ceil_div(k, s) for k in weight.shape[2:]]
    spans = {axis: (-pads[axis - 2][0], (out[axis - 2] - 1 + taps[axis - 2]) * s) for axis in (2, 3)}
    folded = b.pixel_unshuffle(x=fitted(x, spans, b), downscale_factor=s)
    cout, cin = weight.shape[:2]
    full = np.zeros((cout, cin, taps[0] * s, taps[1] * s))
    full[:, :, : weight.shape[2], : weight.shape[3]] = weight
    kernel = full.reshape(cout, cin, taps[0], s, taps[1], s).transpose(0, 1, 3, 5, 2, 4)
    kernel = kernel.reshape(cout, cin * s * s, *taps)
    return b.conv(x=folded, weight=as_dtype(kernel, op.inputs["weight"]), **bias_of(op))


def _dilated_rows(op: Op, b: GraphBuilder) -> Value | None:
    """A 1 x k kernel with long steps between its taps: rows as long as a step, k of them under each other.

    Its own products alone; with zeros between the taps the kernel would not fit a window, or a core's memory. Steps
    shorter than a burst stay: their rows would be mostly padding.
    """
    if not _plain(op) or max(geometry_of(op)[0]) > 1:
        return None
    weight, (_, d), (rows, (before, _)), out = op.inputs["weight"], *geometry_of(op)[1:]
    x, k = op.inputs["x"], weight.shape[3]
    if weight.shape[2] > 1 or x.shape[2] > 1 or any(rows) or d < SHORTEST_ROW or (k - 1) * d < TALLEST:
        return None
    results = ceil_div(out[1], d)
    top, before = divmod(before, d)
    lines = min(ceil_div(before + x.shape[3], d), results + k - 1 - top)
    bottom = results + k - 1 - top - lines
    if max(top, bottom) >= k:  # rows of padding that no window has
        return None
    x = fitted(x, {3: (-before, lines * d)}, b)
    kernel = np.ascontiguousarray(weight.data.transpose(0, 1, 3, 2))
    upright = _like(op, b, b.reshape(x=x, shape=[*x.shape[:2], lines, d]), kernel, [(top, bottom), (0, 0)])
    flat = b.reshape(x=upright, shape=[*upright.shape[:2], 1, results * d])
    return b.slice_by_size(x=flat, begin=[0] * 4, size=[*flat.shape[:3], out[1]]) if results * d > out[1] else flat


def _dilation(op: Op, b: GraphBuilder) -> Value | None:
    """Zeros between the taps: the engine has no dilation (docs/reference/engine-h13.md 14.3)."""
    if not _plain(op):
        return None
    steps, spread, pads, _ = geometry_of(op)
    size = op.inputs["weight"].shape[2:]
    if all(d == 1 or k == 1 for d, k in zip(spread, size)):
        return None
    weight = as_dtype(dilated(array_of(op.inputs["weight"]), spread), op.inputs["weight"])  # type: ignore[arg-type]
    return _like(op, b, op.inputs["x"], weight, pads, strides=steps)


def _exchanged(op: Op, b: GraphBuilder) -> Value:
    """The convolution with rows and columns exchanged before and after."""
    steps, spread, pads, _ = geometry_of(op)
    x = b.transpose(x=op.inputs["x"], perm=[0, 1, 3, 2])
    kernel = np.ascontiguousarray(op.inputs["weight"].data.transpose(0, 1, 3, 2))
    result = _like(op, b, x, kernel, pads[::-1], strides=steps[::-1], dilations=spread[::-1])
    return b.transpose(x=result, perm=[0, 1, 3, 2])


def _swap(op: Op, b: GraphBuilder) -> Value | None:
    """A kernel wider than 7 and no taller: rows and columns change places, since height reaches 29."""
    if not _plain(op):
        return None
    kh, kw = op.inputs["weight"].shape[2:]
    if kw <= NATIVE_WIDTH or kh > NATIVE_WIDTH or _native_wide(op, geometry_of(op)[0]):
        return None
    return _exchanged(op, b)


def _native_wide(op: Op, steps: tuple[int, ...]) -> bool:
    """The two-column form of a depthwise 1 x k up to 13 (docs/reference/engine-h13.md 9.8)."""
    weight = op.inputs["weight"].shape
    depthwise = op.arg("groups") == op.inputs["x"].shape[1] == weight[0]
    is_shown = weight[3] == 9 or "bias" in op.inputs
    return (
        depthwise
        and weight[2] == 1
        and weight[3] <= WIDEST
        and tuple(steps) == (1, 1)
        and is_shown
        and op.arg("x").shape[0] == 1
    )


def _tall(compilation: Compilation, op: Op, b: GraphBuilder) -> Value | None:
    parts = instead_of_parts(compilation, op, b) if _plain(op) else None
    return parts if parts is not None else _stacked(op, 2, TALLEST, b)


def _wide(op: Op, b: GraphBuilder) -> Value | None:
    if _plain(op) and op.inputs["weight"].shape[3] > NATIVE_WIDTH and _native_wide(op, geometry_of(op)[0]):
        return None
    return _stacked(op, 3, NATIVE_WIDTH, b)


def _stacked(op: Op, axis: int, limit: int, b: GraphBuilder) -> Value | None:
    """A longer kernel: shifted copies of the map side by side as channels, so that one accumulator still sums all."""
    if not _plain(op) or op.arg("groups") != 1:
        return None
    k = op.inputs["weight"].shape[axis]
    if k <= limit:
        return None
    weight = op.inputs["weight"].data
    steps, _, pads, out = geometry_of(op)
    count = ceil_div(k, limit)
    part = ceil_div(k, count)
    x, (before, _), stride = op.inputs["x"], pads[axis - 2], steps[axis - 2]
    length = (out[axis - 2] - 1) * stride + part
    shifted: list[Value] = []
    kernels = []
    for i in range(count):
        if not -length < i * part - before < x.shape[axis] and (shifted or i < count - 1):
            continue  # these taps meet nothing but the padding
        shifted.append(fitted(x, {axis: (i * part - before, length)}, b))
        piece = np.take(weight, range(i * part, min(k, (i + 1) * part)), axis)
        missing = [(0, 0)] * 4
        missing[axis] = (0, part - piece.shape[axis])
        kernels.append(np.pad(piece, missing))
    left = [(0, 0) if i == axis - 2 else pair for i, pair in enumerate(pads)]
    kernel = as_dtype(np.concatenate(kernels, 1), op.inputs["weight"])
    return _like(op, b, b.concat(values=tuple(shifted), axis=1), kernel, left, strides=steps)
