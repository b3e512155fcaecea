"""Selection of resident values: those that save most for their room, and those that a search puts before them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from hexane.cached import cached_property
from hexane.codegen.context import Policy
from hexane.codegen.memory.clusters import Cluster, ResidentOperands, resident_operands
from hexane.codegen.memory.facts import FactCache, PlanFacts
from hexane.codegen.memory.layout import Grid
from hexane.codegen.memory.pipelining import PairPolicy
from hexane.codegen.memory.values import Identity, ResidentValue, Stored, shares_place, values_of
from hexane.codegen.operands import RESULT
from hexane.codegen.plan import Plan
from hexane.codegen.targets import Target
from hexane.frozen import replace

SPARE = 64  # bytes that placing operands at round addresses may cost each task
LEFT = 256 << 10
"""Bytes of L2 that a tensor must leave for stripes of the tasks that run beside it."""

Pair = tuple[ResidentValue, ResidentValue]
"""A value, and the one that the last task to read it writes in its place."""


@dataclass(eq=False)
class ResidencyProgram:
    """The plans of a program, and what is known of the buffers that they name."""

    plans: Sequence[Plan]
    identity: Identity
    stored: Callable[[Hashable], Stored]
    target: Target
    parts: bool = True
    """Also tensors that tasks write or read in parts, and results that go to DRAM and stay."""
    in_stripes: bool = False
    """Whether tasks were cut and put between others."""
    policy: Policy = field(default_factory=Policy)
    recipe: Callable[[int], Hashable] = lambda index: None
    """What tells the recipes apart that the tasks come from."""
    locks: PairPolicy | None = None
    """Which tasks of both units will be locked to each other (``pairs``)."""
    first: frozenset[Hashable] = frozenset()
    """Tensors that are placed before all others, whatever they save."""
    late: frozenset[Hashable] = frozenset()
    """Those of them that go to DRAM where they are begun, and stay from their first readers on."""
    memo: FactCache = field(default_factory=FactCache)
    """What follows from each plan, shared by all forms that a search compares."""

    @cached_property
    def facts(self) -> list[PlanFacts]:
        """Facts that follow from each plan."""
        return [self.memo.of(plan) for plan in self.plans]

    @cached_property
    def held(self) -> ResidentOperands:
        """L2 regions of the plans, as recipes placed them."""
        return resident_operands(self.plans, self.facts)

    @cached_property
    def free(self) -> list[int]:
        """Bytes of L2 that each task leaves beside its own operands and the regions of its group."""
        free = [room_of(self) - 2 * SPARE - facts.passing for facts in self.facts]
        for cluster in self.held.clusters:
            for i in range(cluster.first, cluster.last + 1):
                free[i] -= cluster.stop - cluster.start
        return free

    def least(self, index: int, side: str) -> int:
        """Bytes of an operand that passes through L2, in the lowest tile of its task."""
        return self.facts[index].least.get(side, 0)

    @cached_property
    def tensors(self) -> dict[Hashable, ResidentValue | str]:
        """Every tensor that tasks move: as a value that could stay, or why it could not."""
        return values_of(self.plans, self.held, self.identity, self.stored, self.target.choices, self.memo)

    @cached_property
    def candidates(self) -> list[ResidentValue]:
        """Every tensor that could stay and may."""
        values = (value for value in self.tensors.values() if isinstance(value, ResidentValue))
        return [v for v in values if self._may_stay(v)]

    def _may_stay(self, value: ResidentValue) -> bool:
        if not self.policy.wanted(value.key) or (value.in_parts and not self.parts):
            return False
        return not (self.policy.between and self.is_settled(value))

    def is_settled(self, value: ResidentValue) -> bool:
        """True where one recipe alone uses the tensor, which has a place for it."""
        return len({self.recipe(end.index) for end in value.ends}) == 1

    @cached_property
    def choice(self) -> tuple[list[ResidentValue], list[Pair]]:
        """The values that shall stay, and which of them take each other's place."""
        return choose(self)

    @cached_property
    def intent(self) -> tuple[list[ResidentValue], list[Pair]]:
        """The same if tasks that find no room beside the first tensors go in stripes."""
        return choose(self, hopeful=True) if self.first else self.choice

    def grows(self, key: Hashable) -> bool:
        """True where tasks still write to a tensor when others have read of it."""
        value = self.tensors.get(key)
        return isinstance(value, ResidentValue) and value.grows

    def preferring(self, keys: frozenset[Hashable], late: frozenset[Hashable] = frozenset()) -> ResidencyProgram:
        """The same program, where these tensors are placed before all others, some of them late."""
        program = replace(self, first=keys, late=late)
        for name in ("facts", "held", "free", "tensors", "candidates"):
            if name in vars(self):
                vars(program)[name] = vars(self)[name]
        return program


def room_of(program: ResidencyProgram) -> int:
    """Bytes of L2 that may be given out."""
    room = program.policy.room
    return program.target.limits.l2_bytes if room is None else room


def choose(program: ResidencyProgram, *, hopeful: bool = False) -> tuple[list[ResidentValue], list[Pair]]:
    """Values by what they save for their room, as long as every task keeps room for the rest; pairs in one place.

    A value that does not fit all the time may do so in two shorter stays, or over an operand of the task that makes it.
    ``hopeful``: the values that come first are taken where they fit by themselves.
    """
    plans, residents, candidates, free = program.plans, program.held, program.candidates, program.free.copy()
    choice: dict[ResidentValue, None] = {}
    alike: dict[Grid, list[ResidentValue]] = {}  # those of them in parts
    pairs: dict[ResidentValue, ResidentValue] = {}
    tops: set[ResidentValue] = set()  # of the pairs, those that are written over the others
    readers: dict[int, list[ResidentValue]] = {}  # of what is chosen, by task
    writers: dict[int, list[ResidentValue]] = {}
    made_by = {value.first: value for value in candidates if not value.loaded and program.parts}
    credited: set[int] = set()
    waiting = [
        (value.key not in program.first, -value.worth, value.first, i, value) for i, value in enumerate(candidates)
    ]
    heapify(waiting)
    count = len(waiting)
    while waiting:
        later, *_, value = heappop(waiting)
        if hopeful and value.key in program.late and not value.loaded:
            value = value.begun(plans, residents) or value
        above = None if value.last in writers else made_by.get(value.last)
        if above is not None and (value.last in credited or not _takes_place(value, above, plans)):
            above = None
        ends = -(value.first in credited), int(above is not None)
        need = _left(value, free, program, ends)
        pair = None
        if program.parts and (min(need) < 0 or _leads(value, program)):
            pair = _pair(value, readers, writers, pairs, tops, plans)
            if pair is None and value.in_parts:
                pair = _in_turn(value, alike.get(value.layout.grid, ()), pairs, tops, plans)
            if pair is not None:
                under, over = pair
                value = under if over in choice else over
                need = _left(value, free, program, ends)
                for i in range(over.first, min(under.last, value.last) + 1):
                    need[i - value.first] += value.size
        hoped = hopeful and not later and value.size <= room_of(program) - LEFT
        if min(need) < 0 and not hoped:
            for shorter in value.parted(plans, residents, _full(value, need)):
                if program.parts or not shorter.in_parts:
                    heappush(waiting, (later, -shorter.worth, shorter.first, count, shorter))
                    count += 1
            continue
        if pair is not None:
            pairs[pair[0]] = pair[1]
            tops.add(pair[1])
        free[value.first : value.last + 1] = need
        if above is not None:
            credited.add(value.last)
        choice[value] = None
        if value.in_parts:
            alike.setdefault(value.layout.grid, []).append(value)
        for end in value.ends:
            (writers if end.side == RESULT else readers).setdefault(end.index, []).append(value)
    return list(choice), list(pairs.items())


def _left(value: ResidentValue, free: Sequence[int], program: ResidencyProgram, ends: tuple[int, int]) -> list[int]:
    """Room that each task has left when the value stays, and tasks need no longer their rings, buffers and copies.

    ``ends``: how often the first and the last task get back the room for a result, beside that.
    """
    first, last, size = value.first, value.last, value.size
    left = [room - size for room in free[first : last + 1]]
    left[0] += ends[0] * program.least(first, RESULT)
    left[-1] += ends[1] * program.least(last, RESULT)
    facts, residents = program.facts, program.held
    gone: list[Cluster] = []
    for end in value.ends:
        i = end.index
        cluster = residents.cluster_of.get((i, end.side)) if i in residents.clustered else None
        if cluster is None:
            left[i - first] += facts[i].least[end.side]
        elif cluster not in gone:
            gone.append(cluster)
            for i in range(max(first, cluster.first), min(last, cluster.last) + 1):
                left[i - first] += cluster.stop - cluster.start
    return left


def _full(value: ResidentValue, need: Sequence[int]) -> tuple[int, int]:
    """The first and the last of the first tasks in a row that have no room for a value."""
    first = next(i for i, room in enumerate(need) if room < 0)
    last = next((i for i in range(first, len(need)) if need[i] >= 0), len(need)) - 1
    return value.first + first, value.first + last


def _takes_place(before: ResidentValue, after: ResidentValue, plans: Sequence[Plan]) -> bool:
    """True where the one task that makes ``after`` is the last to read ``before``, and may write over it."""
    alone = sum(end.side == RESULT for end in after.ends) == 1
    return alone and before.last == after.first and shares_place(before, after, plans)


def _leads(value: ResidentValue, program: ResidencyProgram) -> bool:
    """True where the next task may be locked to the maker of the value, over an operand that need not outlive it."""
    at, plans = value.first, program.plans
    if program.locks is None or value.ends[0].side != RESULT or at + 1 == len(plans):
        return False
    return program.locks(plans[at], plans[at + 1])


def _pair(
    value: ResidentValue,
    readers: dict[int, list[ResidentValue]],
    writers: dict[int, list[ResidentValue]],
    pairs: Mapping[ResidentValue, ResidentValue],
    tops: Set[ResidentValue],
    plans: Sequence[Plan],
) -> Pair | None:
    """The value over one that is chosen already, or one that is chosen over the value; as laid out there."""
    for under in readers.get(value.first, ()):
        if under not in pairs and shares_place(under, value, plans):
            return under, value.laid_out(under.layout)
    for i in sorted({end.index for end in value.ends if end.side != RESULT}):
        for over in writers.get(i, ()):
            if over.first == i and over not in tops:
                below = value.laid_out(over.layout) if value.layout.grid == over.layout.grid else value
                if shares_place(below, over, plans):
                    return below, over
    return None


def _in_turn(
    value: ResidentValue,
    alike: Sequence[ResidentValue],
    pairs: Mapping[ResidentValue, ResidentValue],
    tops: Set[ResidentValue],
    plans: Sequence[Plan],
) -> Pair | None:
    """The value and one of those that are chosen with its grid, if tasks write the later one where parts of the other
    are not read any more."""
    for other in alike:
        before, after = sorted((value, other), key=lambda v: v.first)
        if after.first <= before.last < after.last and before not in pairs and after not in tops:
            layout = other.layout
            before, after = (v if v is other else v.laid_out(layout) for v in (before, after))
            if shares_place(before, after, plans):
                return before, after
    return None
