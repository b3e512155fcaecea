"""Attention in a chain: products of two matrices that tasks before them computed, and the softmax between.

One operand of such a product is its kernel, which the task that computes it writes to scratch, outputs side by side.
Source: words of Apple's compiler for H14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.codegen import l2
from hexane.codegen.fragment import Fragment
from hexane.codegen.geometry import joint_patch, pe_patch
from hexane.codegen.memory.chain import VECTOR, ChainStay, Use
from hexane.codegen.operands import RESULT, SECOND, SOURCE
from hexane.codegen.operations import BINARY, COPY, MAXIMUM, RECIPROCAL_SUM, After, Axes, PeKind, Planar
from hexane.codegen.plan import Destination, Dma, Plan, Region
from hexane.codegen.recipes.chain_steps import PRODUCTS, ChainMatrix, MatrixPlace, MatrixView, is_scores
from hexane.codegen.recipes.matmul import choose_joint_shape, kernel_product, lanes_of
from hexane.codegen.recipes.softmax import row_vector
from hexane.codegen.recipes.softmax_parts import difference, exponential, lock, rows_as_channels
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering.fusion import Epilogue
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.recipes.chains import ChainWork
    from hexane.graph.ir import Op, Value


def kernel_walk(work: ChainWork, outputs: int, inputs: int) -> Dma:
    """Scratch for the kernel of a product of so many outputs and inputs: a core's outputs side by side."""
    limits = work.context.limits
    lanes = lanes_of(work.target, outputs)
    most = outputs if work.target.choices.steps_kernels else limits.cores * lanes
    if outputs % limits.cores or not 2 * limits.cores <= outputs <= most:
        raise UnsupportedError(f"a kernel of {outputs} outputs in a chain", code=Reason.EXTENT)
    line = align(2 * inputs * lanes, 64)
    if line > limits.kernel_bytes_per_core:
        raise UnsupportedError(f"a computed kernel over {inputs} values in a chain", code=Reason.EXTENT)
    total = outputs // lanes * line
    return Dma(work.fragment.workspace(total), 0, line, line, total, total, interleave=lanes)


def kernel_of_product(work: ChainWork, value: Value, m: int, n: int) -> tuple[Dma, bool] | None:
    """Scratch for a product by a constant whose result is nothing but a kernel, and True where it is turned."""
    reader = value.only_user
    if reader is None or not is_scores(reader) or reader.arg("x") is reader.arg("y"):
        return None
    if reader.arg("x") is value and reader.arg("transpose_y"):
        return kernel_walk(work, m, n), True
    if reader.arg("y") is value and not reader.arg("transpose_y"):
        return kernel_walk(work, n, m), False
    return None


def delay_values(steps: list[tuple[Op, ...]]) -> None:
    """A product by a constant that is nothing but the kernel of another runs right before that one."""
    for run in [run for run in steps if is_scores(run[0]) and not run[0].arg("transpose_y")]:
        values = run[0].arg("y")
        step = next(other for other in steps if other[-1].output is values)
        if step[0].type in PRODUCTS and not is_scores(step[0]) and values.only_user is run[0]:
            steps.remove(step)
            steps.insert(steps.index(run), step)


def scores(work: ChainWork, run: tuple[Op, ...]) -> None:
    """s x y^T, the rows of the result as channels: x is the kernel."""
    x, y = (work.matrix(value) for value in (run[0].arg("x"), run[0].arg("y")))
    copied = x.kernel is None
    if copied:
        _copy_kernel(work, x)
    source = work.columns(run[0].arg("y"))
    out = work.result(run[-1].output)
    assert x.kernel is not None and source.columns is not None
    channel, pitch = source.columns.pitch, l2.channel_stride(y.m)
    plan = kernel_product(work.target, x.kernel, x.m, x.k, y.m, Epilogue.of(run).scale)
    plan = choose_joint_shape(work.target, plan).reading(region=Region(0, channel, x.k * channel, x.k * channel))
    plan = plan.reading(after=work.follows(source, MatrixView.COLUMNS, unit="NE"))
    plan = plan.writing(region=Region(0, pitch, x.m * pitch, x.m * pitch))
    stay = ChainStay(x.m * pitch, 2 * x.m * y.m)
    out.writer, out.view = work.chain.add(plan, source=source.columns.stay, result=stay), MatrixView.ROWS
    out.rows = MatrixPlace(stay, pitch)
    out.copied = copied


def _copy_kernel(work: ChainWork, x: ChainMatrix) -> None:
    """Rows in L2 to scratch by a planar copy, which runs beside the cores' next task."""
    if x.rows is None or x.view is MatrixView.MAP:
        raise UnsupportedError("a kernel of other than rows in L2", code=Reason.LAYOUT)
    x.kernel = kernel_walk(work, x.m, x.k)
    size = x.m * x.rows.pitch
    plan = Plan(pe=COPY, w=x.k, c=x.m, patch=pe_patch(x.k, 1, operands=1), result=Destination(dma=x.kernel))
    plan = plan.reading(region=Region(0, x.rows.pitch, size, size)).sending(0)
    work.chain.apart.add(work.chain.add(plan, source=x.rows.use))


def input_softmax(work: ChainWork, op: Op) -> None:
    """Over the rows of an input, in its own form: map, powers, difference and result in one place, maxima apart."""
    x, out = work.matrix(op.arg("x")), work.result(op.output)
    if x.dram is None or out.dram is not None or x.rows is not None:
        raise UnsupportedError("softmax over the rows of a result in a chain", code=Reason.LAYOUT)
    m, k = x.m, x.k
    part = Fragment(work.context)
    whole = replace(work.context.tensor(op.arg("x")), n=1, c=1, h=m, w=k)
    rows_as_channels(part, whole, whole)
    minus = next(plan for plan in part.plans if plan.pe.kind is PeKind.BINARY)
    pitch, end = minus.result.region.row, minus.second.region.base
    stay, top = ChainStay(end, 2 * m * k), ChainStay(m * l2.UNIT, 2 * m)
    part.plans[-1] = part.plans[-1].leaving(minus.result.region, dma=None)
    for plan in part.plans:
        stays: dict[str, Use] = {}
        for side in (SOURCE, RESULT) if plan.pe.kind is not PeKind.BINARY else (SOURCE, SECOND, RESULT):
            base = plan.operand(side).region.base
            stays[side] = (stay, base) if base < end else (top, base - end)
        plan = plan.reading(after=plan.source.after & (After.FOLLOWS_NE | After.FOLLOWS_PE))
        out.writer = work.chain.add(plan, **stays)
    out.rows, out.view = MatrixPlace(stay, pitch, minus.result.region.base), MatrixView.MAP


def row_softmax(work: ChainWork, op: Op) -> None:
    """Over rows that are channels: maximum, difference, table and sum in the place of the scores.

    Their product with the reciprocal sums is written as a kernel, or in that place where the values are the kernel.
    """
    x, out = work.by_rows_of(op.arg("x")), work.result(op.output)
    if x.rows is None or x.rows.offset or x.view is not MatrixView.ROWS or x.rows.pitch != l2.channel_stride(x.k):
        raise UnsupportedError("softmax of other than scores in a chain", code=Reason.LAYOUT)
    product = op.output.only_user
    if product is None or out.dram is not None:
        raise UnsupportedError("a softmax that ends a chain", code=Reason.LAYOUT)
    m, k, place = x.m, x.k, x.rows.stay
    values, turns = row_vector(m)
    size = m * x.rows.pitch
    region = Region(0, x.rows.pitch, size, size)

    def reduce(operation: Planar, after: After) -> ChainStay:
        plan = Plan(pe=operation, w=k, c=m, patch=pe_patch(k, 1, operands=1))
        plan = plan.reading(region=region, after=after).writing(region=values, transposed=turns)
        stay = ChainStay(values.row, 2 * m, VECTOR)
        work.chain.add(plan, source=place, result=stay)
        return stay

    top = reduce(MAXIMUM, work.follows(x, MatrixView.ROWS, unit="NE"))
    if turns and not x.copied:
        patch = joint_patch(work.chain.plans[x.writer].shape[2])
        work.chain.plans[-1] = work.chain.plans[-1].but(patch=patch)
    minus, power = difference(k, 1, m).against(broadcast=Axes.W, transposed=turns), exponential(work.target, m, 1, k)
    minus = minus.reading(region=region).against(region=values).writing(region=region)
    minus, power = lock(minus, power)
    before, place = place, ChainStay(size, 2 * m * k, over=place)
    work.chain.add(minus, source=before, source2=top, result=place)
    power = power.reading(region=region, after=After.FOLLOWS_PE).writing(region=region)
    before, place = place, ChainStay(size, 2 * m * k, over=place)
    work.chain.add(power, source=before, result=place)
    total = reduce(RECIPROCAL_SUM, After.FOLLOWS_NE)
    scale = Plan(pe=BINARY["mul"], w=k, c=m)
    scale = scale.reading(broadcast=Axes.W, transposed=turns, region=values, after=After.FOLLOWS_PE)
    scale = scale.against(region=region).but(patch=pe_patch(k, 1, operands=2))
    stays: dict[str, Use] = {"source": total, "source2": place}
    if product.arg("y") in work.matrices:
        out.kernel = kernel_walk(work, m, k)
        scale = scale.sending(0, dma=out.kernel)
    else:
        place = stays["result"] = ChainStay(size, 2 * m * k, over=place)
        out.rows = MatrixPlace(place, x.rows.pitch)
        scale = scale.writing(region=region)
    out.writer, out.view = work.chain.add(scale, **stays), MatrixView.ROWS


def weighted_sum(work: ChainWork, op: Op) -> None:
    """x y of a softmax x: x is the kernel and the rows of y the map, or y the kernel and the columns of x the map."""
    x, y, out = work.matrix(op.arg("x")), work.matrix(op.arg("y")), work.result(op.output)
    if out.dram is not None:
        raise UnsupportedError("an attention that ends a chain", code=Reason.LAYOUT)
    if x.kernel is not None:
        _by_rows(work, x, y, out, op)
    else:
        _by_columns(work, op, y, out)


def _by_rows(work: ChainWork, x: ChainMatrix, y: ChainMatrix, out: ChainMatrix, op: Op) -> None:
    if y.rows is None or y.view is MatrixView.MAP:
        raise UnsupportedError("values of other than rows in L2", code=Reason.LAYOUT)
    assert x.kernel is not None
    pitch, size = work.pitch_for(op.output, y.k), y.m * y.rows.pitch
    plan = kernel_product(work.target, x.kernel, x.m, y.m, y.k, 1.0)
    plan = choose_joint_shape(work.target, plan).reading(region=Region(0, y.rows.pitch, size, size))
    plan = plan.writing(region=Region(0, pitch, x.m * pitch, x.m * pitch))
    stay = ChainStay(x.m * pitch, 2 * x.m * y.k)
    out.writer, out.view = work.chain.add(plan, source=y.rows.use, result=stay), MatrixView.ROWS
    out.rows = MatrixPlace(stay, pitch)


def _by_columns(work: ChainWork, op: Op, y: ChainMatrix, out: ChainMatrix) -> None:
    source = work.columns(op.arg("x"))
    assert y.kernel is not None and source.columns is not None
    m, channel = source.m, source.columns.pitch
    plan = kernel_product(work.target, y.kernel, y.k, y.m, m, 1.0).but(out_trans=work.read_by_rows(op.output))
    plan = choose_joint_shape(work.target, plan).reading(region=Region(0, channel, y.m * channel, y.m * channel))
    plan = plan.reading(after=work.follows(source, MatrixView.COLUMNS, unit="NE"))
    pitch = work.pitch_for(op.output, y.k) if plan.out_trans else l2.channel_stride(m)
    stay = ChainStay((m if plan.out_trans else y.k) * pitch, 2 * m * y.k)
    plan = plan.writing(region=Region(0, pitch, stay.size, stay.size))
    out.writer = work.chain.add(plan, source=source.columns.stay, result=stay)
    out.view = MatrixView.ROWS if plan.out_trans else MatrixView.COLUMNS
    place = MatrixPlace(stay, pitch)
    out.rows, out.columns = (place, None) if plan.out_trans else (None, place)
