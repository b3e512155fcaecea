"""Which runs of tasks go band by band, and in how many bands: what the price says (docs/reference/engine-h13.md 7).

A run is cut into pieces by dynamic programming: each piece is one task as it is, or several in bands. Pieces end where
holding one more task would cost more in halos and kernels than its maps cost on their way through DRAM.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce

from hexane.codegen.plan import Buffer, Plan
from hexane.codegen.residency import bands, passing
from hexane.codegen.residency.apart import apart
from hexane.codegen.residency.bands import BandBuffer, Run, Uses
from hexane.codegen.residency.blocks import Held
from hexane.codegen.residency.ends import RESULT, SECOND, SOURCE, End, ends_of
from hexane.codegen.residency.layout import Grid, Layout, grid_of
from hexane.codegen.residency.loose import loosened
from hexane.codegen.residency.moved import Cost, Price, cost_of, total
from hexane.codegen.residency.rows import Rows, source_of
from hexane.codegen.residency.values import Stored, Value

LONGEST = 10
"""Tasks of one piece at most: halos grow with every window."""
MOST_BANDS = 64
LEAST_GAIN = 0.03
"""Share of its price that a piece in bands has to save: what stays in the end is not known before it is placed."""
MOST_LOSS = 0.02
"""Share of its price that a piece may lose where it moves less, as long as the program does not."""
EAGER_GAIN = -0.9
SPARE = 32 << 10
"""Bytes of L2 that bands leave to row pads and round addresses."""


@dataclass
class Cuts:
    """The plans of a program with runs in bands: each plan, the index of the one that it is a part of, new buffers."""

    plans: list[Plan]
    origins: list[int]
    buffers: list[BandBuffer] = field(default_factory=list)


@dataclass(frozen=True)
class Piece:
    """Tasks ``first`` to ``last`` in ``count`` bands (one: a task as it is); the weighed cost that they save."""

    first: int
    last: int
    count: int
    saves: float = 0.0


@dataclass
class Depth:
    """The search over one program.

    ``stays`` are the values that stay in L2 as whole maps, with no bands.
    """

    whole_plans: Sequence[Plan]
    held: Held
    identity: Callable[[Buffer, int], Hashable]
    stored: Callable[[Hashable], Stored]
    stays: Sequence[Value]
    price: Price
    room: int
    gain: float = LEAST_GAIN

    def __post_init__(self) -> None:
        self.plans, together = loosened(self.whole_plans, self.held)
        self.begin, self.finish = {first for first, _ in together}, {last for _, last in together}
        self.touching: dict[Hashable, list[End]] = {}
        pinned = set()
        for i, plan in enumerate(self.plans):
            if plan.kernel is not None and plan.kernel.source is not None:
                pinned.add(self.identity(plan.kernel.source, i))
            for dma in (plan.src, plan.src2, plan.dst):
                if dma is not None and (plan.src_staged or plan.dst_staged):
                    pinned.add(self.identity(dma.buffer, i))
            for end in ends_of(plan, i):
                if end.dma is not None:
                    self.touching.setdefault(self.identity(end.dma.buffer, i), []).append(end)
        self.uses: Uses = {}
        self.grids: dict[Hashable, Grid] = {}
        for key, ends in self.touching.items():
            if key is not None and key not in pinned:
                about = self.stored(key)
                if about.size or about.shape:
                    grid = grid_of(ends, about.shape, about.size)
                    if grid is not None:
                        self.grids[key] = grid
        self.resident = {
            (end.index, end.side)
            for value in self.stays
            for place, end in enumerate(value.ends)
            if not (value.written and end.side == RESULT) and not (value.loaded and place == 0)
        }
        self.whole = {value.key: value for value in self.stays if not value.written and not value.loaded}
        self.free = [self.room - SPARE] * len(self.plans)
        self.met: list[list[Value]] = [[] for _ in self.plans]
        for value in self.stays:
            for i in range(value.first, value.last + 1):
                self.free[i] -= value.size
            for i in {end.index for end in value.ends}:
                self.met[i].append(value)

    def pieces(self) -> list[Piece]:
        """The runs of tasks that go in bands, in order."""
        return [piece for run in bands.runs(self.plans) for piece in self._pieces(*run) if piece.count > 1]

    def cut(self, pieces: Sequence[Piece]) -> Cuts:
        """The program with these pieces in bands."""
        chosen = {piece.first: piece for piece in pieces}
        made = Cuts([], [])
        i = 0
        while i < len(self.plans):
            piece = chosen.get(i)
            parts = None if piece is None else self._run(piece.first, piece.last).in_bands(piece.count, str(i))
            if piece is None or parts is None:
                made.plans.append(self.whole_plans[i])
                made.origins.append(i)
                i += 1
                continue
            made.plans += parts.plans
            made.origins += parts.origins
            made.buffers += parts.buffers
            i = piece.last + 1
        return made

    def _pieces(self, first: int, last: int) -> list[Piece]:
        """The cheapest pieces of a run."""
        mine = bands.uses_of(self.plans, first, last, self.identity, self.grids)
        self.uses |= mine
        through = {use.key for place, use in mine.items() if place not in self.resident}
        if not any(self._inside(key, first, last) for key in through):
            return []
        alone = [cost_of([self._as_it_is(i)], self.price) for i in range(first, last + 1)]
        best: list[tuple[float, Piece]] = [(0.0, Piece(first, first, 1))]
        for end in range(first, last + 1):
            here = (best[-1][0] + alone[end - first].weighed(), Piece(end, end, 1))
            for start in range(max(first, end - LONGEST + 1), end if end in self.finish else first):
                found = self._banded(start, end, through) if start in self.begin else None
                plain = alone[start - first : end - first + 1]
                if found is None or not self._worthwhile(found[0], plain):
                    continue
                cost = best[start - first][0] + found[0].weighed(self.gain if self.gain < 0 else 0.0)
                if cost < here[0]:
                    here = (cost, replace(found[1], saves=total(plain).weighed() - found[0].weighed()))
            best.append(here)
        pieces: list[Piece] = []
        at = last + 1
        while at > first:
            pieces.append(best[at - first][1])
            at = pieces[-1].first
        return pieces[::-1]

    def _worthwhile(self, banded: Cost, alone: Sequence[Cost]) -> bool:
        """Whether a piece in bands saves time, or as much as takes no more time moves less."""
        whole = total(alone)
        if (1 + self.gain) * banded.us < whole.us:
            return True
        return banded.us <= (1 + MOST_LOSS) * whole.us and banded.weighed() < whole.weighed()

    def _inside(self, key: Hashable, first: int, last: int) -> bool:
        """Whether only tasks of a piece touch a buffer, and one of them writes it."""
        if key not in self.grids:
            return False
        ends = self.touching[key]
        within = first <= ends[0].index and ends[-1].index <= last
        return within and ends[0].side == RESULT and not self.stored(key).surface and self._known(ends)

    def _known(self, ends: Sequence[End]) -> bool:
        return all((end.index, end.side) in self.uses for end in ends)

    def _run(self, first: int, last: int) -> Run:
        keys = {use.key for (i, _), use in self.uses.items() if first <= i <= last}
        return Run(self.plans, first, last, self.uses, {key for key in keys if self._inside(key, first, last)})

    def _banded(self, first: int, last: int, through: set[Hashable]) -> tuple[Cost, Piece] | None:
        """Cost and piece of tasks in the fewest bands that fit; None where nothing is gained or nothing fits."""
        if any((i, side) not in self.uses for i in range(first, last + 1) for side in (SOURCE, RESULT)):
            return None
        begins, ends = self.uses[first, RESULT].key, self.uses[last, SOURCE].key
        run = self._run(first, last)
        if begins not in run.inner or not run.inner & through or not self._ordered(run):
            return None
        if ends not in run.inner and (last, SECOND) not in self.uses:
            return None
        best: tuple[Cost, Piece] | None = None
        longer = self._live_longer(run)
        for dropped in ([], longer) if longer else ([],):
            found = self._fewest(run, longer, {value.key for value in dropped})
            if found is not None:
                cost = reduce(Cost.plus, map(self._dropping, dropped), found[0])
                if best is None or cost.weighed() < best[0].weighed():
                    best = cost, Piece(first, last, found[1])
        return best

    def _fewest(self, run: Run, longer: Sequence[Value], dropped: set[Hashable]) -> tuple[Cost, int] | None:
        """The fewest bands in which a run fits, and what it then costs; ``dropped`` values go through DRAM."""
        count = 2
        while count <= MOST_BANDS:
            found = run.needs(count // 2, count)
            if found is None or not found[0]:
                return None
            over = self._beyond(run, *found, longer, dropped)
            if over <= 0:
                break
            count = max(count + 1, min(2 * count, int(count * over)))
        else:
            return None
        if max(rows.height for rows in found[0].values()) < 2:
            return None
        parts = [self._part(run, i, rows, dropped) for i, rows in found[0].items()]
        return cost_of(parts, self.price).times(count), count

    def _dropping(self, value: Value) -> Cost:
        """What a value costs outside of a run if it does not stay: its writer sends it to DRAM."""
        end = value.ends[0]
        if end.side != RESULT or value.written:
            return Cost(0.0, 0)
        kept = self._as_it_is(end.index)
        sent = copy(kept)
        sent.dst = end.dma
        before, after = cost_of([kept], self.price), cost_of([sent], self.price)
        return Cost(after.us - before.us, after.bytes - before.bytes)

    def _ordered(self, run: Run) -> bool:
        """Whether no task of the run writes over what one before it wrote or read of a buffer that stays whole."""
        before: dict[Hashable, list[End]] = {}
        for i in range(run.first, run.last + 1):
            for end in ends_of(self.plans[i], i):
                use = self.uses.get((i, end.side))
                if use is None or use.key in run.inner or use.key is None:
                    continue
                others = before.setdefault(use.key, [])
                grid = use.grid
                if end.side == RESULT and any(grid is None or not apart(end, other, grid) for other in others):
                    return False
                others.append(end)
        return True

    def _beyond(
        self,
        run: Run,
        rows: dict[int, Rows],
        inner: dict[Hashable, Rows],
        longer: Sequence[Value],
        dropped: set[Hashable],
    ) -> float:
        """What a band needs over what L2 has left for it; 0 if it fits."""
        lives: dict[Hashable, tuple[int, int]] = {}
        for i in rows:
            for side in (SOURCE, SECOND, RESULT):
                use = self.uses.get((i, side))
                if use is not None and use.key in inner:
                    lives[use.key] = (min(i, lives.get(use.key, (i, i))[0]), max(i, lives.get(use.key, (i, i))[1]))
        sizes = {key: Layout(_of_height(self.uses, key, r.height)).size for key, r in inner.items()}
        worst = 0.0
        for i, mine in rows.items():
            live = sum(sizes[key] for key, (a, b) in lives.items() if a <= i <= b)
            plan = self._part(run, i, mine, dropped)
            ends = [end for end in ends_of(plan, i) if end.dma is not None]
            need = live + passing.least(plan, ends)
            gone = [*(self.whole[key] for key in lives if key in self.whole), *(v for v in longer if v.key in dropped)]
            back = sum(value.size for value in gone if value.first <= i <= value.last)
            kept = [v for v in longer if v.key not in dropped and not v.first <= i <= v.last]
            room = self.free[i] + back - sum(v.size for v in kept)
            if need > room:
                worst = max(worst, need / max(room, 1))
        return worst

    def _live_longer(self, run: Run) -> list[Value]:
        """Whole maps that stay and that the run reads or makes: in bands they live as long as all of the run."""
        met = {id(v): v for i in range(run.first, run.last + 1) for v in self.met[i] if v.key not in run.inner}
        return list(met.values())

    def _as_it_is(self, i: int) -> Plan:
        """The task as it will be with whole maps: operands that stay in L2 are not moved."""
        return self._without(self.whole_plans[i], i, set())

    def _part(self, run: Run, i: int, rows: Rows, dropped: set[Hashable]) -> Plan:
        """The task over some rows, as far as its price goes."""
        plan = copy(self.plans[i])
        if plan.unit == "NE":
            plan.h = source_of(plan, rows).height
        else:
            plan.h = rows.height
        plan.hout = plan.tile = rows.height
        return self._without(plan, i, run.inner, dropped)

    def _without(self, plan: Plan, i: int, inner: set[Hashable], dropped: Set[Hashable] = frozenset()) -> Plan:
        plan = copy(plan)
        for side, name in ((SOURCE, "src"), (SECOND, "src2"), (RESULT, "dst")):
            use = self.uses.get((i, side))
            key = None if use is None else use.key
            if ((i, side) in self.resident and key not in dropped) or key in inner:
                setattr(plan, name, None)
        return plan


def _of_height(uses: Uses, key: Hashable, height: int) -> Grid:
    grid = next(use.grid for use in uses.values() if use.key == key)
    assert grid is not None
    return Grid(grid.n, grid.c, height, grid.row_bytes, grid.used)
