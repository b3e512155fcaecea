"""State of the real runtime per process and per machine: counters, the cache of compiled programs, poison."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from hexane.private_api.budget import REAL_LIMIT
from hexane.private_api.calls import BYTES_LOADED, PROGRAMS_LOADED
from hexane.private_api.faults import SURFACE, compile_fault, inference_fault, load_fault

CACHED = 256


@dataclass
class Process:
    """The state that a model with ``quirks=True`` shares with the other models of its process."""

    compiles: int = 0
    loaded: int = 0
    loaded_bytes: int = 0
    poisoned: bool = False
    cache: OrderedDict[str, Any] = field(default_factory=OrderedDict)
    most_compiles: int = REAL_LIMIT
    most_loaded: int = PROGRAMS_LOADED
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def compile(self) -> None:
        """Count a compilation; past the limit it fails without a message."""
        with self.lock:
            if self.compiles >= self.most_compiles:
                raise compile_fault("", "R1")
            self.compiles += 1

    def load(self, size: int) -> None:
        """Count a loaded program of ``size`` bytes."""
        with self.lock:
            if self.loaded >= self.most_loaded:
                raise load_fault()
            if self.loaded_bytes + size > BYTES_LOADED:
                raise load_fault(rule="R4")
            self.loaded += 1
            self.loaded_bytes += size

    def unload(self, size: int) -> None:
        """Free the place of a loaded program."""
        with self.lock:
            self.loaded -= 1
            self.loaded_bytes -= size

    def evaluate(self) -> None:
        """Fail as every evaluation of a spoiled process does."""
        if self.poisoned:
            raise inference_fault(SURFACE, "O7")

    def cached(self, key: str) -> Any:
        """A compiled program of the same text and dictionary, whatever the files held; None when there is none."""
        with self.lock:
            return self.cache.get(key)

    def remember(self, key: str, compiled: Any) -> None:
        """Keep a compiled program under its identifier."""
        with self.lock:
            self.cache[key] = compiled
            while len(self.cache) > CACHED:
                self.cache.popitem(last=False)


PROCESS = Process()
"""The process that models share unless they are given another one."""
