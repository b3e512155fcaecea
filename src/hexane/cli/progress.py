"""A progress bar with the time that is left, on a terminal; a line per stage elsewhere. Both on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Bar:
    """``with Bar() as bar: bar.stage("run", 120); bar.step()``."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._rich: Any = None
        self._task: Any = None
        self._name = ""
        self._start = 0.0

    def __enter__(self) -> Bar:
        if self._terminal and not self._quiet:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._rich = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._rich.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end(kind is None)
        if self._rich is not None:
            self._rich.stop()

    def stage(self, name: str, steps: int | None = None) -> None:
        """Begin a stage; ``steps`` is how often ``step`` will be called, None where that is not known."""
        self._end(True)
        self._name, self._start = name, time.perf_counter()
        if self._rich is not None:
            self._task = self._rich.add_task(name, total=steps)
        elif not self._quiet:
            print(f"  {name} ...", end="", file=sys.stderr, flush=True)

    def step(self) -> None:
        """One step of the stage is done."""
        if self._rich is not None:
            self._rich.advance(self._task)

    def _end(self, good: bool) -> None:
        if not self._name:
            return
        if self._rich is not None:
            self._rich.remove_task(self._task)
        if not self._quiet:
            seconds = f"{time.perf_counter() - self._start:.1f} s" if good else "stopped"
            print(
                f"  {self._name}: {seconds}" if self._rich is not None else f" {seconds}", file=sys.stderr, flush=True
            )
        self._name = ""


class Steps:
    """Progress of work in pieces, with its rate and the time that is left; elsewhere than on a terminal a line now and
    then. ``hear`` is told what is counted, how many are done, of how many.
    """

    EVERY_S = 10.0

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet, self._terminal = quiet, sys.stderr.isatty()
        self._start = self._said = time.perf_counter()

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and not self._quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def hear(self, what: str, done: int, of: int) -> None:
        """So many are done."""
        now = time.perf_counter()
        if self._quiet or (now - self._said < (0.2 if self._terminal else self.EVERY_S)):
            return
        self._said = now
        rate = done / max(now - self._start, 1e-9)
        remaining_s = (of - done) / rate if rate else 0.0
        text = f"  {done:,} of {of:,} {what}, {rate:.3g}/s, {_duration(remaining_s)} left"
        print(
            f"\r\033[K{text}" if self._terminal else text, end="" if self._terminal else "\n", file=sys.stderr,
            flush=True,
        )  # fmt: skip


def _duration(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
