"""Runs of tasks that go stripe by stripe, and the number of stripes, by price (docs/reference/engine-h13.md 7).

A run is cut into pieces by dynamic programming: each piece is one task as it is, or several in stripes. Pieces end
where holding one more task would cost more in halos and kernels than its maps cost on their way through DRAM.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from operator import or_

from hexane.codegen.memory.analysis import Lives, StripeAnalysis
from hexane.codegen.memory.facts import OFF
from hexane.codegen.memory.stripes import StripeBuffer, StripeTasks
from hexane.codegen.memory.traffic import Cost, total
from hexane.codegen.memory.values import ResidentValue, found_in_l2
from hexane.codegen.operands import RESULT
from hexane.codegen.plan import Plan
from hexane.frozen import replace

LONGEST = 10
"""Tasks of one piece at most: halos grow with every window."""
FEWEST_BANDS, MOST_BANDS = 2, 64
LEAST_GAIN = 0.03
"""Share of its price that a piece in stripes has to save: what stays in the end is not known before it is placed."""
MOST_LOSS = 0.02
"""Share of its price that a piece may lose where it moves less, as long as the program does not."""
EAGER_GAIN = -0.9
SPARE = 32 << 10
"""Bytes of L2 that stripes leave to row pads and round addresses."""
IN_L2_ALONE = sum(OFF.values())


@dataclass
class Cuts:
    """A program with runs in stripes: each plan, the index of the one that it is a part of, and new buffers."""

    plans: list[Plan]
    origins: list[int]
    buffers: list[StripeBuffer] = field(default_factory=list)


@dataclass(frozen=True)
class StripedRun:
    """Tasks ``first`` to ``last`` in ``count`` stripes (one: a task as it is); the weighed cost that they save."""

    first: int
    last: int
    count: int
    saves: float = 0.0


@dataclass
class Striping:
    """The search over one form of a program.

    ``intent`` are the values that stay in L2 as whole maps, with no stripes, and those of them that take the place of
    another; ``firm`` ones do so whatever it costs.
    """

    analysis: StripeAnalysis
    intent: tuple[Sequence[ResidentValue], Sequence[tuple[ResidentValue, ResidentValue]]]
    room: int
    gain: float = LEAST_GAIN
    firm: Set[Hashable] = frozenset()

    def __post_init__(self) -> None:
        stays, self.pairs = self.intent
        count = len(self.analysis.plans)
        self.uses = self.analysis.uses
        self.off = [bits & IN_L2_ALONE for bits in found_in_l2(stays, count)]
        self.whole = {value.key: value for value in stays if not value.written and not value.loaded}
        self.met: list[list[ResidentValue]] = [[] for _ in range(count)]
        self.under = {after: before for before, after in self.pairs}
        taken = [0] * (count + 1)  # bytes more than at the task before
        for value in stays:
            taken[value.first] += value.size
            taken[value.last + 1] -= value.size
            for i in {end.index for end in value.ends}:
                self.met[i].append(value)
        for before, after in self.pairs:
            taken[after.first] -= after.size
            taken[before.last + 1] += after.size
        self.free = [self.room - SPARE - bytes_ for bytes_ in accumulate(taken[:count])]
        self._sending: dict[ResidentValue, list[tuple[int, Cost]]] = {}
        self._marks = self._marked()

    def _marked(self) -> list[int]:
        """A number for all that stripes meet at each task."""
        numbers = self.analysis.marks
        values: dict[ResidentValue, int] = {}
        for value in self.intent[0]:
            sends = tuple([self.off[end.index] for end in value.ends])
            name: Hashable = (value.form, value.key in self.firm, sends)
            values[value] = numbers.setdefault(name, len(numbers))
        for pair in self.pairs:
            name = tuple([values[value] for value in pair])
            for value in pair:
                values[value] = numbers.setdefault((values[value], name), len(numbers))
        found = []
        for room, off, met in zip(self.free, self.off, self.met):
            name = room, off, *[values[value] for value in met]
            found.append(numbers.setdefault(name, len(numbers)))
        return found

    def pieces(self) -> list[StripedRun]:
        """The runs of tasks that go in stripes, in order."""
        runs: list[StripedRun] = []
        for first, last in self.analysis.runs:
            state = first, *self._marks[first : last + 1]
            if state not in self.analysis.pieces:
                self.analysis.pieces[state] = [piece for piece in self._pieces(first, last) if piece.count > 1]
            runs += self.analysis.pieces[state]
        return runs

    def cut(self, pieces: Sequence[StripedRun]) -> Cuts:
        """The program with these pieces in stripes."""
        chosen = {piece.first: piece for piece in pieces}
        cuts = Cuts([], [])
        i = 0
        while i < len(self.analysis.plans):
            piece = chosen.get(i)
            parts = None if piece is None else self.analysis.in_stripes(piece.first, piece.last, piece.count)
            if piece is None or parts is None:
                cuts.plans.append(self.analysis.whole_plans[i])
                cuts.origins.append(i)
                i += 1
                continue
            cuts.plans += parts.plans
            cuts.origins += parts.origins
            cuts.buffers += parts.buffers
            i = piece.last + 1
        return cuts

    def _pieces(self, first: int, last: int) -> list[StripedRun]:
        """The cheapest pieces of a run."""
        tasks = range(first, last + 1)
        moving = {
            self.uses[i, side].key
            for i in tasks
            for side, bit in OFF.items()
            if (i, side) in self.uses and not self.off[i] & bit
        }
        through = [self.analysis.spans[key] for key in moving if key in self.analysis.spans]
        through = [(a, b) for a, b in through if first <= a and b <= last]
        if not through:
            return []
        alone = [self.analysis.alone(i, self.off[i]) for i in tasks]
        best: list[tuple[float, StripedRun]] = [(0.0, StripedRun(first, first, 1))]
        begun = first - 1  # the last task with which a buffer begins that is done with by now
        for end in tasks:
            begun = max([begun, *(a for a, b in through if b == end)])
            here = (best[-1][0] + alone[end - first].weighed(), StripedRun(end, end, 1))
            for start in range(max(first, end - LONGEST + 1), end if end in self.analysis.finish else first):
                if start > begun or start not in self.analysis.begin:
                    continue
                run = self.analysis.run(start, end)
                found = None if run is None else self._known(run)
                plain = alone[start - first : end - first + 1]
                if found is None or not self._worthwhile(found[0], plain):
                    continue
                cost = best[start - first][0] + found[0].weighed(self.gain if self.gain < 0 else 0.0)
                if cost < here[0]:
                    here = (cost, replace(found[1], saves=total(plain).weighed() - found[0].weighed()))
            best.append(here)
        pieces: list[StripedRun] = []
        at = last + 1
        while at > first:
            pieces.append(best[at - first][1])
            at = pieces[-1].first
        return pieces[::-1]

    def _worthwhile(self, striped: Cost, alone: Sequence[Cost]) -> bool:
        """True where a piece in stripes saves time, or as much as takes no more time moves less."""
        whole = total(alone)
        if (1 + self.gain) * striped.us < whole.us:
            return True
        return striped.us <= (1 + MOST_LOSS) * whole.us and striped.weighed() < whole.weighed()

    def _known(self, run: StripeTasks) -> tuple[Cost, StripedRun] | None:
        """The same as ``_striped``, found once for all forms that are alike there."""
        state = run.first, *self._marks[run.first : run.last + 1]
        if state not in self.analysis.striped:
            self.analysis.striped[state] = self._striped(run)
        return self.analysis.striped[state]

    def _striped(self, run: StripeTasks) -> tuple[Cost, StripedRun] | None:
        """Cost and piece of tasks in the fewest stripes that fit; None where nothing fits.

        With values that stay, or where those take room and more stripes than two, without them.
        """
        best: tuple[Cost, StripedRun] | None = None
        longer = self._live_longer(run)
        loose = [value for value in longer if value.key not in self.firm]
        for dropped in ([], loose) if loose else ([],):
            found = self._fewest(run, longer, {value.key for value in dropped})
            if found is not None:
                cost = reduce(Cost.plus, (self._dropping(value, run) for value in dropped), found[0])
                if best is None or cost.weighed() < best[0].weighed():
                    best = cost, StripedRun(run.first, run.last, found[1])
                if found[1] == FEWEST_BANDS:
                    break
        return best

    def _fewest(
        self, run: StripeTasks, longer: Sequence[ResidentValue], dropped: set[Hashable]
    ) -> tuple[Cost, int] | None:
        """The fewest stripes in which a run fits, and what it then costs; ``dropped`` values go through DRAM."""
        off = self._off(run, dropped)
        room: list[int] = []
        lives = None
        count = FEWEST_BANDS
        while count <= MOST_BANDS:
            stripe = self.analysis.stripe(run, count)
            if stripe is None:
                return None
            if stripe.lives != lives:
                lives, room = stripe.lives, self._room(run, stripe.lives, longer, dropped)
            over = max([need / max(room[i], 1) for i, need in stripe.needs(off) if need > room[i]], default=0.0)
            if over <= 0:
                break
            count = max(count + 1, min(2 * count, int(count * over)))
        else:
            return None
        return None if stripe.lowest < 2 else (self.analysis.striped_cost(stripe, off).times(count), count)

    def _off(self, run: StripeTasks, dropped: Set[Hashable]) -> tuple[int, ...]:
        """Operands of each task of a run that are in L2, as bits of ``OFF``."""
        stays = self.off[run.first : run.last + 1]
        if dropped:
            for i in range(run.first, run.last + 1):
                gone = [value for value in self.met[i] if value.key in dropped]
                for end in (end for value in gone for end in value.ends if end.index == i):
                    stays[i - run.first] &= ~OFF[end.side]
        return tuple(map(or_, stays, run.within))

    def _dropping(self, value: ResidentValue, run: StripeTasks) -> Cost:
        """Cost of a value outside of a run if it does not stay: there it is sent to DRAM and read from it."""
        outside = (cost for i, cost in self._sent(value) if not run.first <= i <= run.last)
        return total(outside)

    def _sent(self, value: ResidentValue) -> list[tuple[int, Cost]]:
        """By the tasks at its ends, what it costs more that these send or read a value that stays now."""
        if value not in self._sending:
            found = self._sending[value] = []
            for place, end in enumerate(value.ends):
                moves = (value.written and end.side == RESULT) or place in value.loaders
                if moves or end.dma is None:
                    continue
                off = self.off[end.index]
                sent, kept = self.analysis.alone(end.index, off & ~OFF[end.side]), self.analysis.alone(end.index, off)
                found.append((end.index, Cost(sent.us - kept.us, sent.bytes - kept.bytes)))
        return self._sending[value]

    def _room(
        self, run: StripeTasks, lives: Lives, longer: Sequence[ResidentValue], dropped: Set[Hashable]
    ) -> list[int]:
        """Bytes of L2 that each task of a run finds for its stripe, whose buffers ``lives`` are."""
        found = self.free[run.first : run.last + 1]

        def add(size: int, first: int, last: int) -> None:
            for i in range(max(first, run.first), min(last, run.last) + 1):
                found[i - run.first] += size

        gone = {value for key in lives if (value := self.whole.get(key)) is not None}
        gone |= {value for value in longer if value.key in dropped}
        for value in gone:
            add(value.size, value.first, value.last)
        for before, after in self.pairs:  # two in one place, one of which is gone
            if before in gone or after in gone:
                add(-after.size, after.first, before.last)
        for value in longer:  # in stripes those that stay live as long as all of the run
            if value.key not in dropped:
                add(-value.size, run.first, value.first - 1)
                add(-value.size, value.last + 1, run.last)
        return found

    def _live_longer(self, run: StripeTasks) -> list[ResidentValue]:
        """Whole maps that stay and that the run reads or makes: in stripes they live as long as all of the run."""
        met = dict.fromkeys(v for i in range(run.first, run.last + 1) for v in self.met[i] if v.key not in run.inner)
        return [v for v in met if self.under.get(v) not in met]
