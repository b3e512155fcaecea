"""Addresses in L2 by live range: first fit, the large ones first.

Apple's compiler names its allocator of L2 ``ffreuse``, and the order of its DRAM tensors ``sizethenliverange``
(``hexane.image.ident``).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, product
from operator import attrgetter

ATTEMPTS = 12
"""How often an order is tried, each time with the block first that found no room."""

STRETCH = 64
"""Tasks whose blocks are listed together: one that lives shortly is compared with those near it."""

BANK_CYCLE = 1024
"""Bytes after which the banks of L2 repeat: moving a region by a multiple changes no conflict."""


@dataclass(eq=False)
class ArenaBlock:
    """Bytes of L2 that tasks ``first`` to ``last`` need in one piece; ``base`` once it is placed."""

    size: int
    first: int
    last: int
    unit: int = BANK_CYCLE
    offset: int = 0  # the base is this far from a multiple of ``unit``
    base: int = -1

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass
class Arena:
    """L2 over the tasks ``first`` to ``last`` of a program; ``above`` of a task: bytes that stay free at the end."""

    first: int
    last: int
    room: int
    above: dict[int, int] = field(default_factory=dict)
    _placed: dict[int, list[ArenaBlock]] = field(default_factory=dict)
    """By stretch of tasks in which they are live, upwards; of one base in the order of tasks."""
    _live: dict[int, list[ArenaBlock]] = field(default_factory=dict)
    """By task, upwards."""
    _grain: int = 1

    def live(self, index: int) -> list[ArenaBlock]:
        """Places that task ``index`` finds taken, upwards."""
        return self._live.get(index, [])

    def place_all(self, blocks: Iterable[ArenaBlock]) -> ArenaBlock | None:
        """Give every block a base, or none: then the first one that found no room, in the first of the orders.

        A block that finds none is placed before all others in the next attempt.
        """
        blocks = list(blocks)
        ceilings = self._ceilings(blocks)
        refused = None
        for self._grain, order in product(GRAINS, ORDERS):
            queue = sorted(blocks, key=order)
            for _ in range(ATTEMPTS):
                self._placed = {}
                failed = next((block for block in queue if not self._place(block, ceilings[block])), None)
                if failed is None:
                    self._note_live()
                    return None
                refused = refused or failed
                if queue[0] is failed:
                    break
                queue.remove(failed)
                queue.insert(0, failed)
        for block in blocks:
            block.base = -1
        return refused

    def forget(self, blocks: Iterable[ArenaBlock]) -> None:
        """Take the room of blocks that last one task back; they keep their bases."""
        for block in blocks:
            self.live(block.first).remove(block)

    def _ceilings(self, blocks: Iterable[ArenaBlock]) -> dict[ArenaBlock, int]:
        """The highest end of each block: what is above all tasks that it lives through stays free."""
        above = [self.above.get(i, 0) for i in range(self.first, self.last + 1)]
        return {b: self.room - max(above[b.first - self.first : b.last + 1 - self.first]) for b in blocks}

    def _place(self, block: ArenaBlock, ceiling: int) -> bool:
        """The lowest gap that is free for as long as the block lives."""
        first, last, highest = block.first, block.last, ceiling - block.size
        at = block.offset
        for other in self._between(first, last):
            if other.last < first or last < other.first:
                continue
            if other.base - at >= block.size:
                break
            if other.end > at:
                at = aligned(aligned(other.end, self._grain), block.unit, block.offset)
                if at > highest:
                    return False
        if at > highest:
            return False
        block.base = at
        for stretch in range(first // STRETCH, last // STRETCH + 1):
            insort(self._placed.setdefault(stretch, []), block, key=UPWARDS)
        return True

    def _between(self, first: int, last: int) -> Iterable[ArenaBlock]:
        """Places taken in the stretches that two tasks and those between them stand in, upwards."""
        stretches = [self._placed.get(i, []) for i in range(first // STRETCH, last // STRETCH + 1)]
        if len(stretches) == 1:
            return stretches[0]
        return sorted(dict.fromkeys(chain.from_iterable(stretches)), key=UPWARDS)

    def _note_live(self) -> None:
        self._live = {i: [] for i in range(self.first, self.last + 1)}
        for block in self._between(self.first, self.last):
            for i in range(block.first, block.last + 1):
                self._live[i].append(block)

    def top(self, index: int) -> int:
        """The end of the highest block that is live at a task."""
        return max((b.end for b in self.live(index)), default=0)

    def gaps(self, index: int) -> list[tuple[int, int]]:
        """(start, end) of the free pieces at a task, upwards."""
        spaces, at = [], 0
        for block in self.live(index):
            if block.base > at:
                spaces.append((at, block.base))
            at = max(at, block.end)
        if at < self.room:
            spaces.append((at, self.room))
        return spaces


UPWARDS = attrgetter("base", "first")

ORDERS: tuple[Callable[[ArenaBlock], tuple[int, ...]], ...] = (
    lambda b: (-b.size.bit_length(), b.first, -b.size),  # those of like size in the order of tasks: they take turns
    lambda b: (-b.size, b.first - b.last, b.first),
)


GRAINS = (1, 8192)
"""What blocks end at multiples of: maps of one shape differ by their row pads, and take turns in slots of one size."""


def aligned(address: int, unit: int, offset: int = 0) -> int:
    """The lowest address from ``address`` on that lies ``offset`` behind a multiple of ``unit``."""
    return address + (offset - address) % unit
