"""Products, norms, sums and functions of matrices in a row: every result stays in L2, as in Apple's programs of chains.

A matrix stands in L2 by rows (each row a channel, or a row of one channel) or by columns (each column a channel, which
a product reads). Source: words of Apple's compiler for H14 and H13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.geometry import joint_patch, pe_patch
from hexane.codegen.memory.chain import LOADED, VECTOR, ChainStay, ChainTasks, Use
from hexane.codegen.operations import BINARY, SCALE_SHIFT, After, Axes, SourceType, mean_over
from hexane.codegen.plan import Destination, Operand, Plan, Region
from hexane.codegen.recipes import chain_attention, linear, unary
from hexane.codegen.recipes.chain_steps import (
    MOST_ROWS,
    PADDED,
    PLAIN_FUNCTIONS,
    PRODUCTS,
    STEP,
    ChainMatrix,
    MatrixPlace,
    MatrixView,
    as_one,
    attention_chain,
    by_rows,
    chain,
    constant_rows,
    is_scores,
    steps_of,
)
from hexane.codegen.recipes.linear import TransposedMap, as_rows
from hexane.codegen.recipes.norm import variance
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.softmax_parts import lock
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering.fusion import table_name

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op, Value


@recipe("layer_norm", "softmax", "add", *PRODUCTS, *PLAIN_FUNCTIONS, match=chain, rank=3)
def matrix_chain(ops: Sequence[Op], context: Context) -> Fragment:
    """Products, norms, sums and functions of matrices in a row: all results in L2."""
    return _chained(steps_of(ops[0], context), context)


@recipe("layer_norm", *PRODUCTS, match=attention_chain, rank=2)
def attention_in_chain(ops: Sequence[Op], context: Context) -> Fragment:
    """Attention among products, norms, sums and functions of matrices in a row: all results but kernels in L2."""
    return _chained(steps_of(ops[0], context, attention=True), context)


def _chained(steps: list[tuple[Op, ...]], context: Context) -> Fragment:
    work = ChainWork(Fragment(context), context, steps, ChainTasks(context.limits.l2_bytes))
    work.run()
    return work.fragment


@dataclass
class ChainWork:
    """The tasks of a chain on their way."""

    fragment: Fragment
    context: Context
    steps: list[tuple[Op, ...]]
    chain: ChainTasks
    matrices: dict[Value, ChainMatrix] = field(default_factory=dict)
    at: int = 0

    @property
    def target(self) -> Target:
        return self.context.target

    def run(self) -> None:
        need_fp16(*(value for run in self.steps for value in run[-1].outputs))
        self._order()
        for at, run in enumerate(self.steps):
            self.at = at
            op = run[0]
            if is_scores(op):
                chain_attention.scores(self, run) if op.arg("transpose_y") else chain_attention.weighted_sum(self, op)
            elif op.type in PRODUCTS:
                self._product(run)
            elif op.type == "layer_norm":
                self._norm(op)
            elif op.type == "softmax":
                softmax = chain_attention.row_softmax if op.arg("x") in self.matrices else chain_attention.input_softmax
                softmax(self, op)
            elif op.type == "add":
                self._add(op)
            else:
                self._function(op)
        self.chain.settle()
        self.fragment.add(*self.chain.plans)
        plain = all(run[0].type in ("add", *PRODUCTS) for run in self.steps)
        if not plain and not self.target.shows("attention_in_chain"):
            self.fragment.inferred("norms and functions in a chain, as on H14")

    def _order(self) -> None:
        """Of two products of one matrix that are only added, the second runs first; products for a kernel are late."""
        chain_attention.delay_values(self.steps)
        for i, (one, two) in enumerate(zip(self.steps, self.steps[1:])):
            if one[0].type not in PRODUCTS or two[0].type not in PRODUCTS or one[0].arg("x") is not two[0].arg("x"):
                continue
            users = [list(run[-1].output.users) for run in (one, two)]
            if users[0] == users[1] and len(users[0]) == 1 and users[0][0].type == "add":
                self.steps[i : i + 2] = [two, one]

    # -- values --------------------------------------------------------------------------------------------------------

    def readers(self, value: Value) -> list[tuple[Op, ...]]:
        """The steps that still read a value, this one included."""
        return [run for run in self.steps[self.at :] if value in run[0].operands()]

    def _reader(self, value: Value) -> Op | None:
        return next((run[0] for run in self.steps if value in run[0].operands()), None)

    def next_reader(self, value: Value) -> str:
        """The op that reads a result first."""
        reader = self._reader(value)
        return reader.type if reader is not None else ""

    def matrix(self, value: Value) -> ChainMatrix:
        if value not in self.matrices:
            rows = as_rows(self.context.tensor(value))
            self.matrices[value] = ChainMatrix(rows.m, rows.k, rows)
        return self.matrices[value]

    def leaves(self, value: Value) -> bool:
        """True where a result goes to DRAM; UnsupportedError where the chain reads it too."""
        members = {op for run in self.steps for op in run}
        inside = any(user in members for user in value.users)
        outside = value.is_output or any(user not in members for user in value.users)
        if inside and outside:
            raise UnsupportedError("a result of a chain that others read too", code=Reason.LAYOUT)
        return not inside

    def result(self, value: Value) -> ChainMatrix:
        """A new value; ``dram`` where it leaves."""
        rows = as_rows(self.context.tensor(value))
        matrix = self.matrices[value] = ChainMatrix(rows.m, rows.k, rows if self.leaves(value) else None)
        return matrix

    def pitch_for(self, value: Value, k: int, *, padded: bool = True) -> int:
        """Bytes from row to row of a result by rows: no pad where a norm reads it next, or a sum before one."""
        reader = self._reader(value)
        if reader is not None and reader.type == "add":
            reader = self._reader(reader.output)
        norm = reader is not None and reader.type == "layer_norm"
        if norm or not padded or k > PADDED:
            return l2.channel_stride(k)
        return l2.odd_channel_stride(k)

    def follows(self, value: ChainMatrix, *views: MatrixView, unit: str = "") -> After:
        """A lock to the task that wrote a value, where it is the last of its unit and both walk alike."""
        writer = self.chain.plans[value.writer]
        if not self.target.choices.follows_closely or value.view not in views or (unit and writer.unit != unit):
            return After.NOTHING
        if any(plan.unit == writer.unit for plan in self.chain.plans[value.writer + 1 :]):
            return After.NOTHING
        return After.FOLLOWS_NE if writer.unit == "NE" else After.FOLLOWS_PE

    # -- forms ---------------------------------------------------------------------------------------------------------

    def columns(self, value: Value) -> ChainMatrix:
        """The matrix by columns: a turned copy where it is not there."""
        matrix = self.matrix(value)
        if matrix.columns is not None:
            return matrix
        if matrix.rows is None:
            later = [run[0] for run in self.readers(value) if run[0].type not in PRODUCTS]
            sums = self.readers(later[0].output) if later and later[0].type == "add" else []
            if any(run[0].type == "layer_norm" for run in sums):
                return self._turn(matrix, keep=True)
            if later and later[0].type != "layer_norm":
                self._bring(matrix)
        return self._turn(matrix, keep=False)

    def _bring(self, matrix: ChainMatrix) -> None:
        """The rows into L2 as a map of one channel, by one core."""
        assert matrix.dram is not None
        m, k = matrix.m, matrix.k
        plan = tasks.copy_plan(self.target, 1, m, k)
        plan = plan.reading(dma=replace(matrix.dram.walk(), row=matrix.dram.stride, plane=m * matrix.dram.stride))
        plan = tasks.choose_shape(self.target, plan)
        plan, _ = tasks.ne_source(self.target, plan, 0, after=After.NOTHING)
        if not self.target.choices.follows_closely:
            plan = plan.reading(region=replace(plan.source.region, group=0))
        line = l2.channel_stride(k)
        pitch = line + l2.pe_pad(line, STEP)
        plan = plan.writing(region=Region(0, line, pitch, line))
        stay = ChainStay(m * pitch, m * line)
        matrix.writer, matrix.view, matrix.rows = (
            self.chain.add(plan, result=stay),
            MatrixView.MAP,
            MatrixPlace(stay, pitch),
        )

    def _turn(self, matrix: ChainMatrix, *, keep: bool) -> ChainMatrix:
        """A turned copy; of a matrix in DRAM, which it may keep by rows."""
        m, k = matrix.m, matrix.k
        plan = tasks.copy_plan(self.target, m, 1, k, out_trans=True)
        pitch = l2.odd_channel_stride(m)
        stay = ChainStay(k * pitch, 2 * m * k)
        line = l2.channel_stride(k)
        stays: dict[str, Use] = {}
        if matrix.rows is not None:
            follow = self.follows(matrix, MatrixView.ROWS, unit="PE")
            size = line if matrix.view is MatrixView.MAP else m * matrix.rows.pitch
            plan = plan.reading(region=Region(0, matrix.rows.pitch, size, size), after=follow)
            stays["source"] = matrix.rows.use
            if follow:
                before = self.chain.plans[matrix.writer]
                self.chain.plans[matrix.writer] = before.but(patch=min(before.patch, joint_patch(0)))
        else:
            assert matrix.dram is not None
            plan = plan.reading(dma=matrix.dram.walk())
            if keep:
                plan = plan.reading(region=Region(0, line, m * line, m * line, m * line), type=SourceType.DMA_KEEP)
                source = stays["source"] = ChainStay(m * line, m * line, LOADED)
                matrix.rows = MatrixPlace(source, line)
            else:
                plan = tasks.choose_shape(self.target, plan)
                plan, _ = tasks.ne_source(self.target, plan, 0, after=After.NOTHING)
        plan = plan.writing(region=Region(0, pitch, k * pitch, k * pitch))
        copy = ChainMatrix(m, k, matrix.dram, matrix.rows, MatrixPlace(stay, pitch))
        copy.writer, copy.view = self.chain.add(plan, **stays, result=stay), MatrixView.COLUMNS
        matrix.columns = copy.columns
        return copy

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _product(self, run: tuple[Op, ...]) -> None:
        op, value = run[0], run[-1].output
        source = self.columns(op.arg("x"))
        assert source.columns is not None
        _, _, weights = linear.weights_of(run, self.context.target)
        if linear.folds(self.target, source.m, weights.n, weights.k):
            raise UnsupportedError("a folded product in a chain", code=Reason.LAYOUT)
        out, m, n = self.result(value), source.m, weights.n
        kernel = chain_attention.kernel_of_product(self, value, m, n)
        transposed = out.dram is not None or self.read_by_rows(value) if kernel is None else kernel[1]
        pitch = self.pitch_for(value, n) if transposed else l2.channel_stride(m)
        stay = ChainStay((m if transposed else n) * pitch, 2 * m * n)
        pixels = TransposedMap(Region(), 1, m, 0, None, After.NOTHING)
        blocks = linear.blocks_for(self.target, weights, 1, m, transposed=transposed)
        for i, block in enumerate(blocks):
            plan = linear.block_plan(self.target, pixels, weights, block, {}, out_trans=transposed)
            if out.dram is not None:
                plan = plan.writing(dma=replace(out.dram.walk(), offset=out.dram.offset + 2 * block.first))
            plan = linear.settle(self.target, plan)
            channel = source.columns.pitch
            follow = After.NOTHING if i else self.follows(source, MatrixView.COLUMNS, unit="NE")
            plan = plan.reading(region=Region(0, channel, source.k * channel, source.k * channel), after=follow)
            stays: dict[str, Use] = {"source": source.columns.stay}
            if kernel is not None:
                out.kernel = kernel[0]
                plan = plan.writing(dma=kernel[0])
            if plan.result.dma is not None:
                plan = plan.streaming(plan.result.region, automatic=True)
            else:
                plan = plan.writing(region=Region(0, pitch, stay.size, stay.size))
                stays["result"] = stay, (2 * block.first if transposed else block.first * pitch)
            out.writer = self.chain.add(plan, **stays)
        if kernel is not None:
            if len(blocks) > 1:
                raise UnsupportedError("a kernel that several products compute", code=Reason.LAYOUT)
            return
        out.view = MatrixView.ROWS if transposed else MatrixView.COLUMNS
        if max(block.lanes for block in blocks) > 1 << self.chain.plans[-1].ocg:
            out.view = MatrixView.MAP  # its columns are finished in several passes
        if transposed:
            out.rows = MatrixPlace(stay, pitch)
        else:
            out.columns = MatrixPlace(stay, pitch)

    def read_by_rows(self, value: Value) -> bool:
        """True where a step reads the rows of a value: all but products, of which it is the map."""
        for op in (run[0] for run in self.readers(value)):
            scores = is_scores(op)
            if op.type not in PRODUCTS or (scores and op.arg("x" if op.arg("transpose_y") else "y") is value):
                return True
        return False

    def by_rows_of(self, value: Value) -> ChainMatrix:
        """The matrix by rows; UnsupportedError where only its columns are there."""
        matrix = self.matrix(value)
        if matrix.rows is None and matrix.dram is None:
            raise UnsupportedError("a result by columns of which a task reads rows", code=Reason.LAYOUT)
        return matrix

    def _norm(self, op: Op) -> None:
        x, out = self.by_rows_of(op.arg("x")), self.result(op.output)
        m, k, line = x.m, x.k, l2.channel_stride(x.m)
        if m > MOST_ROWS:
            self._long_norm(op, x, out)
            return
        vectors = ChainStay(2 * line, 4 * m, VECTOR)
        vector = Region(0, line, line, line)
        mean = Plan(pe=mean_over(k), w=k, c=m, result=Destination(transposed=True))
        loads = x.rows is None
        if loads:
            assert x.dram is not None
            size = m * l2.channel_stride(k)
            mean = mean.reading(dma=x.dram.walk())
            x = replace(x, rows=MatrixPlace(ChainStay(size, size, LOADED), l2.channel_stride(k)))
        assert x.rows is not None
        source, channel = x.rows.use, x.rows.pitch
        region = by_rows(channel, m)
        if loads:
            mean = mean.reading(region=replace(region, group=region.row), type=SourceType.DMA_KEEP)
        else:
            mean = mean.reading(region=region, after=self.follows(x, MatrixView.ROWS))
        wide = pe_patch(k, 1, operands=1)[0]
        mean = mean.writing(region=vector).but(patch=(min(wide, 8), 0))
        self.chain.add(mean, source=source, result=vectors)
        spread = (
            variance(k, 1, m, k, op.arg("epsilon")).reading(broadcast=Axes.W, transposed=True).writing(transposed=True)
        )
        spread = spread.but(patch=pe_patch(k, 1, operands=2))
        lock_step = not loads and self.target.choices.follows_closely
        spread = spread.reading(region=vector, after=After.FOLLOWS_PE if lock_step else After.NOTHING)
        spread = spread.against(region=region).writing(region=vector)
        self.chain.add(spread, source=vectors, source2=source, result=(vectors, line))
        scale = Plan(pe=SCALE_SHIFT["sub"], w=k, c=m, second=Operand(transposed=True))
        scale = scale.reading(region=region).against(region=vector).but(patch=pe_patch(k, 1, operands=2))
        self._write(scale, op.output, out, MatrixView.ROWS, l2.channel_stride(k), source=source, source2=vectors)

    def _long_norm(self, op: Op, x: ChainMatrix, out: ChainMatrix) -> None:
        """More rows than a reduction takes: blocks of rows, each by DMA, and the input again for the scale."""
        if x.dram is None or x.rows is not None:
            raise UnsupportedError("a norm over many rows of a result in a chain", code=Reason.LAYOUT)
        m, k = x.m, x.k
        line = l2.channel_stride(m)
        line += l2.pe_pad(line, l2.UNIT)
        vectors, channel = ChainStay(2 * line, 4 * m, VECTOR), l2.channel_stride(k)
        blocks = [(first, min(MOST_ROWS, m - first)) for first in range(0, m, MOST_ROWS)]
        for first, count in reversed(blocks):
            mean = Plan(pe=mean_over(k), w=k, c=count, result=Destination(transposed=True))
            mean = mean.reading(dma=x.dram.part(first, count).walk())
            mean, _ = tasks.pe_source(mean, 0, after=After.NOTHING)
            size = count * channel
            mean = mean.reading(region=Region(0, channel, size, size, size)).writing(region=Region(0, line, line, line))
            self.chain.add(mean, result=(vectors, 2 * first))
        for first, count in (*reversed(blocks[:-1]), blocks[-1]):
            size, lines = count * channel, Region(0, line, line, line)
            spread = variance(k, 1, count, k, op.arg("epsilon")).but(patch=pe_patch(k, 1, operands=2))
            spread = spread.reading(region=lines, broadcast=Axes.W, transposed=True)
            spread = spread.writing(region=lines, transposed=True)
            spread = spread.against(dma=x.dram.part(first, count).walk(), region=Region(0, channel, size, size, size))
            self.chain.add(spread, source=(vectors, 2 * first), result=(vectors, line + 2 * first))
        scale = Plan(pe=SCALE_SHIFT["sub"], w=k, c=m)
        scale = scale.against(transposed=True).reading(dma=x.dram.walk()).but(patch=pe_patch(k, 1, operands=2))
        turns = out.dram is None and self.next_reader(op.output) in PRODUCTS and self.target.choices.follows_closely
        window = l2.pe_window(k, joint_patch(0)[0] if turns else scale.patch[0])
        size = m * window
        scale = tasks.by_dma(scale, Region(0, window, size, size, size), after=After.NOTHING)
        scale = scale.against(region=Region(0, line, line, line))
        self._write(scale, op.output, out, MatrixView.ROWS, channel, source2=vectors)

    def _write(self, plan: Plan, value: Value, out: ChainMatrix, view: MatrixView, pitch: int, **stays: Use) -> None:
        """A task that writes rows: to DRAM, or to a place of its own; ``over`` names the operand in whose place."""
        m, k = out.m, out.k
        over = stays.pop("over", None)
        assert not isinstance(over, tuple)
        if out.dram is not None:
            walk = out.dram.walk()
            as_map = replace(walk, row=out.dram.stride, plane=m * out.dram.stride)
            plan = plan.writing(dma=as_map if view is MatrixView.MAP else walk)
            plan = plan.streaming(plan.result.region, automatic=True)
            if plan.unit == "NE":
                plan = tasks.choose_shape(self.target, plan)
        else:
            stay = stays["result"] = ChainStay(m * pitch, 2 * m * k, over=over)
            region = by_rows(pitch, m)
            plan = plan.leaving(as_one(region, pitch) if view is MatrixView.MAP else region)
            out.rows = MatrixPlace(stay, pitch)
        out.writer, out.view = self.chain.add(plan, **stays), view

    def _add(self, op: Op) -> None:
        one, two = op.arg("x"), op.arg("y")
        if two.is_constant:
            self._add_constant(op)
            return
        a, b = self.by_rows_of(one), self.by_rows_of(two)
        if a.rows is None and b.rows is None:
            raise UnsupportedError("a sum of two inputs in a chain", code=Reason.LAYOUT)
        if a.rows is None or (b.rows is not None and a.writer > b.writer >= 0 and a.view is b.view is MatrixView.ROWS):
            pass
        elif b.rows is None:
            a, b, one, two = b, a, two, one
        out = self.result(op.output)
        m, k = out.m, out.k
        by_channels = a.writer < 0 and a.rows is not None and b.view is MatrixView.ROWS and b.writer >= 0
        view = MatrixView.ROWS if by_channels else MatrixView.MAP
        plan = Plan(pe=BINARY["add"], w=k, h=m, c=1)
        if view is MatrixView.ROWS:
            plan = Plan(pe=BINARY["add"], w=k, h=1, c=m)
        plan = plan.but(patch=pe_patch(k, plan.h, operands=2))
        line = l2.channel_stride(k)
        stays: dict[str, Use] = {}
        if a.rows is None:
            assert a.dram is not None
            plan = plan.reading(dma=replace(a.dram.walk(), row=a.dram.stride, plane=m * a.dram.stride))
            plan, _ = tasks.pe_source(plan, 0, after=After.NOTHING)
        else:
            stays["source"] = a.rows.use
            plan = tasks.resident(plan, self._operand(a, view, line))
        assert b.rows is not None
        stays["source2"] = b.rows.use
        plan = plan.against(region=self._operand(b, view, line))
        if view is MatrixView.ROWS:
            plan = plan.against(besides=self.follows(b, MatrixView.ROWS, unit="NE"))
        pitch = self.pitch_for(op.output, k)
        stays |= self._in_place(out, pitch, (two, b), (one, a))
        self._write(plan, op.output, out, view, pitch, **stays)

    def _in_place(self, out: ChainMatrix, pitch: int, *operands: tuple[Value, ChainMatrix]) -> dict[str, Use]:
        """The first of the operands in whose place the result may stand: read for the last time, of the same pitch."""
        for value, matrix in operands:
            last = len(self.readers(value)) == 1 and not value.is_output
            fits = matrix.rows is not None and matrix.rows.pitch == pitch and not matrix.rows.offset
            if last and out.dram is None and fits:
                assert matrix.rows is not None
                return {"over": matrix.rows.stay}
        return {}

    def _add_constant(self, op: Op) -> None:
        """A constant for every element: source 2 by DMA out of the section of constants."""
        x, out = self.by_rows_of(op.arg("x")), self.result(op.output)
        if x.rows is None:
            raise UnsupportedError("an input plus a constant in a chain", code=Reason.LAYOUT)
        m, k = out.m, out.k
        plan = Plan(pe=BINARY["add"], w=k, h=m, c=1, patch=pe_patch(k, m, operands=2))
        constant = self.fragment.plain_constant(np.asarray(op.arg("y").data, np.float16).reshape(1, 1, m, k))
        plan = plan.against(dma=constant.dma()).reading(region=self._operand(x, MatrixView.MAP, l2.channel_stride(k)))
        plan = plan.against(region=constant_rows(plan))
        pitch = self.pitch_for(op.output, k, padded=self.next_reader(op.output) not in PLAIN_FUNCTIONS)
        stays = self._in_place(out, pitch, (op.arg("x"), x))
        self._write(plan, op.output, out, MatrixView.MAP, pitch, source=x.rows.use, **stays)

    @staticmethod
    def _operand(matrix: ChainMatrix, view: MatrixView, line: int) -> Region:
        assert matrix.rows is not None
        region = by_rows(matrix.rows.pitch, matrix.m)
        if view is MatrixView.ROWS:
            return region
        return as_one(region, line if matrix.view is MatrixView.MAP else region.row)

    def _function(self, op: Op) -> None:
        x, out = self.by_rows_of(op.arg("x")), self.result(op.output)
        m, k = x.m, x.k
        plan = tasks.copy_plan(self.target, 1, m, k)
        plan = unary.set_table(plan, table_name(op))
        stays: dict[str, Use] = {}
        if x.rows is None:
            if len(self.readers(op.arg("x"))) > 1:
                raise UnsupportedError("a function of an input that others read", code=Reason.LAYOUT)
            assert x.dram is not None
            plan = plan.reading(dma=replace(x.dram.walk(), row=x.dram.stride, plane=m * x.dram.stride))
            plan = tasks.choose_shape(self.target, plan)
            plan, _ = tasks.ne_source(self.target, plan, 0, after=After.NOTHING)
        else:
            stays["source"] = x.rows.use
            follow = self.follows(x, MatrixView.MAP, unit="PE")
            plan = plan.reading(region=self._operand(x, MatrixView.MAP, l2.channel_stride(k)), after=follow)
            if follow:
                before, plan = lock(self.chain.plans[x.writer], plan)
                if before.second.dma is not None:
                    before = before.against(region=constant_rows(before))
                self.chain.plans[x.writer] = before
        pitch = self.pitch_for(op.output, k, padded=self.next_reader(op.output) == "add")
        stays |= self._in_place(out, pitch, (op.arg("x"), x))
        self._write(plan, op.output, out, MatrixView.MAP, pitch, **stays)
