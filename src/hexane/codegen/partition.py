"""Cut a graph into runs for the engine and for the host, with a reason at every host op."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from types import MappingProxyType

from hexane.codegen import moves
from hexane.codegen.context import Context
from hexane.codegen.fragment import ELEMENT_BYTES, Tensor
from hexane.codegen.select import Choice, select
from hexane.codegen.states import order
from hexane.errors import GraphError, Reason, UnsupportedError
from hexane.graph import effects
from hexane.graph.ir import Function, Op, Value

MOST_CONSTANT_BYTES = 2 << 30  # of one program (limits 4)


@dataclass(frozen=True)
class RecipeUnit:
    """One recipe's ops, or one op of the host with the reason why it is there."""

    ops: tuple[Op, ...]
    choice: Choice | None
    reason: str
    code: str = ""

    @property
    def on_engine(self) -> bool:
        return self.choice is not None


@dataclass(frozen=True)
class SegmentRun:
    """Units of one kind in order, with the values that go in and come out."""

    units: tuple[RecipeUnit, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def on_engine(self) -> bool:
        return self.units[0].on_engine

    @property
    def ops(self) -> list[Op]:
        return [op for unit in self.units for op in unit.ops]

    def tensors(self, context: Context) -> dict[str, Tensor]:
        """Results of the run's ops, each as a plain tensor in DRAM.

        What only the tasks of one unit see need not be a tensor: a signal may be longer than one within its chain.
        """
        surfaces = {}
        for unit in self.units:
            for op in unit.ops:
                for value in op.outputs:
                    if not fits_engine(value):
                        continue
                    try:
                        surfaces[context.home(value)] = context.surface(value)
                    except UnsupportedError:
                        if op is unit.ops[-1] or any(user not in unit.ops for user in value.users):
                            raise
        return surfaces

    def tasks_left(self, context: Context) -> int:
        """Tasks of an engine's run when copies that need none are gone (``moves``); nothing is changed."""
        fragments = [unit.choice.fragment.copied() for unit in self.units if unit.choice is not None]
        names = map(context.home, self.inputs), map(context.home, self.outputs)
        moves.remove(fragments, self.tensors(context), *names, context.on)
        return sum(len(fragment.plans) for fragment in fragments)


def units_of(
    function: Function, context: Context, *, strict: bool = False, on_host: Mapping[str, str] = MappingProxyType({})
) -> list[RecipeUnit]:
    """One unit per op or fused run, at the place of its last op; ops of ``on_host`` stay there, with the reason."""
    done: set[Op] = set()
    at_last: dict[Op, RecipeUnit] = {}
    for op in function.ops:
        if op in done:
            continue
        try:
            if effects.touched(op):
                raise UnsupportedError("states are kept by the host", code=Reason.STATE)
            if op.inside is not None:
                raise UnsupportedError(op.arg("reason"))
            if _asked_for_nan(op):
                raise UnsupportedError("its result is asked for NaN, which the engine's functions do not give")
            choice = select(op, context, strict=strict)
            for fused in choice.ops if on_host else ():
                if fused.describe() in on_host:
                    raise UnsupportedError(on_host[fused.describe()])
            if any(fused in done for fused in choice.ops):
                raise UnsupportedError("another op took a part of it")
            unit = RecipeUnit(choice.ops, choice, choice.recipe.doc)
        except UnsupportedError as error:
            unit = RecipeUnit((op,), None, error.message, error.code)
        done.update(unit.ops)
        at_last[unit.ops[-1]] = unit
    return [at_last[op] for op in function.ops if op in at_last]


def _asked_for_nan(op: Op) -> bool:
    """True where IsNaN, or a comparison of the result with itself, looks at the result, through casts too.

    A row of -inf has a softmax on the engine, and none in IEEE.
    """
    return any(
        user.type == "onnx.IsNaN"
        or (user.type in ("equal", "not_equal") and user.inputs["x"] is user.inputs["y"])
        or (user.type == "cast" and _asked_for_nan(user))
        for value in op.outputs
        for user in value.users
    )


def runs_of(function: Function, units: Sequence[RecipeUnit], context: Context) -> list[SegmentRun]:
    """Units gathered into as few runs as a greedy schedule finds; the order is the graph's where there is a choice."""
    maker: dict[Value, int] = {}
    for i, unit in enumerate(units):
        for op in unit.ops:
            maker.update(dict.fromkeys(op.outputs, i))
    before: list[set[int]] = [{maker[v] for v in _needs(unit.ops) if v in maker} - {i} for i, unit in enumerate(units)]
    for earlier, later in effects.order([unit.ops for unit in units]):
        before[later].add(earlier)
    for reader, update in order(context.homes, [unit.ops for unit in units]):
        before[update].add(reader)
    waits, feeds = [len(needed) for needed in before], [[] for _ in units]  # type: list[int], list[list[int]]
    for i, needed in enumerate(before):
        for j in needed:
            feeds[j].append(i)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for i, unit in enumerate(units):
        if not waits[i]:
            heapq.heappush(ready[unit.on_engine], i)
    groups: list[list[RecipeUnit]] = []
    reads = any(effects.touched(op) for i in ready[False] for op in units[i].ops)  # first, or they cut the engine's run
    engine = bool(ready[True]) and not reads
    while ready[True] or ready[False]:
        if not ready[engine]:
            engine = not engine
        group = []
        while ready[engine]:
            i = heapq.heappop(ready[engine])
            group.append(units[i])
            for j in feeds[i]:
                waits[j] -= 1
                if not waits[j]:
                    heapq.heappush(ready[units[j].on_engine], j)
        groups.append(group)
    if any(waits):
        raise GraphError("ops wait for each other in a circle: a run of fused ops spans a change of a state")
    return [run for group in groups for run in _bounded(group, function, context)]


def _needs(ops: Iterable[Op]) -> Iterable[Value]:
    """Operands, those of inner blocks included."""
    for op in ops:
        yield from op.operands()
        for block in op.blocks:
            yield from _needs(block.ops)
            yield from block.outputs


def _bounded(group: list[RecipeUnit], function: Function, context: Context) -> list[SegmentRun]:
    """The group as one run, or as halves when a program of the target cannot have its surfaces, tasks or constants."""
    target = context.target
    run = _close(group, function)
    surfaces = len({*map(context.home, run.inputs), *map(context.home, run.outputs)})
    tasks = sum(len(unit.choice.fragment.plans) for unit in group if unit.choice is not None)
    if tasks > target.most_tasks:
        tasks = run.tasks_left(context)
    fits = surfaces <= target.most_surfaces and tasks <= target.most_tasks
    if not run.on_engine or (fits and _constant_bytes(group) <= MOST_CONSTANT_BYTES):
        return [run]
    if len(group) == 1:
        code, reason = (
            Reason.SURFACES,
            f"{surfaces} inputs and outputs; the engine has {target.most_surfaces} channels for them",
        )
        if tasks > target.most_tasks:
            code, reason = Reason.EXTENT, f"{tasks} tasks; a program of {target.name} has room for {target.most_tasks}"
        return [_close([RecipeUnit((op,), None, reason, code)], function) for op in run.ops]
    at = _cut(group, tasks, target.most_tasks) if tasks > target.most_tasks else len(group) // 2
    return _bounded(group[:at], function, context) + _bounded(group[at:], function, context)


SPARE = 0.95
"""Of a program's tasks that a cut counts on: which copies vanish on either side is known only behind it."""


def _cut(group: list[RecipeUnit], tasks: int, most: int) -> int:
    """Units of the first part where a group of too many ``tasks`` is cut: where the fewest bytes cross, among the cuts
    that need no more programs; the middle if there is none."""
    counts = [len(unit.choice.fragment.plans) if unit.choice is not None else 0 for unit in group]
    scale = tasks / max(sum(counts), 1)
    programs = ceil(tasks / most)
    left_most, right_most = (SPARE * most * count for count in (programs // 2, programs - programs // 2))
    last = {value: i for i, unit in enumerate(group) for value in _needs(unit.ops)}
    crossing, ends = 0, [0] * (len(group) + 1)
    best, middle = None, len(group) // 2
    before = 0.0
    for at, unit in enumerate(group[:-1], 1):
        before += counts[at - 1] * scale
        for value in (value for op in unit.ops for value in op.outputs):
            if last.get(value, 0) >= at and fits_engine(value):
                size = prod(value.shape) * ELEMENT_BYTES[value.dtype]
                crossing += size
                ends[last[value]] += size
        crossing -= ends[at - 1]  # what this unit was the last to read
        if before <= left_most and tasks - before <= right_most:
            best = min(best or (crossing, abs(at - middle), at), (crossing, abs(at - middle), at))
    return middle if best is None else best[2]


def _constant_bytes(group: list[RecipeUnit]) -> int:
    plans = [plan for unit in group if unit.choice is not None for plan in unit.choice.fragment.plans]
    return sum(len(plan.kernel.data) for plan in plans if plan.kernel is not None)


def _close(group: list[RecipeUnit], function: Function) -> SegmentRun:
    inside = [op for unit in group for op in unit.ops]
    members = set(inside)
    inner = {value for op in inside for value in op.outputs}
    needed = dict.fromkeys(v for v in _needs(inside) if v not in inner and not v.is_constant and _outer(v, members))
    inputs = dict.fromkeys([*(v for v in function.inputs if v in needed), *needed])
    results = set(function.outputs)
    outputs = [
        value
        for op in inside
        for value in op.outputs
        if value in results or any(_top(user, members) is None for user in value.users)
    ]
    return SegmentRun(tuple(group), tuple(inputs), tuple(outputs))


def _top(op: Op, members: set[Op]) -> Op | None:
    """The op itself or the member that holds it in a block, None outside."""
    current: Op | None = op
    while current is not None:
        if current in members:
            return current
        current = current.block.owner if current.block is not None else None
    return None


def _outer(value: Value, members: set[Op]) -> bool:
    """True where a value comes from outside of all blocks of the members."""
    block = value.op.block if value.op is not None else value.block
    owner = block.owner if block is not None else None
    return owner is None or _top(owner, members) is None


def fits_engine(value: Value) -> bool:
    return value.dtype in ELEMENT_BYTES
