"""Budget of compilations in one process: an object that counts, warns, refuses, or starts the process again.

The real in-memory class leaks: after about 119 compilations in one process every further one fails (restriction R1).
Programs that train on the engine count, save their state at 100, exec themselves and resume.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from hexane.errors import UsageError
from hexane.private_api.calls import COMPILES_PER_PROCESS
from hexane.private_api.faults import compile_fault

REAL_LIMIT = COMPILES_PER_PROCESS
"""Compilations that one process was seen to make (restriction R1)."""
SAFE_LIMIT = 100
RESUME = "HEXANE_RESUME"
WARN, RAISE, REEXEC = "warn", "raise", "reexec"


@dataclass
class CompileBudget:
    """Compilations of one process.

    Parameters
    ----------
    limit : compilations that are allowed.
    on_exhausted : "warn" once and go on, "raise" RuntimeFault, or "reexec": call ``save`` and start the process again
        with what it returns in the environment (:func:`resumed` reads it).
    save : for "reexec": writes the caller's state and returns where it is, as a string.
    """

    limit: int = SAFE_LIMIT
    on_exhausted: str = WARN
    save: Callable[[], str] | None = None
    used: int = 0
    _warned: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.on_exhausted not in (WARN, RAISE, REEXEC):
            raise UsageError(f"on_exhausted cannot be {self.on_exhausted!r}", hint=f"{WARN}, {RAISE} or {REEXEC}")
        if self.limit < 1:
            raise UsageError(f"a budget of {self.limit} compilations", hint="at least 1")
        if self.on_exhausted == REEXEC and self.save is None:
            raise UsageError("reexec needs save", hint="a function that writes the state and returns its place")

    @property
    def left(self) -> int:
        """Compilations that are left; 0 when the budget is spent."""
        return max(0, self.limit - self.used)

    def spend(self) -> None:
        """Count one compilation; past the limit, do what ``on_exhausted`` says."""
        with self._lock:
            over = self.used >= self.limit
            if not over or self.on_exhausted == WARN:
                self.used += 1
            warn = over and self.on_exhausted == WARN and not self._warned
            self._warned = self._warned or warn
        if warn:
            warnings.warn(
                f"compilation {self.used}: the budget of {self.limit} is spent, and the real runtime fails at about "
                f"{REAL_LIMIT} in one process",
                stacklevel=3,
            )
        elif over and self.on_exhausted == RAISE:
            raise compile_fault("", "R1")
        elif over and self.on_exhausted == REEXEC:
            assert self.save is not None
            restart(self.save())


def restart(state: str) -> None:
    """Start this process again with ``state`` for :func:`resumed`; does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, RESUME: state})


def resumed() -> str | None:
    """Result of ``save`` before the process was started again; None in a process that was not.

    The variable leaves the environment when it is first read: a child is no process that was started again.
    """
    if (state := os.environ.pop(RESUME, None)) is not None:
        _RESUMED.append(state)
    return _RESUMED[-1] if _RESUMED else None


_RESUMED: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RESUMED.clear)
