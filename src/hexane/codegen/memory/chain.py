"""Places of a chain of tasks whose results all stay in L2, and what each task waits for, as Apple's compiler has them.

Source: docs/reference/engine-h13.md 7 and programs of several layers for H14: row values first, then results by their
data times their life, each at the lowest address that is free; what only passes through stands behind the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hexane.codegen import l2
from hexane.codegen.memory.hazards import FLAGS, FOLLOWS, LOADS, Touched, meets, touched
from hexane.codegen.operands import RESULT, SECOND, SOURCE, held, operands_of
from hexane.codegen.operations import After, PeKind, SourceType
from hexane.codegen.plan import Plan
from hexane.errors import Reason, UnsupportedError
from hexane.rounding import align

KERNEL_BUFFER = 0x400
"""Bytes that the buffer of a result that is a kernel takes."""
KINDS = VECTOR, KEPT, LOADED = range(3)
"""Order of placing: results of reductions, other results, sources that the task which brings them keeps."""


@dataclass(eq=False)
class ChainStay:
    """A result, or a kept source, in L2: bytes with pads and without; ``over``: the stay in whose place it is written.

    ``neural``: the cores write it. ``follows``: its writer goes patch by patch behind the task before. ``beside``: how
    many tasks of the cores before its writer go patch by patch behind each other, the first one not counted.
    """

    size: int
    data: int
    kind: int = KEPT
    over: ChainStay | None = None
    neural: bool = False
    follows: bool = False
    beside: int = 0
    uses: list[int] = field(default_factory=list)
    base: int = 0

    @property
    def root(self) -> ChainStay:
        """The first stay in the same place."""
        return self if self.over is None else self.over.root


Use = ChainStay | tuple[ChainStay, int]
"""A stay, or a stay and the bytes from its base."""


@dataclass
class _Place:
    """All stays of one place."""

    stays: list[ChainStay]

    def __post_init__(self) -> None:
        self.first = min(use for stay in self.stays for use in stay.uses)
        self.last = max(use for stay in self.stays for use in stay.uses)
        self.size = max(stay.size for stay in self.stays)
        self.rank = max(stay.data * (max(stay.uses) - min(stay.uses)) for stay in self.stays)

    def meets(self, other: _Place, *, in_rows: bool) -> bool:
        """True where both live at one time; a task that follows patch by patch runs beside the one before it.

        ``in_rows``: and beside all of a row of followers, as convolutions are taken.
        """
        a, b = sorted((self, other), key=lambda place: place.first)
        stay = b.stays[0]
        return b.first <= a.last + max(stay.follows, stay.beside if in_rows else 0)

    def put(self, others: Sequence[_Place], room: int, *, in_rows: bool = True) -> None:
        at = 0
        meeting = [o for o in others if self.meets(o, in_rows=in_rows)]
        for base, end in sorted((o.stays[0].base, o.stays[0].base + o.size) for o in meeting):
            if base - at > self.size:
                break
            at = max(at, end)
        if at + self.size > room and in_rows:
            self.put(others, room, in_rows=False)
            return
        if at + self.size > room:
            raise UnsupportedError("a chain whose results do not fit the engine's L2 buffer", code=Reason.MEMORY)
        for stay in self.stays:
            stay.base = at


@dataclass
class ChainTasks:
    """The tasks of a chain, and which of their operands are stays; the others pass through L2, of ``room`` bytes."""

    room: int
    plans: list[Plan] = field(default_factory=list)
    uses: dict[tuple[int, str], tuple[ChainStay, int]] = field(default_factory=dict)
    """By task and side: the stay, and bytes from its base."""
    apart: set[int] = field(default_factory=set)
    """Tasks whose result passes to scratch beside the next ones, up to the one that writes a kernel again."""

    def add(self, plan: Plan, **stays: Use) -> int:
        """Append a task whose operands are stays by side (``source``, ``source2``, ``result``); its number."""
        index = len(self.plans)
        self.plans.append(plan)
        for side, operand in stays.items():
            stay, offset = operand if isinstance(operand, tuple) else (operand, 0)
            stay.uses.append(index)
            self.uses[index, side] = stay, offset
        if RESULT in stays:
            stay = self.uses[index, RESULT][0]
            stay.neural = plan.unit == "NE"
            stay.follows |= stay.kind is KEPT and bool(plan.source.after & (After.FOLLOWS_NE | After.FOLLOWS_PE))
            stay.beside = self._followers()
        return index

    def _followers(self) -> int:
        """Number of last tasks that follow each other patch by patch, all of the cores."""
        count = 0
        for plan in reversed(self.plans):
            if plan.unit != "NE" or After.FOLLOWS_NE not in plan.source.after:
                break
            count += 1
        return count

    def settle(self) -> None:
        """Give every operand its address, and every task its waits; the first waits for what was before."""
        places = self._places()
        for index, plan in enumerate(self.plans):
            for side in (SOURCE, SECOND, RESULT):
                use = self.uses.get((index, side))
                if use is not None:
                    plan = plan.on(side, region=plan.operand(side).region.at(use[0].base + use[1]))
            self.plans[index] = plan if index in self.apart else self._streams(index, plan, places)
        for index in self.apart:
            self._kernel_apart(index, places)
        self._drop_locks()
        wait(self.plans)
        for index, (plan, after) in enumerate(zip(self.plans, self.plans[1:])):
            waits = after.source.type is not SourceType.RESIDENT or after.source.after or takes_kernel(after, plan)
            beside = plan.unit != after.unit and not waits and after.second.dma is None
            self.plans[index] = plan.but(holds=not plan.result.staged, goes_beside=beside)
        self.plans[0] = self.plans[0].reading(after=After.ANYTHING).writing(after=After.ANYTHING)

    def _places(self) -> list[_Place]:
        roots: dict[ChainStay, list[ChainStay]] = {}
        for stay, _ in self.uses.values():
            mine = roots.setdefault(stay.root, [])
            if stay not in mine:
                mine.append(stay)
        places = [_Place(stays) for stays in roots.values()]
        places.sort(key=lambda p: (p.stays[0].kind, -p.rank, not p.stays[0].neural, p.first))
        for i, place in enumerate(places):
            place.put(places[:i], self.room)
        return places

    def _streams(self, index: int, plan: Plan, places: Sequence[_Place]) -> Plan:
        """Places of streamed operands behind all that is live: sources, then the result."""
        at = max((p.stays[0].base + p.size for p in places if p.first <= index <= p.last), default=0)
        for end in operands_of(plan, index):
            if (index, end.side) in self.uses or (end.side == SECOND and plan.second.dma is None):
                continue
            if end.side == SECOND and plan.pe.kind is PeKind.BINARY:
                at = l2.second_operand_base(at)
            plan = plan.on(end.side, region=end.region.at(at))
            at += align(held(plan, end), l2.UNIT)
        if at > self.room:
            raise UnsupportedError("a chain whose tasks do not fit the engine's L2 buffer", code=Reason.MEMORY)
        return plan

    def _kernel_apart(self, index: int, places: Sequence[_Place]) -> None:
        """Behind all that is live from a kernel's task to that of the next kernel, the buffer of that one too."""
        plan, rest = self.plans[index], range(index + 1, len(self.plans))
        last = next((i for i in rest if is_kernel(self.plans[i])), index)
        at = max((p.stays[0].base + p.size for p in places if p.first <= last and p.last >= index), default=0)
        if last > index:
            at = max(at, self.plans[last].result.region.base + KERNEL_BUFFER)
        self.plans[index] = plan.on(RESULT, region=plan.result.region.at(at))
        if at + KERNEL_BUFFER > self.room:
            raise UnsupportedError("a chain whose tasks do not fit the engine's L2 buffer", code=Reason.MEMORY)

    def _drop_locks(self) -> None:
        """No task goes beside one whose operands it writes over, unless both write the same place."""
        latest: dict[str, int] = {}
        for index, plan in enumerate(self.plans):
            for unit, flag in FOLLOWS.items():
                if flag not in plan.source.after | plan.second.besides:
                    continue
                before = latest[unit]
                mine, theirs = touched(plan, index), touched(self.plans[before], before)
                places = [self.uses.get((i, RESULT), (None, 0))[0] for i in (before, index)]
                same = all(places) and places[0].root is places[1].root  # type: ignore[union-attr]
                if not same and meets(mine.result, theirs.sources):
                    plan = plan.reading(after=plan.source.after & ~flag).against(besides=plan.second.besides & ~flag)
                    self.plans[index] = plan
            latest[plan.unit] = index


def is_kernel(plan: Plan) -> bool:
    """True where a task writes a kernel to scratch."""
    return plan.result.dma is not None and plan.result.dma.interleave > 1


def takes_kernel(plan: Plan, writer: Plan) -> bool:
    """True where a task's kernel is what another writes."""
    return plan.kernel is not None and writer.result.dma is not None and plan.kernel.source == writer.result.dma.buffer


def wait(plans: list[Plan]) -> None:
    """Waits of each task, from the regions that it and the last task of either unit touch."""
    latest: dict[str, Touched] = {}
    finished: set[str] = set()
    beside: set[str] = set()  # units whose last task the other unit's goes beside, for which nobody has waited
    for i, plan in enumerate(plans):
        mine = touched(plan, i)
        follows = {unit for unit, flag in FOLLOWS.items() if flag in plan.source.after | plan.second.besides}
        if i:
            reads, writes = _waits(plan, mine, latest, finished | follows | beside - {plan.unit})
            source = plan.source._replace(after=plan.source.after & ~After.ANYTHING | reads)
            result = plan.result._replace(after=plan.result.after & ~After.ANYTHING | writes)
            plans[i] = plan = plan.but(source=source, result=result)
            waited = {unit for unit, (_, result) in FLAGS.items() if result in reads}
            finished |= waited | follows & {plan.unit} | (beside if waited else set())
            beside = (beside | follows - {plan.unit}) - finished
        latest[plan.unit] = mine
        finished.discard(plan.unit)
        beside.discard(plan.unit)


def _waits(plan: Plan, mine: Touched, latest: dict[str, Touched], settled: set[str]) -> tuple[After, After]:
    reads = writes = After.NOTHING
    for unit, before in latest.items():
        if unit in settled:
            continue
        source, result = FLAGS[unit]
        for place, box in enumerate(mine.sources):
            by_dma = plan.second.dma is not None if place else plan.source.type in LOADS
            if meets(box, [before.result]):
                reads |= result
            if unit != plan.unit and meets(box, before.sources if by_dma else before.kept):
                reads |= source
        if result in reads or unit == plan.unit:
            continue
        if meets(mine.result, [before.result]):
            writes |= result
        elif meets(mine.result, before.sources):
            writes |= source
    return reads, writes
