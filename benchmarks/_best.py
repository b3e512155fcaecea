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


def best_of_both(one: Callable[[], object], other: Callable[[], object], repeat: int) -> tuple[float, float]:
    """As `best` for two, in turn, so that a machine that is slow for a while is slow for both."""
    times = [(best(one, 1), best(other, 1)) for _ in range(repeat)]
    return min(a for a, _ in times), min(b for _, b in times)
