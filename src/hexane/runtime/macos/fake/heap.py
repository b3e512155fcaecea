"""Counted objects: what is retained, released, autoreleased; use of a freed object ends the process, as it may."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from hexane.private_api.faults import ProcessCrash
from hexane.rounding import align

STEP = 0x40


@dataclass
class Thing:
    """An object: its class, what it holds, its count, and the objects that it retains."""

    kind: str
    value: Any = None
    count: int = 1
    parts: tuple[int, ...] = ()


@dataclass
class Heap:
    """Objects by address; pools by thread."""

    things: dict[int, Thing] = field(default_factory=dict)
    freed: dict[int, str] = field(default_factory=dict)
    pools: dict[int, list[list[int]]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    at: int = 0x1_0000_0000

    def new(self, kind: str, value: Any = None, parts: tuple[int, ...] = ()) -> int:
        """An object with a count of 1; its parts are retained."""
        for part in parts:
            self.retain(part)
        address = self.room(STEP)
        self.things[address] = Thing(kind, value, 1, parts)
        return address

    def passing(self, kind: str, value: Any = None, parts: tuple[int, ...] = ()) -> int:
        """An object that the pool releases, as methods return it."""
        address = self.new(kind, value, parts)
        if self.own_pools:
            self.own_pools[-1].append(address)
        else:
            self.complaints.append(f"a {kind} was autoreleased with no pool in place: it leaks")
        return address

    def room(self, size: int) -> int:
        """Addresses that nothing else has."""
        at, self.at = self.at, self.at + align(size, STEP)
        return at

    def thing(self, address: int, *kinds: str) -> Thing:
        """The object; ProcessCrash for nil, a freed one, or one of another class."""
        entry = self.things.get(address)
        if entry is None:
            what = f"a {self.freed[address]} that was released" if address in self.freed else "an address of nothing"
            raise ProcessCrash(f"EXC_BAD_ACCESS: {what if address else 'nil'} was used")
        if kinds and entry.kind not in kinds:
            raise ProcessCrash(f"-[{entry.kind} ...]: unrecognized selector: {' or '.join(kinds)} was expected")
        return entry

    def value(self, address: int, *kinds: str) -> Any:
        """Contents of an object."""
        return self.thing(address, *kinds).value

    def retain(self, address: int) -> int:
        self.thing(address).count += 1
        return address

    def release(self, address: int) -> list[Thing]:
        """Count down; the objects that ended by it."""
        entry = self.thing(address)
        entry.count -= 1
        if entry.count:
            return []
        del self.things[address]
        self.freed[address] = entry.kind
        return [entry, *(ended for part in entry.parts for ended in self.release(part))]

    @property
    def own_pools(self) -> list[list[int]]:
        """The pools of this thread, the innermost last."""
        return self.pools.setdefault(get_ident(), [])

    def push(self) -> int:
        self.own_pools.append([])
        return len(self.own_pools)

    def pop(self, token: int) -> list[Thing]:
        """Release what the pool of this token and pools inside it hold."""
        pools = self.own_pools
        if not 1 <= token <= len(pools):
            raise ProcessCrash("an autorelease pool was popped that is not in place")
        ended = []
        while len(pools) >= token:
            for address in pools.pop():
                ended += self.release(address)
        return ended
