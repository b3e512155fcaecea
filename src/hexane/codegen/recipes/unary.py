"""One operand: tables, ReLU and copies in the neural engine; abs and square in the planar engine (§8.2, §10, §13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor, narrower_views, table_kernel
from hexane.codegen.geometry import pe_patch
from hexane.codegen.operations import ABSOLUTE, COPY, SQUARE, After, Element, NeNonlinear, NeOp, Planar
from hexane.codegen.plan import Plan
from hexane.codegen.recipes.registry import fp16, recipe, x_and_result
from hexane.errors import UnsupportedError
from hexane.isa.numbers import fp16_value
from hexane.lowering.functions import FUNCTIONS, LN_2, lookup_table
from hexane.lowering.fusion import table_name

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op


def set_table(plan: Plan, name: str, *args: float) -> Plan:
    """Give an NE task without weights its table: one copy that all cores share."""
    plan = plan.through(name)
    cores = min(1 << plan.cores_log2, plan.cout)  # cores without a channel have no stream
    return plan.but(kernel=table_kernel(lookup_table(name, *args), cores, name))


def ne_stream(target: Target, plan: Plan, x: Tensor, y: Tensor, base: int = 0) -> Plan:
    """DRAM to DRAM: source at ``base``, result right behind it."""
    views = (v for v in narrower_views(x, y) if v[0].c >= 16 and x.shape == y.shape)
    return _first_fitting(plan, chain([(x, y)], views), lambda plan, a, b: _ne_stream(target, plan, a, b, base))


def _first_fitting(plan: Plan, views: Iterable[tuple[Tensor, ...]], placed: Callable[..., Plan]) -> Plan:
    """The plan over the first view whose rows fit L2."""
    for i, tensors in enumerate(views):
        if i:
            c, h = tensors[0].c, tensors[0].h
            plan = plan.but(c=c, cout=c, h=h, hout=h, tile=h)
        try:
            return placed(plan, *tensors)
        except UnsupportedError as error:
            refused = error
    raise refused


def _ne_stream(target: Target, plan: Plan, x: Tensor, y: Tensor, base: int) -> Plan:
    plan = tasks.choose_shape(target, plan.reading(dma=x.dma()).writing(dma=y.dma()))
    plan, end = tasks.ne_source(target, plan, base)
    return tasks.streams_out(target, plan, end)


def copy_of(target: Target, x: Tensor, **settings: Any) -> Plan:
    return tasks.copy_plan(target, x.c, x.h, x.w, groups=x.n, element=Element.of(x.element), **settings)


@recipe("relu")
def relu(ops: Sequence[Op], context: Context) -> Fragment:
    """relu: one neural engine copy with ReLU."""
    (op,) = ops
    x, y = x_and_result(op, context)
    fragment, plan = Fragment(context), copy_of(context.target, x)
    plan = plan.computing(nonlinear=NeNonlinear.RELU)
    fragment.add(ne_stream(context.target, plan, x, y))
    return fragment


@recipe(*FUNCTIONS)
def table_function(ops: Sequence[Op], context: Context) -> Fragment:
    """Table functions: one neural engine copy through a 33-node table; log adds a planar scale by ln 2."""
    op = ops[0]
    x, y = x_and_result(op, context)
    function = FUNCTIONS[op.type]
    name = table_name(op)
    fragment, plan = Fragment(context), copy_of(context.target, x)
    plan = plan.computing(post_scale=fp16_value(function.scale))
    epsilon = fp16(op.arg("epsilon")) if function.epsilon else 0.0
    if epsilon:
        plan = plan.computing(op=NeOp.SUM, acc_bias=epsilon).but(power_category=1)
    plan = set_table(plan, name)
    if op.type == "log":
        return _log(fragment, plan, x, y)
    fragment.add(ne_stream(context.target, plan, x, y))
    return fragment


def _log(fragment: Fragment, plan: Plan, x: Tensor, y: Tensor) -> Fragment:
    """log2, then times ln 2: the map between them stays in L2 where it fits, else it goes through scratch."""
    scale = Plan(pe=Planar(scale=fp16_value(LN_2)), w=x.w, h=x.h, c=x.c, groups=x.n)
    region = l2.planar_map(x.c, x.h, x.w)
    size = x.h * region.row
    if x.n == 1 and 2 * size + x.h * l2.MOST_PAD + l2.RING_ROOM <= fragment.limits.l2_bytes:
        plan = plan.reading(dma=x.dma())
        plan, end = fragment.bring(plan, size)
        plan = fragment.stay(plan, region)
        scale = scale.writing(dma=y.dma()).but(patch=pe_patch(x.w, x.h, operands=1))
        scale = tasks.resident(scale, region, After.NE_RESULT)
        scale = fragment.send(scale, end, explicit=False, after=After.NOTHING)
        return fragment
    middle = fragment.tensor(*x.shape)
    fragment.add(ne_stream(fragment.target, plan, x, middle))
    fragment.add(pe_stream(fragment.target, scale, middle, y))
    return fragment


def pe_stream(target: Target, plan: Plan, x: Tensor, y: Tensor) -> Plan:
    """DRAM to DRAM in the planar engine, one operand."""
    views = narrower_views(x, y) if x.shape == y.shape else ()
    return _first_fitting(plan, chain([(x, y)], views), lambda plan, a, b: _pe_stream(target, plan, a, b))


def _pe_stream(target: Target, plan: Plan, x: Tensor, y: Tensor) -> Plan:
    plan = plan.reading(dma=x.dma(), element=Element.of(x.element)).writing(dma=y.dma(), element=Element.of(y.element))
    plan, end = tasks.pe_source(plan, 0)
    return tasks.fit_pe(target, tasks.streams_out(target, plan, end))


PLANAR = {"abs": ABSOLUTE, "square": SQUARE, "identity": COPY}


@recipe(*PLANAR)
def planar_function(ops: Sequence[Op], context: Context) -> Fragment:
    """abs, square, identity: one planar engine task."""
    op = ops[0]
    x, y = x_and_result(op, context)
    fragment = Fragment(context)
    fragment.add(pe_stream(context.target, Plan(pe=PLANAR[op.type], w=x.w, h=x.h, c=x.c, groups=x.n), x, y))
    return fragment


@recipe("sign")
def sign(ops: Sequence[Op], context: Context) -> Fragment:
    """sign: one neural engine copy through a step table of three constants."""
    (op,) = ops
    x, y = x_and_result(op, context)
    fragment, plan = Fragment(context), copy_of(context.target, x)
    plan = set_table(plan, "sign")
    fragment.add(ne_stream(context.target, plan, x, y))
    fragment.inferred("a step table that Apple's compiler has not shown")
    return fragment
