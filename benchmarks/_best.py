"""The clock of the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def best(work: Callable[[], Any], rounds: int = 5) -> float:
    """Seconds of the fastest of some rounds, after one that does not count (caches, compilation)."""
    work()
    return min(_seconds(work) for _ in range(rounds))


def best_of_both(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """As `best` for two, in turn, so that a machine that is slow for a while is slow for both."""
    one(), other()
    times = [(_seconds(one), _seconds(other)) for _ in range(rounds)]
    return min(a for a, _ in times), min(b for _, b in times)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
