"""layer_norm without and with affine parameters (docs/reference/engine-h13.md 7.3, 13)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2, joint_patch, pe_patch
from hexane.codegen.operations import (
    BINARY,
    COPY,
    SCALE_SHIFT,
    After,
    Axes,
    FirstSource,
    PeKind,
    PeNonlinear,
    PeOp,
    Planar,
    SecondSource,
    mean_over,
)
from hexane.codegen.plan import Destination, Operand, Plan, Region
from hexane.codegen.recipes import linear
from hexane.codegen.recipes.elementwise import against_small, sizes_of_one, two_surfaces
from hexane.codegen.recipes.linear import MatrixRows, TransposedMap, as_rows
from hexane.codegen.recipes.reduce import cube
from hexane.codegen.recipes.registry import constant, need_fp16, recipe, x_and_result
from hexane.codegen.recipes.shape import AxisWalk, permute
from hexane.codegen.recipes.softmax import load, loading, row_values
from hexane.codegen.recipes.softmax_parts import lock
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op, Value
from hexane.lowering.fusion import follows

CENTRED = Planar(
    PeOp.SQUARE, SecondSource.PLAIN, FirstSource.NEGATED, nonlinear=PeNonlinear.RSQRT, kind=PeKind.REDUCE_BINARY
)
"""(mean - x)^2, sum, 1 / sqrt."""
LONGEST_ROW = 256
MEAN_ROWS = 32  # tile height of the first reduction (§4.3, TileHeight)


def variance(w: int, h: int, c: int, count: int, epsilon: float, patch: tuple[int, int] = (0, 0)) -> Plan:
    """1 / sqrt(mean((x - mean)^2) + epsilon): source 1 the mean, source 2 the data (§8.5)."""
    return Plan(pe=replace(CENTRED, epsilon=epsilon, final=1.0 / count), w=w, h=h, c=c, patch=patch)


def tall_patch(w: int, h: int) -> tuple[int, int]:
    """Patch of a deviation over a whole map: all its rows before all its columns (8 x 64 has 32 x 8)."""
    wide, high = pe_patch(w, h, operands=2)
    rows = min(ceil_log2(h), wide + high - 4) if w <= LONGEST_ROW else high
    return wide + high - max(high, rows), max(high, rows)


def axes_of(op: Op) -> tuple[frozenset[str], tuple[int, ...]]:
    shape = op.arg("x").shape
    shift = 4 - len(shape)
    if shift < 0:
        raise UnsupportedError(f"a layer norm of rank {len(shape)}", code=Reason.RANK)
    axes = op.arg("axes")
    numbers = sorted(a % len(shape) for a in (range(len(shape)) if axes is None else axes))
    return frozenset("nchw"[a + shift] for a in numbers), tuple(numbers)


@recipe("layer_norm")
def layer_norm(ops: Sequence[Op], context: Context) -> Fragment:
    """layer_norm: mean, deviation and scale in L2; gamma and beta as planar tasks behind it."""
    (op,) = ops
    x, y = x_and_result(op, context)
    axes, _ = axes_of(op)
    if "n" in axes:
        raise UnsupportedError("a layer norm over the batch", code=Reason.BATCH)
    if not axes >= frozenset("chw"):
        axes &= x.axes
    epsilon = op.arg("epsilon")
    gamma, beta = (_parameter(op, name) for name in ("gamma", "beta"))
    fragment = Fragment(context)
    steps = [(word, data) for word, data in (("mul", gamma), ("add", beta)) if data is not None]
    target = y if not steps else fragment.tensor(*y.shape)
    for n in range(x.n):
        normalise(fragment, x.image(n), target.image(n), axes, epsilon)
    for i, (word, data) in enumerate(steps):
        last = i == len(steps) - 1
        result = y if last else fragment.tensor(*y.shape)
        _affine(fragment, word, target, data, result)
        target = result
    return fragment


def _parameter(op: Op, name: str) -> np.ndarray | None:
    value: Value | None = op.arg(name)
    if value is None:
        return None
    data = constant(value)
    if data is None:
        raise UnsupportedError(f"a layer norm whose {name} is computed", code=Reason.COMPUTED)
    _, numbers = axes_of(op)
    shape = [1] * len(op.arg("x").shape)
    for axis, extent in zip(numbers, data.shape):
        shape[axis] = extent
    return np.asarray(data, np.float16).reshape(shape)


def _affine(fragment: Fragment, word: str, x: Tensor, data: np.ndarray, y: Tensor) -> None:
    small = fragment.plain_constant(data)
    if small.shape == x.shape:
        fragment.add(two_surfaces(fragment.target, word, x, small, y, False))
        return
    against_small(fragment, word, x, small, y)


def normalise(fragment: Fragment, x: Tensor, y: Tensor, axes: frozenset[str], epsilon: float) -> None:
    """One image over the given axes (those longer than 1)."""
    whole = x.axes - {"n"}
    if not axes or not whole:
        raise UnsupportedError("a layer norm over axes of length 1", code=Reason.EXTENT)
    if axes == frozenset("c") and x.h == x.w == 1:
        _channels(fragment, x, y, epsilon)
    elif axes >= whole:
        _everything(fragment, x, y, epsilon)
    elif axes == frozenset("w") and x.c == 1:
        rows_as_channels(fragment, as_rows(x), as_rows(y), epsilon)
    elif axes == frozenset("w") and x.h > 1:
        _rows(fragment, x, y, epsilon)
    elif axes == frozenset("w"):
        flat = replace(as_rows(x), m=x.c)
        rows_as_channels(fragment, flat, replace(as_rows(y), m=x.c), epsilon)
    elif axes == frozenset("hw") or (axes == frozenset("h") and x.w == 1):
        _planes(fragment, x, y, epsilon)
    elif axes == frozenset("c") and fragment.target.choices.shared_inputs:
        _turned_twice(fragment, x, y, epsilon)
    elif axes == frozenset("c"):
        _turned(fragment, x, y, epsilon, (0, 2, 3, 1))
    elif axes == frozenset("h"):
        _turned(fragment, x, y, epsilon, (0, 1, 3, 2))
    else:
        raise UnsupportedError(
            f"a layer norm over {', '.join(sorted(axes))} of a map of {x.c} x {x.h} x {x.w}", code=Reason.EXTENT
        )


def _turned(fragment: Fragment, x: Tensor, y: Tensor, epsilon: float, order: tuple[int, ...]) -> None:
    """Over C or H of a map: turned so that the axis runs along W, normalised row by row, turned back."""
    start = len(fragment.plans)
    shape = [x.shape[axis] for axis in order]
    middle = [fragment.tensor(*shape) for _ in range(2)]
    permute(fragment, AxisWalk.of(x), order, AxisWalk.of(middle[0]))
    rows_as_channels(fragment, as_rows(middle[0]), as_rows(middle[1]), epsilon)
    back = tuple(order.index(axis) for axis in range(4))
    permute(fragment, AxisWalk.of(middle[1]), back, AxisWalk.of(y))
    for at in range(start, len(fragment.plans)):
        fragment.change(at, note="layer norm over another axis than W, through scratch")


def _turned_twice(fragment: Fragment, x: Tensor, y: Tensor, epsilon: float) -> None:
    """Over the channels of a map: the map turned for its mean, the difference turned for its deviation (six tasks)."""
    c, h, w = x.c, x.h, x.w
    line, channel, flat = l2.channel_stride(w), l2.channel_stride(w), l2.channel_stride(c)
    row = c * channel + l2.pe_pad(c * channel, channel)
    turned_row = w * flat + _turned_pad(w * flat, flat)
    moved_at = h * line
    turned_at = moved_at + h * row
    source_at = turned_at + h * turned_row
    if source_at + h * row > fragment.limits.l2_bytes or w > LONGEST_ROW or c > LONGEST_ROW:
        _turned(fragment, x, y, epsilon, (0, 2, 3, 1))
        return
    values = Region(0, line, line, line, line)
    source = Region(source_at, channel, row, c * channel)
    target = replace(source, base=moved_at)
    region = Region(moved_at, flat, turned_row, w * flat)

    load = tasks.copy_plan(fragment.target, c, h, w, out_trans=True).reading(dma=x.dma())
    load, _ = fragment.bring(load, source_at, keep=True)
    load = load.reading(region=replace(source, group=c * channel))
    load = tasks.stays(load, region)
    mean = _column_mean(x, region, values)
    minus = Plan(pe=BINARY["sub"], w=w, h=h, c=c, second=Operand(broadcast=Axes.C))
    minus = tasks.resident(minus, source, After.PE_RESULT, second=values)
    minus = tasks.stays(minus, target, after=After.NOTHING)
    again = tasks.copy_plan(fragment.target, c, h, w, out_trans=True)
    minus, again = lock(minus, again)
    again = tasks.resident(again, target, After.FOLLOWS_PE)
    again = tasks.stays(again, replace(region, base=turned_at), after=After.NOTHING)
    spread = _column_mean(x, replace(region, base=turned_at), values)
    spread = spread.computing(op=PeOp.SQUARE, nonlinear=PeNonlinear.RSQRT, epsilon=epsilon)
    scale = Plan(pe=BINARY["mul"], w=w, h=h, c=c).against(broadcast=Axes.C).writing(dma=y.dma())
    scale = tasks.resident(scale, target, After.PE_RESULT, second=values)
    scale = tasks.streams_out(fragment.target, scale, turned_at, explicit=False, after=After.NOTHING)
    fragment.add(load, mean, minus, again, spread)
    fragment.add(scale)


def _turned_pad(row: int, channel: int) -> int:
    """Row pad of a turned copy that a planar task reads: rows of sixteen cells take one (0x100: 0x110)."""
    pad = l2.pe_pad(row, channel)
    return l2.UNIT if not pad and channel <= 0x80 and row // l2.UNIT % 16 == 0 else pad


def _column_mean(x: Tensor, transposed: Region, values: Region) -> Plan:
    """Mean over the channels of a turned map, image rows as groups; one value per pixel."""
    plan = Plan(pe=mean_over(x.c), w=x.c, c=x.w, groups=x.h, result=Destination(transposed=True))
    plan = tasks.resident(
        plan,
        Region(transposed.base, transposed.channel, transposed.depth, transposed.depth, transposed.row),
        After.NE_RESULT,
    )
    return tasks.stays(plan, values, after=After.NOTHING)


def _planes(fragment: Fragment, x: Tensor, y: Tensor, epsilon: float) -> None:
    """Over H and W of every channel: a mean and a reciprocal deviation per channel, turned into rows (three tasks)."""
    if x.w > 256:
        raise UnsupportedError(f"a layer norm over planes of {x.h} x {x.w}", code=Reason.EXTENT)
    line = l2.channel_stride(x.c)
    vector = Region(0, line, line, line)
    mean = Plan(pe=mean_over(x.h * x.w), w=x.w, h=x.h, c=x.c).writing(transposed=True).reading(dma=x.dma())
    mean, end = tasks.pe_source(mean, 2 * line, keep=True)
    fragment.need_room(end, f"a layer norm of {x.c} planes of {x.h} x {x.w}")
    source = replace(mean.source.region, group=0)
    mean = tasks.stays(mean, vector)
    axes = sizes_of_one((1, x.w), (1, x.h))
    spread = (
        variance(x.w, x.h, x.c, x.h * x.w, epsilon).reading(broadcast=axes, transposed=True).writing(transposed=True)
    )
    spread = tasks.resident(spread, vector, After.PE_RESULT, second=source)
    spread = tasks.stays(spread, replace(vector, base=line), after=After.NOTHING)
    scale = Plan(pe=SCALE_SHIFT["sub"], w=x.w, h=x.h, c=x.c).against(transposed=True).writing(dma=y.dma())
    scale = tasks.resident(scale, source, After.PE_RESULT, second=vector)
    scale = tasks.streams_out(fragment.target, scale, end, explicit=False, after=After.NOTHING)
    fragment.add(mean, spread, scale)


def _everything(fragment: Fragment, x: Tensor, y: Tensor, epsilon: float) -> None:
    """Over all of C, H, W: mean at 0, reciprocal deviation two units behind, source two more (three tasks)."""
    if x.c == x.h == 1 and x.w > 256:
        rows_as_channels(fragment, as_rows(x), as_rows(y), epsilon)
        return
    if x.c == x.h == 1:
        w, h, d, walk = x.w, 1, 1, x.dma()
    else:
        w, h, d, walk = x.w, x.c, x.h, cube(x)
    count = x.c * x.h * x.w
    mean = Plan(pe=mean_over(count), w=w, h=h, d=d, source=Operand(dma=walk))
    mean, _ = tasks.pe_source(mean, 4 * l2.UNIT, keep=True)
    source = replace(mean.source.region, group=0)
    end = 4 * l2.UNIT + h * mean.source.region.row
    if (
        max(end, 4 * l2.UNIT + x.h * (x.c * l2.channel_stride(x.w) + 2 * l2.UNIT)) + l2.RESULT_ROOM
        > fragment.limits.l2_bytes
        or x.w > 256
    ):
        raise UnsupportedError(
            f"a layer norm over {count} values does not fit the engine's L2 buffer", code=Reason.MEMORY
        )
    mean = mean.but(tile=min(h, MEAN_ROWS))
    single = Region(0, l2.UNIT, 2 * l2.UNIT, l2.UNIT)
    fragment.stay(mean, single)
    axes = sizes_of_one((1, w), (1, h)) | (Axes.D if d > 1 else Axes.NONE)
    spread = variance(w, h, 1, count, epsilon, tall_patch(w, h)).reading(broadcast=axes).but(d=d, dout=d)
    spread = tasks.resident(spread, single, After.PE_RESULT, second=source)
    fragment.stay(spread, replace(single, base=2 * l2.UNIT), after=After.NOTHING)
    scale = Plan(pe=SCALE_SHIFT["sub"], w=x.w, h=x.h, c=x.c).against(broadcast=Axes.C).writing(dma=y.dma())
    if x.c == x.h == 1:
        scale = scale.but(patch=pe_patch(w, h, operands=2))
        scale = tasks.resident(scale, source, After.PE_RESULT)
    else:
        scale = scale.reading(dma=x.dma())
        scale, end = tasks.pe_source(scale, 4 * l2.UNIT, after=After.PE_RESULT)
    scale = scale.against(region=single)
    fragment.send(scale, end, after=After.NOTHING)


def _channels(fragment: Fragment, x: Tensor, y: Tensor, epsilon: float) -> None:
    """Over the channels of single pixels: turned into a row and back (five tasks)."""
    line = l2.channel_stride(x.c)
    vector = Region(4 * l2.UNIT, line, line, line)
    turn = Plan(pe=COPY, c=x.c, result=Destination(transposed=True), source=Operand(dma=x.dma()))
    turn, _ = tasks.pe_source(turn, 4 * l2.UNIT + line)
    fragment.stay(turn, vector)
    patch = (min(8, pe_patch(x.c, 1, operands=2)[0]), 0) if x.c <= 256 else (9, 0)
    single = Region(0, l2.UNIT, 2 * l2.UNIT, l2.UNIT)
    mean = Plan(pe=mean_over(x.c), w=x.c, patch=patch)
    after_turn = After.FOLLOWS_PE if fragment.target.choices.follows_closely else After.PE_RESULT
    mean = tasks.resident(mean, vector, after_turn)
    mean = tasks.stays(mean, single, after=After.NOTHING)
    spread = variance(x.c, 1, 1, x.c, epsilon, patch).reading(broadcast=Axes.W)
    spread = tasks.resident(spread, single, After.FOLLOWS_PE, second=vector)
    spread = tasks.stays(spread, replace(single, base=2 * l2.UNIT), after=After.NOTHING)
    scale = Plan(pe=SCALE_SHIFT["sub"], w=x.c, patch=patch, second=Operand(transposed=True))
    scale = tasks.resident(scale, vector, After.PE_RESULT, second=single)
    scale = tasks.stays(scale, vector, after=After.NOTHING)
    fragment.add(mean, spread, scale)
    back = Plan(pe=COPY, c=x.c, source=Operand(transposed=True), result=Destination(dma=y.dma()))
    back = tasks.resident(back, vector, after_turn)
    fragment.send(back, 4 * l2.UNIT + line, after=After.NOTHING)


def _rows(fragment: Fragment, x: Tensor, y: Tensor, epsilon: float) -> None:
    """Over W, several rows per channel: map A at 0, B behind it, row values at 2|A| and 0 (five tasks)."""
    size = x.h * loading(fragment.target, x)[1]
    fragment.need_room(
        2 * size + max(size, x.h * x.c * 16) + l2.RESULT_ROOM, f"a layer norm of a map of {x.c} x {x.h} x {x.w}"
    )
    region = load(fragment, x)
    step = x.c * 16
    mean = _row_mean(x, region, row_values(x, 2 * size), After.NE_RESULT)
    fragment.add(mean)
    target = replace(region, base=size)
    minus = Plan(pe=BINARY["sub"], w=x.w, h=x.h, c=x.c, second=Operand(broadcast=Axes.W))
    minus = tasks.resident(minus, region, After.PE_RESULT, second=Region(2 * size, 16, step, step))
    fragment.stay(minus, target, after=After.NOTHING)
    spread = _row_mean(x, target, row_values(x, 0), After.PE_RESULT)
    spread = spread.computing(op=PeOp.SQUARE, nonlinear=PeNonlinear.RSQRT, epsilon=epsilon)
    fragment.add(spread)
    scale = Plan(pe=BINARY["mul"], w=x.w, h=x.h, c=x.c).against(broadcast=Axes.W, transposed=False).writing(dma=y.dma())
    scale = tasks.resident(scale, target, After.PE_RESULT, second=Region(0, 16, step, step))
    fragment.send(scale, 2 * size, after=After.NOTHING)


def _row_mean(x: Tensor, source: Region, result: Region, after: After) -> Plan:
    plan = Plan(pe=mean_over(x.w), w=x.w, c=x.c, groups=x.h)
    block = x.c * source.channel
    plan = tasks.resident(plan, Region(source.base, source.channel, block, block, source.row), after)
    return tasks.stays(plan, result, after=After.NOTHING)


# -- rows as channels: matrices --------------------------------------------------------------------------------------


def _row_statistics(fragment: Fragment, x: MatrixRows, base: int, epsilon: float) -> tuple[Region, Region]:
    """Mean at 0 and reciprocal deviation behind it, both turned into rows; x is kept at ``base``."""
    line = l2.channel_stride(x.m)
    vector = Region(0, line, line, line)
    mean = Plan(pe=mean_over(x.k), w=x.k, c=x.m).writing(transposed=True).reading(dma=x.walk())
    mean, _ = tasks.pe_source(mean, base, keep=True)
    mean = mean.but(patch=(min(mean.patch[0], 8), 0))
    mean = fragment.stay(mean, vector)
    source = replace(mean.source.region, group=0)
    spread = variance(x.k, 1, x.m, x.k, epsilon).reading(broadcast=Axes.W, transposed=True).writing(transposed=True)
    spread = tasks.resident(spread, vector, After.PE_RESULT, second=source)
    fragment.stay(spread, replace(vector, base=line), after=After.NOTHING)
    return vector, source


def _scaled(x: MatrixRows, source: Region, vector: Region) -> Plan:
    plan = Plan(pe=SCALE_SHIFT["sub"], w=x.k, c=x.m, second=Operand(transposed=True))
    return tasks.resident(plan, source, After.PE_RESULT, second=vector)


def rows_as_channels(fragment: Fragment, x: MatrixRows, y: MatrixRows, epsilon: float) -> None:
    """Over the last axis of a matrix: rows as channels, cut into runs that fit L2 (three tasks)."""
    channel = l2.channel_stride(x.k)
    most = (fragment.limits.l2_bytes - l2.RING_ROOM) // (channel + 64)
    if most < 1:
        raise UnsupportedError(f"a layer norm over rows of {x.k}", code=Reason.EXTENT)
    for first in range(0, x.m, most):
        part, target = x.part(first, min(most, x.m - first)), y.part(first, min(most, x.m - first))
        base = 2 * l2.channel_stride(part.m)
        vector, source = _row_statistics(fragment, part, base, epsilon)
        scale = _scaled(part, source, vector).writing(dma=target.walk())
        # the statistics are those in front of a projection, where the scaled rows stay in L2
        scale = scale.inferred("layer norm of a projection, result by DMA")
        fragment.send(scale, base + source.row, explicit=False, after=After.NOTHING)


def projection(op: Op, context: Context) -> tuple[Op, ...] | None:
    """layer_norm whose result only a product with constant weights takes."""
    product = follows(op, "matmul", "linear")
    if product is None or product.arg("x") is not op.output or op.arg("gamma") or op.arg("beta"):
        return None
    return (op, *linear.with_bias(product, context))


@recipe("layer_norm", match=projection, rank=5)
def norm_projection(ops: Sequence[Op], context: Context) -> Fragment:
    """layer_norm over the last axis of a matrix, then a product with constant weights: all in L2."""
    op = ops[0]
    need_fp16(op.arg("x"))
    tensor = context.tensor(op.arg("x"))
    axes, _ = axes_of(op)
    if axes != frozenset("w") or tensor.n * tensor.c != 1 or tensor.h == 1:
        raise UnsupportedError("a layer norm over other axes than the last of a matrix", code=Reason.LAYOUT)
    _, transposed, weights = linear.weights_of(ops[1:], context.target)
    x, y = as_rows(tensor), as_rows(context.tensor(ops[-1].output))
    if transposed or linear.folds(context.target, x.m, weights.n, weights.k):
        raise UnsupportedError("a folded or transposed product behind a layer norm", code=Reason.LAYOUT)
    fragment = Fragment(context)
    epsilon = op.arg("epsilon")
    line = l2.channel_stride(x.m)
    odd = l2.odd_channel_stride(x.m)
    turned_at = 2 * line
    map_at = turned_at + x.k * odd
    channel = l2.channel_stride(x.k)
    size = x.m * channel
    if map_at + 2 * size + l2.RESULT_ROOM > context.limits.l2_bytes:
        raise UnsupportedError("a layer norm and its product do not fit the engine's L2 buffer", code=Reason.MEMORY)
    vector, source = _row_statistics(fragment, x, map_at + size, epsilon)
    scale = _scaled(x, source, vector)
    region = Region(map_at, channel, size, size)
    scale = tasks.stays(scale, region, after=After.NOTHING)
    turn = tasks.copy_plan(context.target, x.m, 1, x.k, out_trans=True)
    scale = scale.but(patch=joint_patch(0))
    fragment.add(scale)
    turn = tasks.resident(turn, region, After.FOLLOWS_PE)
    columns = Region(turned_at, odd, x.k * odd, x.k * odd)
    fragment.stay(turn, columns, after=After.NOTHING)
    linear.products(fragment, TransposedMap(columns, 1, x.m, map_at, None, After.NE_RESULT), weights, y, {})
    return fragment
