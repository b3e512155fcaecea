"""Pipelined pairs (``locked-pairs``): a task runs patch by patch behind the other unit's task that makes its operand.

While the neural cores make a map, the planar engine can already work on the patches that are done, and the other way
round (docs/reference/engine-h13.md 12.1, ``Dependent``, with the pairs that Apple's programs show). Here every task
that goes element by element through a map that the task before it leaves in L2 is locked to it, and a dense sum over
channels alone too, where the price says that it gains. A convolution takes part if its kernels are all in the cores at
once. How much of a pair overlaps nobody has measured: pairs that no program shows are INFERRED, and have to gain more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from hexane.chips import Generation
from hexane.codegen.bare import bare, form_of
from hexane.codegen.geometry import joint_patch, joint_shape
from hexane.codegen.memory.hazards import FLAGS, meets, touched
from hexane.codegen.operands import RESULT, SOURCE, TaskOperand, held, operand_of, operands_of
from hexane.codegen.operations import PIXEL, UNHINTED, After, NeOp, PeKind, PeOp, ResultType, SecondSource, SourceType
from hexane.codegen.plan import Plan
from hexane.cost.kernel import passes

NOTE = "patch by patch behind the task before it"
FOLLOWS = {"NE": After.FOLLOWS_NE, "PE": After.FOLLOWS_PE}
"""By the unit that leads."""
LOCKED = After.FOLLOWS_NE | After.FOLLOWS_PE
UNSHOWN = 1.1
"""How much longer two tasks have to take one after the other than as a pair that no program shows: what a predicted
time of element-wise work is off (docs/timing-error.md, held out). A thinner gain is none."""

Pair = tuple[Plan, Plan]
Way = tuple[bool, int]
"""To lock two plans: whether the operands of the follower change places, and the patch, log2."""
Price = Callable[[Sequence[Plan]], float]
"""Microseconds of tasks one after the other, in whatever patches they go."""


@dataclass
class PairPolicy:
    """True where two tasks would gain as a pair, should all that they read and write stay in L2."""

    price: Price
    limits: Generation
    _known: dict[tuple[Plan, Plan], bool] = field(default_factory=dict)
    _by_form: dict[tuple[Hashable, Hashable], bool] = field(default_factory=dict)

    def __call__(self, leader: Plan, follower: Plan) -> bool:
        if not can_pipeline(leader, follower, self.limits):
            return False
        key = leader, follower
        if key not in self._known:
            form = form_of(leader), form_of(follower)
            if form not in self._by_form:
                first, second = _in_l2(bare(leader)), _in_l2(bare(follower))
                behind = second.reading(type=SourceType.RESIDENT, after=FOLLOWS[leader.unit])
                self._by_form[form] = _gains((first, second), (first, behind), self.price)
            self._known[key] = self._by_form[form]
        return self._known[key]


def pipeline_pairs(plans: list[Plan], locks: PairPolicy) -> int:
    """Lock every pair that can be and gains by it, first come first served; how many were locked."""
    count = 0
    ways: dict[tuple[Hashable, Hashable], Way | None] = {}
    free = True  # whether the task before leads or follows in no pair
    for i in range(1, len(plans)):
        leader, follower = plans[i - 1], plans[i]
        taken = bool(follower.source.after & LOCKED)
        if free and not taken and (i + 1 == len(plans) or not plans[i + 1].source.after & LOCKED):
            way = None
            if can_pipeline(leader, follower, locks.limits):
                key = form_of(leader), form_of(follower)
                if key not in ways:
                    ways[key] = _way(bare(leader), bare(follower), locks)
                way = ways[key]
            if way is not None:
                plans[i - 1 : i + 1] = _locked(leader, follower, way)
                count += 1
                free = False
                continue
        free = not taken
    return count


def _gains(apart: Pair, locked: Pair, price: Price) -> bool:
    return price(locked) * (1.0 if is_shown(*apart) else UNSHOWN) < price(apart)


def is_shown(leader: Plan, follower: Plan) -> bool:
    """True where programs of Apple's have such a pair: a table behind a planar sum or difference."""
    planar = leader.pe.kind is PeKind.BINARY and leader.pe.op is PeOp.ADD
    return planar and follower.ne.op is NeOp.BYPASS and bool(follower.table)


def _in_l2(plan: Plan) -> Plan:
    """The same task with all its operands and its result in L2."""
    source = plan.source._replace(dma=None, type=SourceType.RESIDENT, after=After.NOTHING)
    second = plan.second.at(plan.second.region)
    return plan.but(source=source, second=second, result=plan.result.at(plan.result.region))


def _way(leader: Plan, follower: Plan, locks: PairPolicy) -> Way | None:
    """The way to lock two plans, in the first shape that the room about them allows; None where it cannot be or gains
    nothing; they are such that may be a pair."""
    if leader.tile < leader.hout or follower.tile < follower.hout:
        return None
    if leader.result.type is not ResultType.STAYS:
        return None
    exchanged = not _hands_over(leader, follower)
    second = _exchanged(follower) if exchanged else follower
    if second is None or not _hands_over(leader, second):
        return None
    room = _passing(leader) + _passing(follower)
    for s in _patches(leader, follower):
        pair = _locked(leader, follower, (exchanged, s))
        if pair[1].source.after & After.ANYTHING:
            return None
        if sum(map(_passing, pair)) <= room and _apart(*pair):
            return (exchanged, s) if _gains((leader, follower), pair, locks.price) else None
    return None


def _locked(leader: Plan, follower: Plan, way: Way) -> Pair:
    """Both plans as a pair."""
    exchanged, s = way
    second = _exchanged(follower) if exchanged else follower
    assert second is not None
    second = second.reading(after=second.source.after & ~FLAGS[leader.unit][1] | FOLLOWS[leader.unit])
    if not is_shown(leader, follower):
        second = second.inferred(NOTE)
    return _in_patch(leader, s), _in_patch(second, s)


def _patches(leader: Plan, follower: Plan) -> Iterable[int]:
    """Those that both tasks can share: those of Apple's pairs, and those that the neural task has alone."""
    alone = (follower if leader.unit == "PE" else leader).shape[2]
    return dict.fromkeys((joint_shape(leader.wout, leader.hout), alone))


def _in_patch(plan: Plan, s: int) -> Plan:
    name, patch = ("patch", joint_patch(s)) if plan.unit == "PE" else ("shape", (s, s, s))
    return plan if getattr(plan, name) == patch else plan.but(**{name: patch})


def can_pipeline(leader: Plan, follower: Plan, limits: Generation) -> bool:
    """True where two tasks may be a pair, should the map between them stay in L2."""
    return leader.unit != follower.unit and _leads(leader, limits) and _can_follow(follower, limits)


def _leads(plan: Plan, limits: Generation) -> bool:
    """True where the result is a whole map that is made patch by patch."""
    if plan.result.staged or plan.groups > 1:
        return False
    if plan.unit == "PE":
        return plan.pe.elementwise and not (plan.source.transposed or plan.second.transposed or plan.result.transposed)
    if plan.out_trans or plan.small_source or plan.fat_tile or plan.window.ox > 1:
        return False
    return _in_one_pass(plan, limits)


def _can_follow(plan: Plan, limits: Generation) -> bool:
    """True where each patch of the result needs that patch of the first operand alone."""
    if plan.source.staged or plan.groups > 1:
        return False
    if plan.unit == "PE":
        transposed = plan.source.transposed or plan.second.transposed or plan.result.transposed
        return plan.pe.elementwise and not transposed and not plan.source.broadcast
    if plan.window != PIXEL or plan.out_trans or plan.small_source or plan.fat_tile:
        return False
    computed = plan.kernel_buffer is not None
    return plan.ne.op in (NeOp.BYPASS, NeOp.SUM) and not computed and _in_one_pass(plan, limits)


def _in_one_pass(plan: Plan, limits: Generation) -> bool:
    """True where the cores hold all kernels at once, so that a patch is done for all channels before the next one."""
    if plan.ne.op is not NeOp.SUM or plan.unicast or plan.ne.ones:
        return True
    return passes(2.0 * plan.c * plan.window.taps, plan.cout, limits) == 1


def _hands_over(leader: Plan, follower: Plan) -> bool:
    """True where the follower's first operand is the leader's result, all of it."""
    if follower.source.type is not SourceType.RESIDENT:
        return False
    result, read = operand_of(leader, RESULT), operand_of(follower, SOURCE)
    return result.extents == read.extents and result.element == read.element and result.region == read.region


def _exchanged(plan: Plan) -> Plan | None:
    """A sum, product, maximum or minimum whose operands have changed places; None for other tasks."""
    if plan.pe.kind is not PeKind.BINARY or plan.pe.second is not SecondSource.PLAIN or plan.pe.op is PeOp.SQUARE:
        return None
    if plan.second.dma is not None or plan.pe.relu_second or plan.source.type is SourceType.DMA_KEEP:
        return None
    other = plan.reading(region=plan.second.region, broadcast=plan.second.broadcast).against(
        region=plan.source.region, broadcast=plan.source.broadcast
    )
    if plan.source.type is SourceType.DMA_STREAM:
        other = other.against(dma=plan.source.dma, hint=plan.source.hint).reading(dma=None, hint=UNHINTED)
    return other.reading(type=SourceType.RESIDENT)


def _passing(plan: Plan) -> int:
    """Bytes of the windows, rings and buffers of a task, some of which go by its patch."""
    streams = plan.source.type is SourceType.DMA_STREAM or plan.result.type is ResultType.DMA_STREAM
    if not streams and plan.second.dma is None:
        return 0
    return sum(held(plan, end) for end in operands_of(plan, 0) if end.passes)


def _apart(leader: Plan, follower: Plan) -> bool:
    """True where both may run at once: nothing but the map between them is written by one and touched by the other."""
    before = touched(leader, 0)
    writes = touched(follower, 1).result
    others = [end for end in operands_of(follower, 1) if end.side not in (SOURCE, RESULT)]
    for end in others:
        box = _box(follower, end)
        if meets(box, [before.result]) or (end.passes and meets(box, before.sources)):
            return False
    if meets(writes, before.sources):
        return False
    return not meets(writes, [before.result]) or follower.result.region == leader.result.region


def _box(plan: Plan, end: TaskOperand) -> tuple[int, int]:
    return end.region.base, end.region.base + held(plan, end)
