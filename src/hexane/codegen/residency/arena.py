"""Addresses in L2 by live range: first fit, the large ones first.

Apple's compiler names its allocator of L2 ``ffreuse``, and the order of its DRAM tensors ``sizethenliverange``
(``hexane.image.ident``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product

ATTEMPTS = 12
"""How often an order is tried, each time with the block first that found no room."""

BANK_CYCLE = 1024
"""Bytes after which the banks of L2 repeat: moving a region by a multiple changes no conflict."""


@dataclass(eq=False)
class Block:
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
    _at: list[list[Block]] = field(default_factory=list)
    _grain: int = 1

    def __post_init__(self) -> None:
        self._at = [[] for _ in range(self.first, self.last + 1)]

    def live(self, index: int) -> list[Block]:
        """What task ``index`` finds placed."""
        return self._at[index - self.first]

    def place_all(self, blocks: Iterable[Block]) -> Block | None:
        """Give every block a base, or none: then the first one that found no room, in the first of the orders.

        A block that finds none is placed before all others in the next attempt.
        """
        blocks = list(blocks)
        refused = None
        for self._grain, order in product(GRAINS, ORDERS):
            queue = sorted(blocks, key=order)
            for _ in range(ATTEMPTS):
                self._at = [[] for _ in range(self.first, self.last + 1)]
                failed = next((block for block in queue if not self.place(block)), None)
                if failed is None:
                    return None
                refused = refused or failed
                if queue[0] is failed:
                    break
                queue.remove(failed)
                queue.insert(0, failed)
        for block in blocks:
            block.base = -1
        return refused

    def forget(self, blocks: Iterable[Block]) -> None:
        """Take the room of blocks that last one task back; they keep their bases."""
        for block in blocks:
            self.live(block.first).remove(block)

    def place(self, block: Block) -> bool:
        """The lowest gap that is free for as long as the block lives."""
        tasks = self._at[block.first - self.first : block.last + 1 - self.first]
        others = {id(b): b for live in tasks for b in live}
        at = block.offset
        for other in sorted(others.values(), key=lambda b: b.base):
            if other.base - at >= block.size:
                break
            if other.end > at:
                at = aligned(aligned(other.end, self._grain), block.unit, block.offset)
        end = at + block.size
        if end > self.room:
            return False
        if any(end > self.room - self.above.get(i, 0) for i in range(block.first, block.last + 1)):
            return False
        block.base = at
        for live in tasks:
            live.append(block)
        return True

    def top(self, index: int) -> int:
        """The end of the highest block that is live at a task."""
        return max((b.end for b in self.live(index)), default=0)

    def gaps(self, index: int) -> list[tuple[int, int]]:
        """(start, end) of the free pieces at a task, upwards."""
        found, at = [], 0
        for block in sorted(self.live(index), key=lambda b: b.base):
            if block.base > at:
                found.append((at, block.base))
            at = max(at, block.end)
        if at < self.room:
            found.append((at, self.room))
        return found


ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda b: (-b.size.bit_length(), b.first, -b.size),  # those of like size in the order of tasks: they take turns
    lambda b: (-b.size, b.first - b.last, b.first),
)


GRAINS = (1, 8192)
"""What blocks end at multiples of: maps of one shape differ by their row pads, and take turns in slots of one size."""


def aligned(address: int, unit: int, offset: int = 0) -> int:
    """The lowest address from ``address`` on that lies ``offset`` behind a multiple of ``unit``."""
    return address + (offset - address) % unit
