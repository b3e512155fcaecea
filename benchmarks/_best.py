"""The clock of the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def best(work: Callable[[], Any], rounds: int = 5) -> float:
    """Seconds of the fastest of some rounds, after one that does not count (caches, compilation)."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
