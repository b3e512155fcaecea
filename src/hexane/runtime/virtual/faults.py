"""Things that go wrong on purpose: which call of a virtual engine fails how."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field

TIMEOUT, WEDGE, SHORT, GARBAGE = "timeout", "wedge", "short", "garbage"
"""The engine does not finish; it is wedged before the call; a mapping is shorter than asked; another device answers."""


@dataclass(frozen=True)
class PlannedFault:
    """The ``nth`` call (from 1) named ``call`` fails: with an error number, or in one of the ways above.

    Calls: open, mmap, munmap, close, and requests by name (VERSION, BO_INIT, SUBMIT, ...); "*" counts all of them.
    """

    call: str
    nth: int
    what: int | str


@dataclass
class Faults:
    """The faults of one engine, and how often each call was made."""

    planned: tuple[PlannedFault, ...] = ()
    calls: Counter[str] = field(default_factory=Counter)
    happened: list[PlannedFault] = field(default_factory=list)

    def enter(self, call: str) -> str:
        """Count a call. OSError for one that fails with a number; else the way in which it goes wrong, or ""."""
        self.calls[call] += 1
        self.calls["*"] += 1
        for fault in self.planned:
            if fault.call in (call, "*") and self.calls[fault.call] == fault.nth:
                self.happened.append(fault)
                if isinstance(fault.what, int):
                    raise OSError(fault.what, errno.errorcode.get(fault.what, "fault"))
                return fault.what
        return ""
