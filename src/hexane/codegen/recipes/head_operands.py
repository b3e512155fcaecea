"""Operands of attention with keys as channels: how heads stand in DRAM, and the copies that make kernels of k and v.

Source: docs/reference/engine-h13.md 9.5, 9.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.operations import COPY
from hexane.codegen.plan import Dma, Plan, TaskKernel
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering.attention import split_heads, turned_heads
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Value

TOKENS = 64
"""A copy of some tokens begins at multiples of these: whole bursts and whole lanes."""
STAGING = 16 << 10
"""L2 that a copy's operand takes beyond its values at most: the pads of its rows."""
SEVERAL = "a copy of several heads in one task"


@dataclass(frozen=True)
class Heads:
    """[H, S, D] in DRAM: ``step`` bytes from head to head, ``row`` from token to token.

    ``columns``: [H, D, S], and ``row`` is from one of the dims to the next.
    """

    source: Tensor
    heads: int
    tokens: int
    dims: int
    step: int
    row: int
    columns: bool = False

    @property
    def side_by_side(self) -> bool:
        """True where the heads of a token lie in one row."""
        return self.step == 2 * self.dims and not self.columns

    def part(self, first: int, count: int) -> Heads:
        """Some of the tokens."""
        at = first * (2 if self.columns else self.row)
        source = replace(self.source, offset=self.source.offset + at)
        return replace(self, source=source, tokens=count)

    def walk(self, groups: int, head: int = 0) -> Dma:
        """Tokens (or dims) as channels; ``groups`` heads, or one for all that lie side by side or follow each other."""
        lines = self.dims * (self.heads if groups == 1 else 1) if self.columns else self.tokens
        size = self.row * lines
        group = self.step if groups > 1 else size
        return Dma(self.source.buffer, self.source.offset + head * self.step, size, self.row, size, group)


def heads_of(value: Value, context: Context) -> Heads:
    """Place of the heads of an operand [1, H, S, D]: before the moves that made it, if attention does them."""
    _, heads, tokens, dims = value.shape
    moves, turn = split_heads(value), turned_heads(value)
    if moves:
        rows = context.tensor(moves[0].arg("x"))
        return Heads(rows, heads, tokens, dims, 2 * dims, rows.row)
    tensor = context.tensor(value if turn is None else turn.arg("x"))
    return Heads(tensor, heads, tokens, dims, tensor.plane, tensor.row, turn is not None)


@dataclass(frozen=True)
class Kernels:
    """Kernels of all heads in scratch: ``rows`` of ``length`` values, ``lanes`` rows side by side.

    ``step`` bytes from one block of lanes to the next, ``head`` from head to head. ``by_token``: rows are tokens.
    """

    walk: Dma
    lanes: int
    rows: int
    length: int
    step: int
    head: int
    by_token: bool

    def from_token(self, first: int) -> Dma:
        """Place for the results from this token on."""
        at = first // self.lanes * self.step if self.by_token else 2 * first * self.lanes
        return replace(self.walk, offset=self.walk.offset + at)

    def of_groups(self, target: Target, head: int, heads: int) -> TaskKernel:
        """All rows of several heads: each core's stream has its rows of one head after another (§9.5, §9.7).

        From H14 on the kernel DMA steps from head to head, and through as many passes as a head's rows take.
        """
        if target.choices.steps_kernels:
            blocks = ceil_div(self.rows, self.lanes)
            kernel = self.of(head, 0, min(self.rows, target.limits.cores * self.lanes))
            steps, total = target.limits.cores * self.step, blocks * kernel.sizes[0]
            return replace(kernel, group_stride=self.head, pass_stride=steps, total=total)
        cores = ceil_div(self.rows, self.lanes)
        offsets = tuple(core * self.step for core in range(cores))
        return TaskKernel(b"", offsets, (heads * self.head,) * cores, source=self.walk.buffer, offset=head * self.head)

    def of(self, head: int, first: int, count: int) -> TaskKernel:
        """``count`` rows of one head, from ``first`` on."""
        cores = ceil_div(count, self.lanes)
        size = align(2 * self.lanes * self.length, 64)
        return TaskKernel(
            b"",
            tuple(core * self.step for core in range(cores)),
            (size,) * cores,
            source=self.walk.buffer,
            offset=head * self.head + first // self.lanes * self.step,
        )


def of_tokens(fragment: Fragment, x: Heads, lanes: int) -> Kernels:
    """Rows are tokens: a block of ``lanes`` tokens holds all heads, one after another."""
    step, head = align(2 * lanes * x.dims * x.heads, 64), 2 * lanes * x.dims
    total = x.tokens // lanes * step
    kernels = Kernels(Dma(fragment.workspace(total), 0, 0, 0, 0, 0), lanes, x.tokens, x.dims, step, head, True)
    groups = 1 if x.side_by_side or x.columns else x.heads
    _fill(fragment, x, kernels, groups, total, transposed=x.columns)
    return kernels


def of_dims(fragment: Fragment, x: Heads, lanes: int, *, grouped: bool) -> Kernels:
    """Rows are dims. ``grouped``: a core's rows of all heads one after another, as one task of H13 reads them; else a
    head's rows of all cores.
    """
    line, blocks = align(2 * lanes * x.tokens, 64), x.dims // lanes
    step, head = (x.heads * line, line) if grouped else (line, blocks * line)
    total = blocks * x.heads * line
    kernels = Kernels(Dma(fragment.workspace(total), 0, 0, 0, 0, 0), lanes, x.dims, x.tokens, step, head, False)
    groups = 1 if (x.side_by_side or x.columns) and not grouped else x.heads
    _fill(fragment, x, kernels, groups, total, transposed=not x.columns)
    return kernels


def _fill(fragment: Fragment, x: Heads, kernels: Kernels, groups: int, total: int, *, transposed: bool) -> None:
    """The copy: channels of ``x`` side by side in lanes, or (``transposed``) what lies along W. Rows of more bytes
    than L2 go some tokens at a time."""
    room = fragment.limits.l2_bytes - l2.RESULT_ROOM - STAGING
    most = x.tokens if 2 * x.tokens * x.dims * x.heads <= room else room // (2 * x.dims * x.heads) // TOKENS * TOKENS
    if not most:
        raise UnsupportedError("heads of which not even a few rows fit L2", code=Reason.MEMORY)
    for first in range(0, x.tokens, most):
        part = x if most == x.tokens else x.part(first, min(most, x.tokens - first))
        _fill_from(fragment, part, kernels, first, (groups, total), transposed=transposed)


def _fill_from(
    fragment: Fragment, x: Heads, kernels: Kernels, first: int, way: tuple[int, int], *, transposed: bool
) -> None:
    """The same of these tokens, of which the first is the ``first``; ``way``: groups of the copy, bytes of all."""
    groups, total = way
    each = x.heads // groups
    channels, width = (x.dims * each, x.tokens) if x.columns else (x.tokens, x.dims * each)
    if transposed:
        plan = tasks.copy_plan(fragment.target, channels, 1, width, groups=groups, out_trans=True)
    else:
        plan = Plan(pe=COPY, w=width, h=1, c=channels, groups=groups)
    plan = plan.reading(dma=x.walk(groups))
    group = total if groups == 1 else kernels.head
    walk = kernels.from_token(first)
    plan = plan.writing(
        dma=replace(walk, row=kernels.step, plane=kernels.step, depth=total, group=group, interleave=kernels.lanes)
    )
    if transposed:
        plan, end = fragment.bring(plan, 0)
    else:
        plan, end = tasks.pe_source(plan, 0)
    if end + l2.RESULT_ROOM > fragment.limits.l2_bytes:
        raise UnsupportedError("heads whose rows do not fit the engine's L2 buffer", code=Reason.MEMORY)
    if groups > 1:
        plan = plan.inferred(SEVERAL)
    if first or x.tokens < (kernels.rows if kernels.by_token else kernels.length):
        plan = plan.inferred("some tokens at a time")
    fragment.send(plan, end, explicit=False)
