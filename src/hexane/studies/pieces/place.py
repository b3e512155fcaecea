"""Places where pieces are computed, and what became of the pieces."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from hexane.errors import HexaneError
from hexane.studies.pieces.piece import Piece, Result

Outcomes = Generator[tuple[Piece, Result | HexaneError], None, None]


@dataclass
class Counts:
    """Of a run: pieces that were computed, that were there already, and that had to be given out again."""

    computed: int = 0
    kept: int = 0
    again: int = 0


@dataclass
class Workers:
    """Place where pieces are computed.

    workers : processes on this machine; 1 is this process, without Dask.
    scheduler : the address of a Dask scheduler, in place of processes of our own.
    memory : of each process, as Dask writes it ("2GB"); "auto" shares the machine's.
    patience_s : how long a scheduler that does not answer is waited for.
    processes : the processes of this machine, where they were started ahead of the first piece (``started``).
    """

    workers: int = 1
    scheduler: str | None = None
    memory: str = "auto"
    patience_s: float = 600.0
    counts: Counts = field(default_factory=Counts)
    processes: Future[Any] | None = field(default=None, repr=False)
