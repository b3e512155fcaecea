"""The clock of the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BLOCK_S = 0.05
"""Of one of two that are compared, before the other's turn."""
REST_S = 0.02
"""Between two blocks: threads that wait in a loop for more work give up."""


def best(work: Callable[[], Any], rounds: int = 5) -> float:
    """Seconds of the fastest of some rounds, after one that does not count (caches, compilation)."""
    work()
    return min(_seconds(work) for _ in range(rounds))


def best_of_both(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """As `best` for two, in turn, so that a machine that is slow for a while is slow for both.

    A round is a block of runs of the one, a rest, and a block of the other, so that neither runs beside the threads
    of the other or with the other's data in the caches.
    """
    one(), other()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, found in zip((one, other), times):
            end = time.perf_counter() + BLOCK_S
            while True:
                found.append(_seconds(work))
                if time.perf_counter() > end:
                    break
            time.sleep(REST_S)
    return min(times[0]), min(times[1])


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
