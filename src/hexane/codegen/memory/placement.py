"""Values that stay in L2 from the task that makes them to the tasks that read them, over a whole program.

Recipes bring every operand from DRAM and send every result there. This pass rewrites their plans: where a tensor fits
beside what else is live, its writers leave it in L2 and its readers find it there (docs/reference/engine-h13.md 7, 12).
Which of them stay is decided by the bytes that they save for the room that they take; addresses are given by first fit,
and a value for which none is left is spilled: it goes through DRAM as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hexane.codegen.memory import hazards, streaming
from hexane.codegen.memory.arena import BANK_CYCLE, Arena, ArenaBlock
from hexane.codegen.memory.clusters import Cluster, ResidentOperands, is_torn
from hexane.codegen.memory.pipelining import PairPolicy
from hexane.codegen.memory.selection import Pair, ResidencyProgram, room_of
from hexane.codegen.memory.values import ResidentValue
from hexane.codegen.operands import RESULT, SECOND, TaskOperand
from hexane.codegen.operations import ResultType, SourceType
from hexane.codegen.plan import OWN_DMA, Plan, Region
from hexane.errors import Reason, UnsupportedError

MOST_TRIES = 4  # at room for locked pairs, before they go without

IN_PLACE = "a planar result over its own operand"
PART_OF_IT = "a part of a tensor that stays in L2"
BOTH_WAYS = "a result kept in L2 and sent to DRAM"


def keep_in_l2(program: ResidencyProgram) -> tuple[list[Plan], list[ResidentValue]]:
    """The plans with values that stay in L2, and these."""
    plans, room = list(program.plans), room_of(program)
    if len(plans) < 2:
        return plans, []
    residents, (choice, pairs) = program.held, program.choice
    stays: list[ResidentValue] = []
    movers: set[int] = set()
    as_made = program.policy.between and not program.in_stripes
    torn = set() if as_made else {run for run in residents.runs if is_torn(plans, residents, run[0])}

    def zone_of(first: int, last: int) -> _Zone:
        runs = [run for run in residents.runs if first <= run[0] <= last]
        mine = [pair for pair in pairs if first <= pair[0].first <= last]
        return _Zone(first, last, plans, residents, room, runs, mine, program, torn)

    for first, last, values in _zones(choice, residents.runs):
        placed = zone_of(first, last).place(values)
        stays += placed
        if placed:
            movers |= set(range(first, min(last + 2, len(plans))))
    for first, last in sorted(torn):
        if first not in movers or last not in movers:
            zone_of(first, last).place_groups()
            movers |= set(range(first, min(last + 2, len(plans))))
    hazards.settle(plans, movers, in_order=program.policy.between)
    return plans, stays


def _zones(
    values: Sequence[ResidentValue], runs: Sequence[tuple[int, int]]
) -> list[tuple[int, int, list[ResidentValue]]]:
    """Runs of tasks, whole groups, over which some value stays."""
    start_of, end_of = {}, {}
    for first, last in runs:
        for i in range(first, last + 1):
            start_of[i], end_of[i] = first, last
    zones: list[tuple[int, int, list[ResidentValue]]] = []
    for value in sorted(values, key=lambda v: v.first):
        first, last = start_of[value.first], end_of[value.last]
        if zones and first <= zones[-1][1]:
            start, end, inside = zones[-1]
            inside.append(value)
            zones[-1] = start, max(end, last), inside
        else:
            zones.append((first, last, [value]))
    return zones


def _nearest(leaders: set[int], refused: ResidentValue) -> set[int]:
    """Of leaders of pairs those that a value without room meets, or the nearest one where it meets none."""
    distance = {i: max(refused.first - 1 - i, i - refused.last, 0) for i in leaders}
    return {i for i in leaders if distance[i] == min(distance.values())}


@dataclass
class _Zone:
    """Tasks ``first`` to ``last``, whose L2 is given out anew."""

    first: int
    last: int
    plans: list[Plan]
    held: ResidentOperands
    room: int
    runs: list[tuple[int, int]]
    pairs: list[Pair]
    program: ResidencyProgram
    torn: set[tuple[int, int]] = field(default_factory=set)
    """Groups that have to be placed anew, whatever stays."""
    blocks: dict[ResidentValue, ArenaBlock] = field(default_factory=dict)
    clusters: list[tuple[Cluster, ArenaBlock]] = field(default_factory=list)
    groups: list[tuple[int, int]] = field(default_factory=list)
    fits: dict[int, streaming.Fit] = field(default_factory=dict)

    def place(self, values: list[ResidentValue]) -> list[ResidentValue]:
        """Place as many of the values as there is room for, and rewrite the plans; those that stay."""
        values = list(values)
        while values:
            leaders = self._leaders(values, self.program.locks) if self.program.locks else set()
            refused = self._with_pairs(values, leaders)
            if refused is None:
                self._write(values)
                return values
            values.remove(refused)
            values += [v for v in refused.parted(self.plans, self.held) if self.program.parts or not v.in_parts]
        return []

    def _with_pairs(self, values: list[ResidentValue], leaders: set[int]) -> ResidentValue | None:
        """``_try`` with room for as many pairs as there is."""
        alone: list[int] = []
        refused = self._try(values, leaders)
        for _ in range(MOST_TRIES):
            if refused is None or not leaders:
                break
            near = _nearest(leaders, refused)
            leaders, alone = leaders - near, [*alone, *near]
            refused = self._try(values, leaders)
        if refused is not None:
            return self._try(values, set()) if leaders else refused
        for i in alone[:MOST_TRIES] if leaders else ():
            refused = self._try(values, leaders | {i})
            leaders |= set() if refused else {i}
        return self._try(values, leaders) if refused else None

    def place_groups(self) -> None:
        """Place what the groups hold, where no value stays; UnsupportedError where even that has no room."""
        self._try([], set())
        self._write([])

    def _leaders(self, values: Sequence[ResidentValue], locks: PairPolicy) -> set[int]:
        """Tasks behind which the next one may run patch by patch, if what they read outlives them."""
        leaders = set()
        for value in values:
            first, after = value.ends[0], [end for end in value.ends if end.index == value.first + 1]
            whole = first.side == RESULT and not value.written and value.is_whole(first)
            if whole and after and locks(self.plans[value.first], self.plans[value.first + 1]):
                leaders.add(value.first)
        return leaders

    def _try(self, values: list[ResidentValue], leaders: set[int]) -> ResidentValue | None:
        """Addresses for all; else the value that has to go. Groups that no value meets stay as they are."""
        transposed = {(end.index, end.side): value for value in values for end in value.ends}
        self.blocks = self._blocks(values)
        for block in dict.fromkeys(self.blocks.values()):
            block.last += block.last in leaders and block.last < self.last
        met = [False] * (self.last + 1 - self.first)
        for value in values:
            for i in range(value.first, value.last + 1):
                met[i - self.first] = True
        self.groups = [
            (a, b) for a, b in self.runs if (a, b) in self.torn or any(met[a - self.first : b + 1 - self.first])
        ]
        arena = Arena(self.first, self.last, self.room)
        self.clusters = [
            (
                cluster,
                ArenaBlock(
                    cluster.stop - cluster.start, cluster.first, cluster.last, offset=cluster.start % BANK_CYCLE
                ),
            )
            for a, b in self.groups
            for cluster in self.held.by_group.get(a, ())
            if not any((e.index, e.side) in transposed for e in cluster.ends)
        ]
        passing_by = self._passing(transposed, arena)
        distinct = dict.fromkeys(self.blocks.values())
        sources = [block for _, _, row in passing_by.values() for _, block in row]
        refused = arena.place_all([*distinct, *(block for _, block in self.clusters), *sources])
        if refused is not None and not values:
            raise UnsupportedError("bands of a task whose operand stands in L2 find no room", code=Reason.MEMORY)
        if refused is not None:
            return self._least(values, *self._around(refused))
        arena.forget(sources)
        self.fits = {}
        for i, (ends, whole, row) in passing_by.items():
            fit = streaming.fit(self.plans[i], ends, arena, whole=whole)
            self.fits[i] = fit or streaming.last_resort(self.plans[i], ends, row, arena, whole=whole)
        return None

    def _passing(
        self, transposed: dict[tuple[int, str], ResidentValue], arena: Arena
    ) -> dict[int, tuple[list[TaskOperand], bool, list[tuple[str, ArenaBlock]]]]:
        """Of each task the ends that only pass through, whether it has to stay whole, and room for its sources."""
        streams = {}
        for i in (i for a, b in self.groups for i in range(a, b + 1)):
            plan, stays = self.plans[i], self.program.facts[i].stays
            ends = [e for e, size in zip(self.held.ends[i], stays) if size is None and (i, e.side) not in transposed]
            if ends:
                result = transposed.get((i, RESULT))
                whole = result is not None and result.written
                sources, arena.above[i] = streaming.reserved(plan, ends, whole=whole)
                streams[i] = ends, whole, sources
        return streams

    def _blocks(self, values: Sequence[ResidentValue]) -> dict[ResidentValue, ArenaBlock]:
        """A block for each value, one for a value and that which is written over it."""
        over = {after: before for before, after in self.pairs}
        blocks: dict[ResidentValue, ArenaBlock] = {}
        for value in sorted(values, key=lambda v: v.first):
            before = over.get(value)
            block = None if before is None else blocks.get(before)
            if block is None:
                block = ArenaBlock(value.size, value.first, value.last, unit=64)
            block.last = max(block.last, value.last)
            blocks[value] = block
        return blocks

    def _around(self, block: ArenaBlock) -> tuple[int, int]:
        """The tasks of a value's block, the whole run of a cluster's or of what passes through."""
        if any(block is own for own in self.blocks.values()):
            return block.first, block.last
        return next((a, b) for a, b in self.groups if a <= block.first <= b)

    def _least(self, values: list[ResidentValue], first: int, last: int) -> ResidentValue:
        """Of the values that are live then, the one that saves least for its room; those that come first at last."""
        live = [v for v in values if v.first <= last and first <= v.last] or values
        return min(live, key=lambda v: (v.key in self.program.first, v.worth, -v.first))

    def _write(self, values: Sequence[ResidentValue]) -> None:
        plans = self.plans
        for cluster, block in self.clusters:
            for end in cluster.ends:
                plan = plans[end.index]
                at = end.region.base + block.base - cluster.start
                plans[end.index] = plan.on(end.side, region=plan.operand(end.side).region.at(at))
        over = {after for _, after in self.pairs}
        for value in values:
            base = self.blocks[value].base
            if value in over:
                for end in value.ends:
                    if end.side == RESULT and plans[end.index].unit == "PE":
                        plans[end.index] = _inferred(plans[end.index], IN_PLACE)
            for end, region in zip(value.ends, value.regions):
                plans[end.index] = resident(plans[end.index], end, region.at(base + region.base), value)
        for i, fit in self.fits.items():
            plans[i] = streaming.settled(plans[i], fit)
        for value in values:
            for i in range(value.first, value.last):
                plan = plans[i]
                if not plan.holds and not plan.result.staged:  # a staging producer ends a group, its pair follows
                    plans[i] = plan.but(holds=True)


def resident(plan: Plan, end: TaskOperand, region: Region, value: ResidentValue) -> Plan:
    """The task with one operand that it finds in L2, or its result left there."""
    if end.side == RESULT and value.written:
        plan = _inferred(plan.writing(region=region, type=ResultType.DMA_KEEP, automatic=False), BOTH_WAYS)
    elif end.side == RESULT:
        plan = plan.writing(region=region, dma=None, hint=None, type=ResultType.STAYS, automatic=False)
    elif end.side == SECOND:
        plan = plan.but(second=plan.second.at(region))
        if plan.note.startswith(OWN_DMA):
            plan = plan.but(note=plan.note.removeprefix(OWN_DMA).removeprefix("; "))
    elif any(end is value.ends[place] for place in value.loaders):
        plan = plan.reading(region=region, type=SourceType.DMA_KEEP)
    else:
        source = plan.source._replace(region=region, dma=None, type=SourceType.RESIDENT)
        uncut = not plan.fat_tile and end.dma is not None and plan.tile < plan.hout
        whole = {"tile": plan.hout, "read_rows": 0} if uncut else {}
        plan = plan.but(source=source, **whole)
    return _inferred(plan, PART_OF_IT) if end.dma is not None and not value.is_whole(end) else plan


def _inferred(plan: Plan, note: str) -> Plan:
    return plan.but(note=f"{OWN_DMA}; {note}") if plan.note == OWN_DMA else plan.inferred(note)
