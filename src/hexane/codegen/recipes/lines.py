"""Chains of cuts, paddings and reshapes along one signal, with a line in memory for every sample.

DMA reaches only every 32nd column (docs/reference/engine-h13.md 6), so each cut, padding or regrouping of a row costs a
turned copy there and one back. A chain of them needs one of each: the samples become lines, what is cut or padded is a
matter of where lines begin and end, and the result is read from the lines in its own rows. A signal that stands so may
be longer than any axis of a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.recipes.columns import LARGEST, constant_line, fill
from hexane.codegen.recipes.padding import continue_lines, mirrors
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.shape import AxisWalk, turned
from hexane.errors import Reason, UnsupportedError
from hexane.graph.ir import Op, Value
from hexane.graph.registry import has
from hexane.graph.traits import RESHAPES
from hexane.lowering.signals import is_flat, pad_of_signal, rows_of, slice_of_signal, swaps_rows

LINE = 64
COLUMNS = 32
LINES = 1  # the axis of a walk along which lines stand


@dataclass
class LineChain:
    """Ops of one signal in order: ``x`` gives its rows, turned if ``head``; ``y`` takes them, turned if ``tail``."""

    x: Value
    y: Value
    ops: list[Op] = field(default_factory=list)
    head: bool = False
    tail: bool = False
    body: list[Op] = field(default_factory=list)

    def pays(self, longest: int) -> bool:
        """True where something would be turned anyway, or is longer than a tensor may be."""
        turns = any((slice_of_signal(op) or (1,))[0] % COLUMNS for op in self.body)
        long = any(value.shape[-1] > longest for op in self.ops for value in op.outputs if value.shape)
        return len(self.ops) > 1 and (long or turns)


def chain_of(op: Op) -> LineChain | None:
    """The longest chain that begins with an op."""
    chain = LineChain(op.inputs["x"], op.output)
    first = op
    if swaps_rows(op):
        behind = _next(chain, op)
        if behind is None or not has(behind, RESHAPES):
            return None
        chain.head, first = True, behind
    current: Op | None = first
    if has(first, RESHAPES) and not is_flat(first.inputs["x"]):
        if not is_flat(first.output) or rows_of(first.inputs["x"]) is None:
            return None
        current = _next(chain, first)
    while current is not None:
        if has(current, RESHAPES) and is_flat(current.output):
            current = _next(chain, current)
        elif slice_of_signal(current) is not None or pad_of_signal(current) is not None:
            chain.body.append(current)
            current = _next(chain, current)
        else:
            break
    if not chain.body:
        return None
    if current is not None and has(current, RESHAPES) and rows_of(current.output) is not None:
        behind = _next(chain, current)
        if behind is not None and swaps_rows(behind):
            chain.tail = True
            _next(chain, behind)
    return chain


def _next(chain: LineChain, op: Op) -> Op | None:
    """Take an op into the chain; the one that goes on with its result alone."""
    chain.ops.append(op)
    chain.y = op.output
    return op.output.only_user


def _match(op: Op, context: Context) -> tuple[Op, ...] | None:
    if not context.on.signal_lines:
        return None
    chain = chain_of(op)
    return tuple(chain.ops) if chain is not None and chain.pays(context.limits.max_width) else None


@recipe("reshape", "squeeze", "expand_dims", "transpose", "slice_by_size", "pad", match=_match, rank=4)
def signal_lines(ops: Sequence[Op], context: Context) -> Fragment:
    """Cuts, paddings and reshapes along a signal: samples turned into lines, and the result read from the lines."""
    chain = chain_of(ops[0])
    assert chain is not None and tuple(chain.ops) == tuple(ops)
    need_fp16(chain.x)
    x, y = context.tensor(chain.x), context.tensor(chain.y)
    fragment = Fragment(context)
    first, last = _reach(chain)
    total = (last - first) * LINE
    if total > LARGEST:
        raise UnsupportedError(f"a signal of {last - first} lines of {LINE} bytes", code=Reason.MEMORY)
    lines = AxisWalk(fragment.workspace(total), 0, (1, last - first, 1, 1), (total, LINE, LINE, 2), total)
    length = prod(chain.x.shape)
    plain, target = _rows(x, lines.sliced(LINES, -first, length), chain.head)
    turned(fragment, plain, (0, 1, 3, 2), target)
    low, high = 0, length
    for op, (begin, end) in _bounds(chain):
        if op.type == "pad":
            _pad(fragment, op, lines.sliced(LINES, begin - first, end - begin), low - begin, end - high)
        low, high = begin, end
    plain, source = _rows(y, lines.sliced(LINES, low - first, high - low), chain.tail)
    turned(fragment, source, (0, 1, 3, 2), plain)
    fragment.inferred("a line for every sample of a signal")
    return fragment


def _bounds(chain: LineChain) -> Iterator[tuple[Op, tuple[int, int]]]:
    """Each cut and padding with the first line and the end of its result, counted from the signal's first sample."""
    low, high = 0, prod(chain.x.shape)
    for op in chain.body:
        cut, widths = slice_of_signal(op), pad_of_signal(op)
        if cut is not None:
            low, high = low + cut[0], low + cut[0] + cut[1]
        elif widths is not None:
            low, high = low - widths[0], high + widths[1]
        yield op, (low, high)


def _reach(chain: LineChain) -> tuple[int, int]:
    """The first line and the end of the last of all that stands on the way."""
    first, last = 0, prod(chain.x.shape)
    for _, (low, high) in _bounds(chain):
        first, last = min(first, low), max(last, high)
    return first, last


def _pad(fragment: Fragment, op: Op, lines: AxisWalk, before: int, after: int) -> None:
    mode = op.arg("mode")
    if mode != "constant":
        continue_lines(fragment, lines, LINES, before, after, mirror=mirrors(mode))
        return
    line = constant_line(fragment, 1, op.arg("constant_val"))
    for begin, count in ((0, before), (lines.extents[LINES] - after, after)):
        if count:
            fill(fragment, lines.sliced(LINES, begin, count), line)


def _rows(t: Tensor, lines: AxisWalk, turned_rows: bool) -> tuple[AxisWalk, AxisWalk]:
    """A tensor as rows, and the lines of its samples: row after row, or column after column if its rows are turned."""
    count, width = t.n * t.c * t.h, t.w
    plain = AxisWalk(t.buffer, t.offset, (1, count, 1, width), (count * t.row, t.row, t.row, 2), count * t.row)
    steps = (LINE, count * LINE) if turned_rows else (width * LINE, LINE)
    extents = (1, count, width, 1)
    return plain, AxisWalk(lines.buffer, lines.offset, extents, (lines.total, *steps, 2), lines.total)
