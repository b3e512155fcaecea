"""Time of compiling the kernels themselves during a run: once on a machine, and no part of the run's own time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

KERNELS = "kernels"
NOTED = 0.5
"""Seconds of compilation from which they are worth a word."""


@contextmanager
def kernel_seconds() -> Iterator[Callable[[], float]]:
    """A function that says how many seconds went into compiling kernels since the block began.

    Kernels that are read from the cache on disk count nothing.
    """
    from numba.core import event

    spent = _Spent()
    with event.install_listener("numba:compile", spent.listener(event)):
        yield lambda: spent.seconds


class _Spent:
    """The time of outermost compilations; one compiles what it calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def listener(self, event: Any) -> Any:
        """A listener of Numba's events that adds to ``seconds``."""
        outer, depth, start = self, [0], [0.0]

        class Listener(event.Listener):
            def on_start(self, _: Any) -> None:
                if not depth[0]:
                    start[0] = perf_counter()
                depth[0] += 1

            def on_end(self, _: Any) -> None:
                depth[0] -= 1
                if not depth[0]:
                    outer.seconds += perf_counter() - start[0]

        return Listener()


def without_kernels(seconds: Mapping[str, float], compiled: float) -> dict[str, float]:
    """The seconds of the stages with those of the compilation taken out of the run and named by themselves."""
    remaining = dict(seconds)
    if compiled >= NOTED and "run" in remaining:
        inside = min(compiled, remaining["run"])
        remaining["run"] -= inside
        remaining[KERNELS] = inside
    return remaining


def seconds_text(seconds: Mapping[str, float]) -> str:
    """``load 0.2 s, run 4.3 s``; the compilation of kernels with the remark that it happens once."""
    once = " (compiled for this machine, once)"
    return ", ".join(f"{stage} {value:.2f} s{once if stage == KERNELS else ''}" for stage, value in seconds.items())
