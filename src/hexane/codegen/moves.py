"""Copies that need no task: what they copy is written where it is wanted, or read where it stands.

A task that only copies rows from one buffer to another says that the rows of the first are those of the second. Two
things can follow, as in the coalescing of registers:

* all readers of the second read the first instead (a slice, a reshape, a part of a split), or
* all tasks that write or read the first use the second instead (a concatenation, a map inside its padding).

Either changes only where DMAs start and how far their steps are. Where the rows stand in one piece the steps stay
(``in-place-moves``: one task per input with another base has run on hardware, docs/reference/engine-h13.md 13,
"concat"); else they change (``strided-moves``, INFERRED).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.operands import operand_of
from hexane.codegen.operations import PeKind, SourceType
from hexane.codegen.plan import RESULT, SIDES, SOURCE, Buffer, Dma, Plan, Space
from hexane.frozen import replace, slot_init
from hexane.lowering.transformations import Transformations
from hexane.rounding import ceil_div

BURST = 64  # every DMA starts at a burst, and steps by whole ones
MOST_BURSTS = 1 << 21  # of a walk that is looked at burst by burst
BY_STRIDES = "a value in the place of another, by strides"

Key = tuple[int, Buffer]
"""A buffer of a program: the number of its fragment (-1 for values of the graph), and the buffer."""


@slot_init
@dataclass(frozen=True, slots=True)
class Walk:
    """Extent of one DMA: its start, and extent and step in bytes of each axis.

    Axes are groups, depth, channels, rows, bursts of a row.
    """

    start: int
    extents: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.start + BURST + sum((n - 1) * step for n, step in zip(self.extents, self.steps))

    @property
    def bursts(self) -> int:
        return prod(self.extents)

    def places(self) -> np.ndarray:
        """Bursts counted from the buffer's start, axes as they are."""
        at = np.array(self.start // BURST)
        for n, step in zip(self.extents, self.steps):
            if n != 1:
                at = np.add.outer(at, np.arange(n) * (step // BURST))
        return at.reshape(self.extents)

    def spans(self, other: Walk) -> bool:
        """True where one begins before the other ends, both ways."""
        return self.start < other.end and other.start < self.end

    def meets(self, other: Walk) -> bool:
        """True where both touch one burst."""
        if not self.spans(other):
            return False
        if max(self.bursts, other.bursts) > MOST_BURSTS:
            return True
        boxes = _boxes(self, other)
        if boxes is not None:
            return all(a <= d and c <= b for (a, b), (c, d) in zip(*boxes))
        first, end = min(self.start, other.start), max(self.end, other.end)
        touched = np.zeros((end - first) // BURST + 1, bool)
        touched[self.places() - first // BURST] = True
        return bool(touched[other.places() - first // BURST].any())


Box = list[tuple[int, int]]


def _boxes(*walks: Walk) -> list[Box] | None:
    """First and last digit of each walk by axis, where every place of both has one number in steps of both; else None.

    That is so where no walk reaches on an axis as far as the next larger step.
    """
    first = min(walk.start for walk in walks)
    steps = {step for walk in walks for n, step in zip(walk.extents, walk.steps) if n > 1}
    if any(at < BURST or at % BURST for at in steps) or any(walk.start % BURST for walk in walks):
        return None
    upwards = sorted(steps | {BURST})
    boxes = []
    for walk in walks:
        box, rest, span = [], walk.start - first, 0
        for step in reversed(upwards):
            digit, rest = divmod(rest, step)
            box.append((digit, digit + sum(n - 1 for n, own in zip(walk.extents, walk.steps) if own == step)))
        for (_, last), step in zip(reversed(box), upwards):
            if span >= step:
                return None
            span += last * step
        boxes.append(box)
    return boxes


def walk_of(plan: Plan, side: str) -> Walk | None:
    """Bytes that a side of a task touches; None where its walk is not a plain one."""
    dma = plan.operand(side).dma
    if dma is None or dma.interleave != 1 or plan.source.staged or plan.result.staged:
        return None
    if side == RESULT:
        apart = plan.pe.reduces or plan.result.transposed
    else:
        apart = (
            plan.source.transposed if side == SOURCE else plan.second.transposed or plan.pe.kind is PeKind.SCALE_SHIFT
        )
    if apart:
        return None
    g, d, c, h, w = operand_of(plan, side).extents
    return Walk(
        dma.offset, (g, d, c, h, ceil_div(w * dma.element, BURST)), (dma.group, dma.depth, dma.plane, dma.row, BURST)
    )


@dataclass(frozen=True)
class Same:
    """Bytes of one buffer that are those of another: axes of extent and both steps."""

    there: Walk
    here: Walk
    strided: bool  # whether accesses may step otherwise there

    @cached_property
    def piece(self) -> int | None:
        """Distance between the two where both are one piece; None where they are not."""
        axes = [axis for axis in zip(self.there.steps, self.here.steps, self.there.extents, strict=True) if axis[2] > 1]
        reach = BURST
        for there, here, extent in sorted(axes):
            if there != reach or here != reach:
                return None
            reach *= extent
        return self.here.start - self.there.start

    @cached_property
    def table(self) -> np.ndarray | None:
        """Burst of the other buffer by burst from the start of ``there``, -1 where there is none; None where a burst is
        in several places."""
        bursts = np.full((self.there.end - self.there.start) // BURST, -1, np.int64)
        bursts[self.there.places() - self.there.start // BURST] = self.here.places()
        return bursts if np.count_nonzero(bursts >= 0) == self.there.bursts else None

    def moved(self, plan: Plan, side: str) -> Dma | None:
        """The side's DMA in the other buffer (its name is left), None where it reaches further or has no even steps."""
        dma, walk = plan.operand(side).dma, walk_of(plan, side)
        if dma is None or walk is None or walk.start < self.there.start or walk.end > self.there.end:
            return None
        if self.piece is not None:
            return dma.moved(self.piece)
        if not self.strided or max(walk.bursts, self.there.bursts) > MOST_BURSTS:
            return None
        along = self._along(walk)
        if along is not None:
            return _stepping(dma, along) if walk.extents[4] == 1 or along.steps[4] == BURST else None
        if self.table is None:
            return None
        places = self.table[walk.places() - self.there.start // BURST]
        if places.min() < 0:
            return None
        first = int(places.reshape(-1)[0])
        steps = [
            int(places[(0,) * axis + (1,)].reshape(-1)[0]) - first if extent > 1 else 0
            for axis, extent in enumerate(walk.extents)
        ]
        if (walk.extents[4] > 1 and steps[4] != 1) or min(steps) < 0:
            return None
        even = Walk(first * BURST, walk.extents, tuple(step * BURST for step in steps))
        return _stepping(dma, even) if np.array_equal(even.places(), places) else None

    def _along(self, walk: Walk) -> Walk | None:
        """Place of a walk in the other buffer whose steps are those of ``there``; None where that does not say."""
        boxes = _boxes(self.there, walk)
        if boxes is None or any(c < a or b < d for (a, b), (c, d) in zip(*boxes)):
            return None
        axes = [axis for axis in zip(self.there.extents, self.there.steps, self.here.steps) if axis[0] > 1]
        here = {step: step_of for _, step, step_of in axes}
        steps = {step for n, step in zip(walk.extents, walk.steps) if n > 1}
        if len(here) != len(axes) or not steps <= here.keys() or any(at < 0 or at % BURST for at in here.values()):
            return None
        start = self.here.start
        for step, (first, _), (digit, _) in zip(sorted(here.keys() | {BURST}, reverse=True), *boxes):
            start += (digit - first) * here.get(step, 0)
        return Walk(start, walk.extents, tuple(here[s] if n > 1 else 0 for n, s in zip(walk.extents, walk.steps)))


def _stepping(dma: Dma, walk: Walk) -> Dma:
    """A DMA that goes where a walk goes; its steps along axes of one element stay."""
    group, depth, plane, row = (
        step if extent > 1 else old
        for step, extent, old in zip(walk.steps, walk.extents, (dma.group, dma.depth, dma.plane, dma.row))
    )
    return replace(dma, offset=walk.start, row=row, plane=plane, depth=depth, group=group)


class BufferUses:
    """The tasks of a run in order, and who touches which buffer."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        values: dict[str, Tensor],
        surfaces: Mapping[str, bool],
        on: Transformations,
    ) -> None:
        self.on = on
        self.fragments = fragments
        self.values = values
        self.surfaces = surfaces
        self.plans: list[Plan] = []
        self.fragment_of: list[int] = []
        for number, fragment in enumerate(fragments):
            self.plans += fragment.plans
            self.fragment_of += [number] * len(fragment.plans)
        self.users: dict[Key, list[tuple[int, str]]] = defaultdict(list)
        for index, plan in enumerate(self.plans):
            for side in SIDES:
                if (dma := plan.operand(side).dma) is not None:
                    self.users[self.key(index, dma.buffer)].append((index, side))
            if plan.kernel_buffer is not None:
                self.users[self.key(index, plan.kernel_buffer)].append((index, "kernel"))
        self.gone: set[int] = set()

    def key(self, index: int, buffer: Buffer) -> Key:
        return (-1 if buffer.space is Space.SURFACE else self.fragment_of[index], buffer)

    def is_copy(self, index: int) -> bool:
        """True where a task does nothing but copy rows from DRAM to DRAM."""
        plan = self.plans[index]
        if plan.unit != "NE" or not plan.ne.plain_copy or plan.out_trans or plan.kernel is not None or plan.holds:
            return False
        if plan.source.element is not plan.result.element or plan.dtid is not None:
            return False
        if (
            plan.source.dma is None
            or plan.result.dma is None
            or plan.source.staged
            or plan.result.staged
            or plan.streams
            or plan.streams_in
        ):
            return False
        if index and self.plans[index - 1].holds:
            return False
        by_dma = plan.source.type in (SourceType.DMA_KEEP, SourceType.DMA_STREAM)
        return by_dma and (plan.c, plan.h, plan.w) == (plan.cout, plan.hout, plan.columns)

    # -- one copy ----------------------------------------------------------------------------------------------------

    def remove(self, index: int) -> bool:
        """Make do without a copy if that is possible."""
        plan = self.plans[index]
        source, target = walk_of(plan, SOURCE), walk_of(plan, RESULT)
        assert plan.source.dma is not None and plan.result.dma is not None
        if (
            source is None
            or target is None
            or Space.CONST in (plan.source.dma.buffer.space, plan.result.dma.buffer.space)
        ):
            return False
        a, b = self.key(index, plan.source.dma.buffer), self.key(index, plan.result.dma.buffer)
        if a == b:
            return False
        return self._read_there(index, a, b, Same(target, source, self.on.strided_moves)) or self._written_here(
            index, a, b, Same(source, target, self.on.strided_moves)
        )

    def _read_there(self, index: int, a: Key, b: Key, same: Same) -> bool:
        """Readers of the copy read what it copies."""
        if b[1].name in self.surfaces and b[0] < 0:
            return False
        users = [user for user in self.users[b] if user != (index, RESULT)]
        if any(side == RESULT or other < index for other, side in users):
            return False
        last = max((other for other, _ in users), default=index)
        if any(side == RESULT and index < other <= last for other, side in self.users[a]):
            return False
        return self._redirect(index, users, b, a, same)

    def _written_here(self, index: int, a: Key, b: Key, same: Same) -> bool:
        """Writers and readers of what is copied use the copy's place."""
        if a[1].name in self.surfaces and a[0] < 0:
            return False
        if self.surfaces.get(b[1].name) is False and b[0] < 0:
            return False
        users = [user for user in self.users[a] if user != (index, SOURCE)]
        writers = [other for other, side in users if side == RESULT]
        if not writers or max(writers) > index:
            return False
        for other, side in self.users[b]:
            if other == index or (side != RESULT and other < min(writers)):
                continue
            touched = None if side == "kernel" else walk_of(self.plans[other], side)
            if (side == RESULT or other < index) and (touched is None or touched.meets(same.here)):
                return False
        return self._redirect(index, users, a, b, same)

    def _redirect(self, index: int, users: Sequence[tuple[int, str]], old: Key, new: Key, same: Same) -> bool:
        """Let tasks use ``new`` for ``old``, and drop the copy; False, and nothing done, where one of them cannot."""
        targets: list[Dma | int] = []
        for other, side in users:
            if side == "kernel":
                if same.piece is None or same.there.start or not self._is_whole(old, same):
                    return False
                targets.append(same.piece)
                continue
            there = same.moved(self.plans[other], side)
            if there is None:
                return False
            targets.append(there)
        if any(self.fragment_of[other] != self.fragment_of[index] for other, _ in users):
            new = self._shared(new)
        for (other, side), dma in zip(users, targets):
            plan = self.plans[other]
            if isinstance(dma, int):
                assert plan.kernel is not None
                kernel = replace(plan.kernel, source=new[1], offset=plan.kernel.offset + dma)
                plan = plan.but(kernel=kernel)
            else:
                plan = plan.on(side, dma=replace(dma, buffer=new[1]))
            if same.piece is None and not plan.doubt:
                plan = plan.inferred(BY_STRIDES)
            self.plans[other] = plan
        self.users[new] = [user for user in self.users[new] if user[0] != index] + list(users)
        self.users.pop(old, None)
        self.gone.add(index)
        return True

    def _is_whole(self, key: Key, same: Same) -> bool:
        """True where a correspondence says of a buffer's every byte where it is."""
        size = self.values[key[1].name].bytes if key[0] < 0 else self.fragments[key[0]].scratch[key[1].name]
        return same.there.start == 0 and same.there.end >= size

    def _shared(self, key: Key) -> Key:
        """A buffer that other fragments may use too: a workspace becomes a value of the program."""
        number, buffer = key
        if number < 0:
            return key
        name = f"{number}:{buffer.name}"
        shared = Buffer(name, Space.SURFACE)
        size = self.fragments[number].scratch[buffer.name]
        self.values[name] = Tensor(shared, 1, 1, ceil_div(size, BURST), BURST // 2)
        for other, side in self.users[key]:
            plan = self.plans[other]
            if side == "kernel":
                assert plan.kernel is not None
                self.plans[other] = plan.but(kernel=replace(plan.kernel, source=shared))
            elif (dma := plan.operand(side).dma) is not None:
                self.plans[other] = plan.on(side, dma=replace(dma, buffer=shared))
        self.users[-1, shared] = self.users.pop(key)
        return (-1, shared)

    def close(self) -> None:
        """Take the dropped tasks out of their fragments."""
        index = 0
        for fragment in self.fragments:
            indices = [i for i in range(index, index + len(fragment.plans)) if i not in self.gone]
            place = {i - index: at for at, i in enumerate(indices)}
            index += len(fragment.plans)
            plans = [self.plans[i] for i in indices]
            fragment.plans = [plan if plan.dtid is None else plan.but(dtid=place[plan.dtid]) for plan in plans]


def remove(
    fragments: Sequence[Fragment],
    values: dict[str, Tensor],
    inputs: Iterable[str],
    outputs: Iterable[str],
    on: Transformations,
) -> int:
    """Take copies out of fragments, in order, where no task is needed for them; returns how many.

    ``values`` gets a row for each workspace that several fragments share afterwards.
    """
    if not on.in_place_moves:
        return 0
    program = BufferUses(fragments, values, {**dict.fromkeys(inputs, False), **dict.fromkeys(outputs, True)}, on)
    for index in range(len(program.plans)):
        if program.is_copy(index):
            program.remove(index)
    program.close()
    return len(program.gone)
