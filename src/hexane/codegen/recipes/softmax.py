"""softmax: maximum, difference times log2 e, exp2 table, reciprocal of the sum, product (spec/engine-h13 §7.3, §13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hexane.codegen import l2, tasks
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import L2_BYTES, joint_patch, joint_shape, largest_shape, pe_patch, up
from hexane.codegen.plan import Dma, Evidence, Plan, Region
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.elementwise import OPERATIONS, combine
from hexane.codegen.recipes.reduce import MAXIMUM, PAD_MOST_NEGATIVE, Reduction, fold_row, folds, reduce_axis
from hexane.codegen.recipes.registry import Context, need_fp16, recipe
from hexane.codegen.tasks import MAC_MAXIMUM, MAC_SUM
from hexane.errors import UnsupportedError

if TYPE_CHECKING:
    from hexane.graph.ir import Op

LOG2_E = 0x3DC5
RECIPROCAL = 0x1000  # NonlinearMode 1 behind a sum
W_AXIS, H_AXIS, C_AXIS = 1, 2, 8
SUBTRACT, MULTIPLY = OPERATIONS["sub"], OPERATIONS["mul"]
BLOCK = 192  # rows that one reduction takes as channels


@recipe("softmax")
def softmax(ops: Sequence[Op], context: Context) -> Fragment:
    """softmax along one axis, in L2; large maps through scratch."""
    (op,) = ops
    need_fp16(op.arg("x"))
    x, y = context.tensor(op.arg("x")), context.tensor(op.output)
    rank = len(op.arg("x").shape)
    axis = "nchw"[op.arg("axis") % rank + 4 - rank]
    made = Fragment()
    for n in range(x.n):
        one = lambda t: Tensor(t.buffer, 1, t.c, t.h, t.w, offset=t.offset + n * t.batch)  # noqa: B023, E731
        along(made, one(x), one(y), axis)
    return made


def along(made: Fragment, x: Tensor, y: Tensor, axis: str) -> None:
    """softmax of one image along one axis: in L2 where the map fits, else every step through scratch."""
    if axis == "n":
        raise UnsupportedError("softmax over the batch")
    start = len(made.plans)
    try:
        _in_l2(made, x, y, axis)
    except UnsupportedError:
        del made.plans[start:]
        if getattr(x, axis) == 1:
            raise
        _through_scratch(made, x, y, axis)


def _in_l2(made: Fragment, x: Tensor, y: Tensor, axis: str) -> None:
    if axis == "c":
        over_channels(made, x.dma(), y.dma(), x.c, x.h, x.w)
    elif axis == "h" and x.h > 1:
        source, target = (replace(t.dma(), row=t.plane, plane=t.row) for t in (x, y))
        over_channels(made, source, target, x.h, x.c, x.w)
    elif axis == "h" or (x.h == 1 and x.w == 1):
        if x.w > 1:
            raise UnsupportedError("softmax along an axis of length 1")
        _pixels(made, x, y)
    elif x.h == 1:
        _one_row(made, x, y)
    elif x.c == 1:
        _rows_as_channels(made, x, y)
    elif _fits(x):
        _rows(made, x, y)
    else:
        _streamed(made, x, y)


def _through_scratch(made: Fragment, x: Tensor, y: Tensor, axis: str) -> None:
    """Maximum, difference, exp2, sum, reciprocal, product: each step a program of its own."""

    def fresh(like: Tensor) -> Tensor:
        return Tensor(made.workspace(like.bytes), *like.shape)

    shape = tuple(1 if a == axis else int(getattr(x, a)) for a in "nchw")
    small = Tensor(x.buffer, *shape)
    start = len(made.plans)
    reduce_axis(made, x, top := fresh(small), Reduction(MAXIMUM), axis)
    before = len(made.plans)
    combine(made, "sub", x, top, moved := fresh(x))
    assert made.plans[-1].kind == 3 and len(made.plans) > before
    made.plans[-1].scale = LOG2_E
    power = unary.copy_of(x)
    unary.set_table(power, "exp2")
    made.add(unary.ne_stream(power, moved, powers := fresh(x)))
    reduce_axis(made, powers, total := fresh(small), Reduction(), axis)
    inverse = unary.copy_of(small)
    unary.set_table(inverse, "reciprocal")
    made.add(unary.ne_stream(inverse, total, factor := fresh(small)))
    combine(made, "mul", powers, factor, y)
    for plan in made.plans[start:]:
        plan.evidence, plan.note = Evidence.INFERRED, "softmax through scratch"


def _map_row(x: Tensor) -> tuple[int, int]:
    channel = l2.channel_stride(x.w)
    block = x.c * channel
    return channel, block + l2.pe_pad(block, channel)


def _fits(x: Tensor) -> bool:
    _, row = _map_row(x)
    return 2 * x.h * row + max(x.h * row, x.h * x.c * 16 + 0x1000) <= L2_BYTES


def difference(x: Plan | None, w: int, h: int, c: int, **settings: object) -> Plan:
    """(x - m) * log2 e."""
    return Plan("PE", w=w, h=h, c=c, kind=3, src2_format=2, pe=SUBTRACT, scale=LOG2_E, **settings)  # type: ignore[arg-type]


def lock(planar: Plan, neural: Plan) -> None:
    """Give a PE task and the NE task that follows it patch by patch the same patch (§4.3.1)."""
    s = joint_shape(neural.wout, neural.hout)
    planar.patch, neural.shape = joint_patch(s), (s, s, s)


def exponential(c: int, h: int, w: int) -> Plan:
    plan = tasks.copy_plan(c, h, w)
    unary.set_table(plan, "exp2")
    return plan


def row_reduction(made: Fragment, x: Tensor, held: Region, result: Region, word: int, config: int) -> Plan:
    """Maximum or sum over W with rows as groups."""
    plan = Plan("PE", w=x.w, c=x.c, groups=x.h, kind=5, pe=word)
    plan.l2_config = PAD_MOST_NEGATIVE if word == MAXIMUM else 0
    block = x.c * held.channel
    tasks.resident(plan, Region(held.base, held.channel, block, block, held.row), config)
    plan.patch = pe_patch(plan.w, 1, operands=1)
    if folds(x.w) and config == l2.ALIAS_NE_RESULT:
        fold_row(plan, x.w)
        plan.source = replace(plan.source, row=x.w // 2)
        plan.patch = pe_patch(plan.w, plan.h, operands=1)
    tasks.stays(plan, result, alias=0)
    plan.holds = True
    return made.add(plan)


def load(made: Fragment, x: Tensor, *, pad_for_planar: bool = True) -> Region:
    """T0: the map into L2 at 0 by an NE copy; its source stands behind it."""
    plan = unary.copy_of(x)
    plan.src = x.dma()
    tasks.choose_shape(plan)
    channel, row = _map_row(x)
    held = Region(0, channel, row, x.c * channel)
    tasks.ne_source(plan, x.h * row)
    tasks.stays(plan, held)
    plan.holds = True
    made.add(plan)
    return held


def row_values(x: Tensor, base: int) -> Region:
    """One value per channel and row."""
    step = x.c * 16
    return Region(base, 16, x.h * step, step, step)


def _rows(made: Fragment, x: Tensor, y: Tensor) -> None:
    """Last axis, several rows: six tasks; maps A and B, row values at 2|A| and 0 (§7.3)."""
    held = load(made, x)
    size = x.h * held.row
    step = x.c * 16
    maximum = row_values(x, 2 * size)
    row_reduction(made, x, held, maximum, MAXIMUM, l2.ALIAS_NE_RESULT)
    moved = replace(held, base=size)
    minus = difference(None, x.w, x.h, x.c, broadcast2=W_AXIS)
    tasks.resident(minus, held, l2.ALIAS_PE_RESULT)
    minus.source2 = Region(maximum.base, 16, step, step)
    tasks.stays(minus, moved, alias=0)
    minus.holds = True
    power = exponential(x.c, x.h, x.w)
    lock(minus, power)
    made.add(minus)
    tasks.resident(power, moved, l2.FOLLOWS_PE)
    tasks.stays(power, moved, alias=0)
    power.holds = True
    made.add(power)
    row_reduction(made, x, moved, row_values(x, 0), RECIPROCAL, l2.ALIAS_NE_RESULT)
    scale = Plan("PE", w=x.w, h=x.h, c=x.c, kind=3, src2_format=2, pe=MULTIPLY, broadcast1=W_AXIS)
    scale.dst = y.dma()
    scale.patch = pe_patch(x.w, x.h, operands=2)
    tasks.resident(scale, Region(0, 16, step, step), l2.ALIAS_PE_RESULT)
    scale.source2 = moved
    tasks.streams_out(scale, 2 * size, alias=0)
    made.add(scale)


def over_channels(made: Fragment, source: Dma, target: Dma, c: int, h: int, w: int) -> None:
    """Along C (or H mapped to channels): maximum and sum in the neural engine, five tasks."""
    channel = l2.channel_stride(w)
    block = c * channel
    row = block + l2.pe_pad(block, channel)
    step = channel + (l2.pe_pad(channel, channel) if h > 1 else 0)
    step = channel
    base = h * step
    size = h * row
    if base + 2 * size > L2_BYTES:
        raise UnsupportedError(f"softmax over {c} channels of {h} x {w} does not fit the engine's 2 MiB buffer")
    small = Region(0, channel, step, step)
    first = Plan("NE", w=w, h=h, c=c, cout=1, unicast=c, mac=MAC_MAXIMUM, l2_config=PAD_MOST_NEGATIVE)
    first.src = source
    s = largest_shape(w, h)
    kept = s + (w < 16)  # seen: 4x4 has 3, 8x8 has 4, 16x16 has 3 (§4.3.1 lists the first two as misfits)
    first.shape = (kept, kept, kept)
    first.source = Region(base + size, channel, row, block, block)
    first.source_config = tasks.source_config(first, tasks.STARTS, keep=True)
    tasks.stays(first, small)
    first.holds = True
    made.add(first)
    held = Region(base, channel, row, block)
    minus = difference(None, w, h, c, broadcast2=C_AXIS)
    tasks.resident(minus, replace(held, base=base + size), l2.ALIAS_NE)
    minus.source2 = small
    tasks.stays(minus, held, alias=0)
    minus.holds = True
    power = exponential(c, h, w)
    lock(minus, power)
    made.add(minus)
    tasks.resident(power, held, l2.FOLLOWS_PE)
    tasks.stays(power, held, alias=0)
    power.holds = True
    made.add(power)
    total = Plan("NE", w=w, h=h, c=c, cout=1, mac=MAC_SUM, dpe=1)
    unary.set_table(total, "reciprocal")
    total.shape = (s, s, s)
    if w <= 8 and h <= 8:
        total.small_source, total.shape = True, (4, 4, 4)
    tasks.resident(total, held, l2.FOLLOWS_NE)
    tasks.stays(total, small, alias=0)
    total.holds = True
    made.add(total)
    scale = Plan("PE", w=w, h=h, c=c, kind=3, src2_format=2, pe=MULTIPLY, broadcast1=C_AXIS)
    scale.dst = target
    scale.patch = pe_patch(w, h, operands=2)
    tasks.resident(scale, small, l2.ALIAS_NE_RESULT)
    scale.source2 = held
    tasks.streams_out(scale, base + size, alias=0)
    made.add(scale)


def _pixels(made: Fragment, x: Tensor, y: Tensor) -> None:
    """Along an axis of length 1 of single pixels: the same chain on channels turned into a row."""
    line = l2.channel_stride(x.c)
    vector = Region(0, line, line, line)
    single = x.c * 16
    top = Plan("PE", c=x.c, kind=5, pe=MAXIMUM, l2_config=PAD_MOST_NEGATIVE, transpose_out=True)
    top.src = x.dma()
    top.patch = pe_patch(1, 1, operands=1)
    top.source = Region(2 * line, 16, single, single, single)
    top.source_config = tasks.source_config(top, tasks.STARTS, keep=True)
    tasks.stays(top, vector)
    top.holds = True
    made.add(top)
    walk = Dma(made.workspace(up(line, 64)), 0, up(line, 64), up(line, 64), up(line, 64), up(line, 64))
    minus = difference(None, 1, 1, x.c, broadcast2=W_AXIS, transpose2=True, transpose_out=True)
    minus.patch = pe_patch(1, 1, operands=2)
    minus.dst, minus.dst_staged = walk, True
    tasks.resident(minus, replace(top.source, group=0), l2.ALIAS_PE_RESULT)
    minus.source2 = vector
    tasks.stays(minus, replace(vector, base=line), alias=0)
    made.add(minus)
    power = exponential(1, 1, x.c)
    power.src, power.src_staged = walk, True
    tasks.choose_shape(power)
    tasks.resident(power, replace(vector, base=line), l2.ALIAS_PE_RESULT | 0x40)
    tasks.stays(power, vector, alias=0)
    power.holds = True
    made.add(power)
    total = Plan("PE", c=x.c, kind=5, pe=RECIPROCAL, transpose1=True, transpose_out=True)
    total.patch = pe_patch(1, 1, operands=1)
    tasks.resident(total, vector, l2.ALIAS_NE_RESULT)
    tasks.stays(total, replace(vector, base=line), alias=0)
    total.holds = True
    made.add(total)
    scale = Plan("PE", c=x.c, kind=3, src2_format=2, pe=MULTIPLY, broadcast1=W_AXIS, transpose1=True, transpose2=True)
    scale.dst = y.dma()
    scale.patch = pe_patch(1, 1, operands=2)
    tasks.resident(scale, replace(vector, base=line), l2.FOLLOWS_PE)
    scale.source2 = vector
    tasks.streams_out(scale, 2 * line, alias=0)
    made.add(scale)


def _one_row(made: Fragment, x: Tensor, y: Tensor) -> None:
    """Last axis, one row per channel: maximum and sum as turned vectors, as in attention (§13.4)."""
    channel = l2.channel_stride(x.w)
    size = x.c * channel
    line = l2.channel_stride(x.c)
    vector = Region(0, line, line, line)
    if line + 2 * size + 0x1000 > L2_BYTES:
        raise UnsupportedError(f"softmax over {x.c} rows of {x.w} does not fit the engine's 2 MiB buffer")
    top = Plan("PE", w=x.w, c=x.c, kind=5, pe=MAXIMUM, l2_config=PAD_MOST_NEGATIVE, transpose_out=True)
    top.src = x.dma()
    top.patch = pe_patch(x.w, 1, operands=1)
    top.source = Region(line + size, channel, size, size, size)
    top.source_config = tasks.source_config(top, tasks.STARTS, keep=True)
    tasks.stays(top, vector)
    top.holds = True
    made.add(top)
    held = Region(line, channel, size, size)
    row_chain(made, replace(held, base=line + size), held, vector, x.c, x.w, l2.ALIAS_PE_RESULT)
    scale = Plan("PE", w=x.w, c=x.c, kind=3, src2_format=2, pe=MULTIPLY, broadcast1=W_AXIS, transpose1=True)
    scale.dst = y.dma()
    scale.patch = pe_patch(x.w, 1, operands=2)
    tasks.resident(scale, vector, l2.FOLLOWS_PE)
    scale.source2 = held
    tasks.streams_out(scale, line + size, explicit=False, alias=0)
    made.add(scale)
    made.evidence(Evidence.INFERRED, "attention's softmax on a map that comes by DMA")


def row_chain(made: Fragment, x: Region, held: Region, vector: Region, c: int, w: int, config: int) -> None:
    """Difference, table and sum of rows held as channels: ``x`` to ``held``, values in the turned ``vector``."""
    minus = difference(None, w, 1, c, broadcast2=W_AXIS, transpose2=True)
    tasks.resident(minus, x, config)
    minus.source2 = vector
    tasks.stays(minus, held, alias=0)
    minus.holds = True
    power = exponential(c, 1, w)
    lock(minus, power)
    made.add(minus)
    tasks.resident(power, held, l2.FOLLOWS_PE)
    tasks.stays(power, held, alias=0)
    power.holds = True
    made.add(power)
    total = Plan("PE", w=w, c=c, kind=5, pe=RECIPROCAL, transpose_out=True)
    total.patch = pe_patch(w, 1, operands=1)
    tasks.resident(total, held, l2.FOLLOWS_NE | l2.ALIAS_PE_RESULT)
    tasks.stays(total, vector, alias=0)
    total.holds = True
    made.add(total)


@dataclass(frozen=True)
class _Block:
    first: int
    count: int


def _blocks(rows: int) -> list[_Block]:
    found = []
    at = 0
    while at < rows:
        count = min(BLOCK, rows - at)
        found.append(_Block(at, count))
        at += count
    return found


def _rows_as_channels(made: Fragment, x: Tensor, y: Tensor) -> None:
    """One channel, many rows: rows become the channels of the two reductions (eight tasks at 256 x 256)."""
    channel = l2.channel_stride(x.w)
    size = x.h * channel
    padded = channel + l2.pe_pad(channel, 0x40)
    values = x.h * 16
    if 2 * size + max(x.h * padded, size) + values + 0x1000 > L2_BYTES:
        raise UnsupportedError(f"softmax over {x.h} rows of {x.w} does not fit the engine's 2 MiB buffer")
    first = unary.copy_of(x)
    first.src = x.dma()
    tasks.choose_shape(first)
    held = Region(0, channel, channel, size)
    tasks.ne_source(first, size)
    tasks.stays(first, held)
    first.holds = True
    made.add(first)
    top = 2 * size + x.h * padded
    _column_values(made, x, 0, top, MAXIMUM)
    moved = Region(2 * size, channel, padded, channel)
    minus = difference(None, x.w, x.h, 1, broadcast2=W_AXIS)
    tasks.resident(minus, held, l2.ALIAS_PE_RESULT)
    minus.source2 = Region(top, values, 16, values)
    tasks.stays(minus, moved, alias=0)
    minus.holds = True
    power = exponential(1, x.h, x.w)
    lock(minus, power)
    made.add(minus)
    tasks.resident(power, moved, l2.FOLLOWS_PE)
    tasks.stays(power, replace(held, base=size), alias=0)
    power.holds = True
    made.add(power)
    _column_values(made, x, size, 0, RECIPROCAL)
    scale = Plan("PE", w=x.w, h=x.h, c=1, kind=3, src2_format=2, pe=MULTIPLY, broadcast1=W_AXIS)
    scale.dst = y.dma()
    scale.patch = pe_patch(x.w, x.h, operands=2)
    tasks.resident(scale, Region(0, values, 16, values), l2.ALIAS_PE_RESULT)
    scale.source2 = replace(held, base=size)
    tasks.streams_out(scale, 2 * size, alias=0)
    made.add(scale)


def _column_values(made: Fragment, x: Tensor, base: int, target: int, word: int) -> None:
    """Maximum or 1 / sum of every row, rows as channels, in blocks."""
    channel = l2.channel_stride(x.w)
    values = x.h * 16
    for i, block in enumerate(_blocks(x.h)):
        plan = Plan("PE", w=x.w, c=block.count, kind=5, pe=word)
        plan.l2_config = PAD_MOST_NEGATIVE if word == MAXIMUM else 0
        row = block.count * channel
        if folds(x.w):
            fold_row(plan, x.w)
            row = x.w // 2
        plan.patch = pe_patch(plan.w, plan.h, operands=1)
        region = Region(base + block.first * channel, channel, row, x.h * channel)
        tasks.resident(plan, region, l2.ALIAS_NE_RESULT if i == 0 else 0)
        tasks.stays(plan, Region(target + block.first * 16, 16, values, values), alias=0)
        plan.holds = True
        made.add(plan)


def _streamed(made: Fragment, x: Tensor, y: Tensor) -> None:
    """Maps that do not fit L2: strips between difference and table, the powers through scratch (§12.1)."""
    lanes = next(i for i in (8, 4, 2, 1) if x.c % i == 0)
    step = x.c * 16
    base = x.h * step
    row_dma = Dma(x.buffer, x.offset, x.batch, x.plane, x.batch, x.row)
    top = Plan("PE", w=x.w, c=x.c, groups=x.h, kind=5, pe=MAXIMUM, l2_config=PAD_MOST_NEGATIVE)
    top.src = row_dma
    tasks.pe_source(top, base)
    if base + x.c * l2.channel_stride(x.w) > L2_BYTES or x.w <= 256:
        raise UnsupportedError(f"softmax over rows of {x.w} in a map of {x.c} x {x.h} x {x.w}")
    values = row_values(x, 0)
    tasks.stays(top, values)
    top.holds = True
    made.add(top)
    minus = difference(None, x.w, x.h, x.c, broadcast2=W_AXIS)
    power = exponential(x.c, x.h, x.w)
    lock(minus, power)
    block = x.c * 0x20
    pad = l2.ne_pad(block, x.h, (0, 0, 3), 16)
    strip = Region(base, 0x20, block + pad, block, block)
    ring = base + x.h * strip.row
    window = x.c * 0x40
    source = Region(ring, 0x40, window + l2.pe_pad(window, 0x40), window, window)
    minus.src = x.dma()
    minus.source, minus.source_config = source, l2.DMA_STREAM | l2.ALIAS_PE_RESULT
    minus.source2 = Region(0, 16, step, step)
    minus.result, minus.result_config = strip, l2.TO_NEXT
    minus.holds = minus.streams = True
    made.add(minus)
    line = up(2 * x.w * lanes, 64)
    plane = line * x.h
    total = plane * (x.c // lanes)
    buffer = made.workspace(total)
    power.dst = Dma(buffer, 0, line, plane, total, total, interleave=lanes)
    power.source, power.source_config = strip, 0x103
    end = ring + x.h * source.row
    power.result, power.result_config = Region(end), lanes << 8 | 0x4A
    power.streams_in = power.holds = True
    made.add(power)
    if end + 0x1000 > L2_BYTES:
        raise UnsupportedError(f"softmax over a map of {x.c} x {x.h} x {x.w} exceeds the engine's 2 MiB buffer")
    sums = Plan("PE", w=x.w, c=x.c, groups=x.h, kind=5, pe=RECIPROCAL)
    sums.src = Dma(buffer, 0, total, plane, total, line, interleave=lanes)
    tasks.pe_source(sums, base)
    sums.source_config = lanes << 8 | 0x42 | l2.ALIAS_NE_SOURCE
    tasks.stays(sums, values, alias=0)
    sums.holds = True
    made.add(sums)
    scale = Plan("PE", w=x.w, h=x.h, c=x.c, kind=3, src2_format=2, pe=MULTIPLY, broadcast1=W_AXIS)
    scale.src2, scale.dst = Dma(buffer, 0, line, plane, total, total, interleave=lanes), y.dma()
    scale.patch = pe_patch(x.w, x.h, operands=2)
    scale.source = Region(0, 16, step, step)
    scale.source_config = l2.SECOND_BY_DMA | l2.ALIAS_PE_RESULT | lanes << 8 | 0x40
    narrow = l2.pe_window(x.w, scale.patch[0])
    block = x.c * narrow
    if base + 2 * x.h * (block + 0x20) > L2_BYTES:
        raise UnsupportedError(f"softmax over a map of {x.c} x {x.h} x {x.w} exceeds the engine's 2 MiB buffer")
    scale.source2 = Region(base, narrow, block + l2.pe_pad(block, narrow), block, block)
    tasks.streams_out(scale, base + x.h * scale.source2.row, alias=l2.ALIAS_NE_RESULT)
    made.add(scale)
