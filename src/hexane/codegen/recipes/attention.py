"""Attention of one head on computed matrices: what is between the products stays in L2.

Source: docs/reference/engine-h13.md 13.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.geometry import joint_patch
from hexane.codegen.operations import BINARY, MAXIMUM, After, Axes, WriteHint
from hexane.codegen.plan import Destination, Plan, Region
from hexane.codegen.recipes import matmul
from hexane.codegen.recipes.linear import MatrixRows, as_rows
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.softmax import row_chain, row_vector
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op
from hexane.lowering.fusion import Epilogue, follows, fused_ops
from hexane.rounding import align


def one_head(op: Op, context: Context) -> tuple[Op, ...] | None:
    """matmul, factor, softmax over the last axis, matmul: all between them used once, all operands computed."""
    first = fused_ops(op, context.on)
    if op.inputs["y"].is_constant or any(o.type != "mul" for o in first[1:]):
        return None
    soft = follows(first[-1], "softmax")
    if soft is None or soft.arg("axis") not in (-1, len(soft.output.shape) - 1):
        return None
    second = follows(soft, "matmul")
    if second is None or second.arg("x") is not soft.output or second.arg("y").is_constant:
        return None
    return (*first, soft, second)


@recipe("matmul", match=one_head, rank=4)
def attention(ops: Sequence[Op], context: Context) -> Fragment:
    """softmax(s q k^T) v of one head: nine tasks."""
    op, last = ops[0], ops[-1]
    need_fp16(op.inputs["x"], op.inputs["y"], last.arg("y"))
    if op.arg("transpose_x") or last.arg("transpose_x") or last.arg("transpose_y") or not op.arg("transpose_y"):
        raise UnsupportedError("attention with other transpositions than q k^T and p v", code=Reason.LAYOUT)
    tensors = [context.tensor(v) for v in (op.inputs["x"], op.inputs["y"], last.arg("y"), last.output)]
    if any(t.n * t.c != 1 for t in tensors):
        raise UnsupportedError("attention of several heads", hint="each product runs head by head", code=Reason.BATCH)
    q, k, v, out = (as_rows(t) for t in tensors)
    lanes = matmul.lanes_of(context.target, q.m)
    one_pass = q.m <= context.limits.cores * lanes or context.choices.steps_kernels
    if q.m % context.limits.cores or q.m < 2 * context.limits.cores or not one_pass or v.m % 16:
        raise UnsupportedError(f"attention over {q.m} queries in one block", code=Reason.EXTENT)
    fragment = Fragment(context)
    _head(fragment, q, k, v, out, Epilogue.of(ops[:-2]).scale)
    return fragment


def _head(fragment: Fragment, q: MatrixRows, k: MatrixRows, v: MatrixRows, out: MatrixRows, scale: float) -> None:
    m, n, lanes = q.m, k.m, matmul.lanes_of(fragment.target, q.m)
    vector, turned_values = row_vector(m)
    line, channel = vector.row, l2.channel_stride(n)
    size = m * channel
    odd = l2.odd_channel_stride(n)
    columns = k.k * odd
    region = Region(line, channel, size, size)
    if (
        line + size + columns + n * l2.ne_window(k.k) > fragment.limits.l2_bytes
        or max(q.k, n) * lanes * 2 > fragment.limits.kernel_bytes_per_core
    ):
        raise UnsupportedError(f"attention of {m} x {n} scores does not fit the engine's L2 buffer", code=Reason.MEMORY)
    staged = matmul.stage(fragment, q, lanes, transposed=False, planar=True)
    copy = fragment.plans[0]

    turn = tasks.copy_plan(fragment.target, n, 1, k.k, out_trans=True).reading(dma=k.walk())
    turn = tasks.choose_shape(fragment.target, turn)
    base = line + size
    turn, end = tasks.ne_source(fragment.target, turn, base + columns, after=After.NE)
    turn = turn.waiting(matmul.hazard(base + columns, end, copy))
    target = Region(base, odd, columns, columns)
    fragment.stay(turn, target, after=After.NE | matmul.hazard(base, base + columns, copy))

    scores = matmul.kernel_product(fragment.target, staged, m, q.k, n, scale).but(dtid=0)
    scores = matmul.choose_joint_shape(fragment.target, scores)
    scores = tasks.resident(scores, target, After.FOLLOWS_NE)
    scores = fragment.stay(scores, region, after=After.NOTHING)

    top = Plan(pe=MAXIMUM, w=n, c=m, result=Destination(transposed=turned_values))
    if turned_values:
        top = top.but(patch=joint_patch(scores.shape[2]))
    top = tasks.resident(top, region, After.FOLLOWS_NE)
    fragment.stay(top, vector, after=After.NOTHING)
    row_chain(fragment, (m, n), region, region, vector, After.PE_RESULT)

    weights = Plan(pe=BINARY["mul"], w=n, c=m).reading(broadcast=Axes.W, transposed=turned_values)
    row = align(2 * lanes * n, 64)
    total = m // lanes * row
    walk = replace(staged, row=row, plane=row, depth=total, group=total)
    if n != q.k:
        walk = replace(walk, buffer=fragment.workspace(total))
    weights = weights.writing(dma=walk, hint=WriteHint.ALLOC if n == q.k else None)
    weights = tasks.resident(weights, vector, After.FOLLOWS_PE, second=region)
    fragment.send(weights, line + size, explicit=False, after=After.NOTHING)
    last = matmul.ComputedProduct(len(fragment.plans) - 1, walk, v, out, m, n, lanes, settled=not turned_values)
    matmul.compute(fragment, last)
