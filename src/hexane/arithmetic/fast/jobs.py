"""Prepared computations that compiled code runs one after the other, on all threads, without a look at Python.

A job is a record of numbers (int64): what to compute, where its operands and its result stand, and its phases. What
fills and reads records stands beside each computation (`dense_job`, `few_pixels_job`, `planar_job`, `windows_job`,
`depthwise`); `Span` runs a list of them. A phase is done when all of its units are; the units of a phase do not depend
on each other, and large phases are shared between threads in pieces. Every thread takes the next piece when it is free,
so one that is held up by other work on the machine holds up no more than its piece.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import carray
from numpy.lib.stride_tricks import as_strided

from hexane.arithmetic.fast.call import call_body, call_pause, look, pause_address, pointer, show, take_ticket
from hexane.arithmetic.fast.compiled import callback, compiled
from hexane.arithmetic.fast.workers import PIECES, pool, thread_count
from hexane.arithmetic.fast.workspace import Workspace
from hexane.rounding import ceil_div

AXES = 5
KERNELS = 0
SOURCE = 1
OTHER = SOURCE + 1 + 2 * AXES
TARGET = OTHER + 1 + 2 * AXES
MORE = TARGET + 1 + 2 * AXES
"""Places in a record: the address of the vector code's addresses, three arrays of five axes, and what else there is."""

COST = 6_000
"""Nanoseconds of one thread that make a piece of work."""

LOOKS = 1 << 12
"""How often a thread looks for work, or for the end of others' work, before it lets others run between two looks."""

PATIENCE = 1 << 16
"""How often it does that before it goes."""


@dataclass(frozen=True)
class Phase:
    """``units`` of work, each of about ``cost`` nanoseconds."""

    units: int
    cost: float


@dataclass(frozen=True)
class CompiledJob:
    """One computation, ready to run again and again.

    Parameters
    ----------
    body : what computes it, see `callback`.
    record : its numbers.
    phases : how much there is to do, phase by phase.
    room : bytes of memory that it needs while it runs.
    held : the arrays whose addresses the record has.
    first : what the first phase leaves in the room until the job is done, if a job that comes next may find it there.
    """

    body: Callable[..., None]
    record: np.ndarray
    phases: tuple[Phase, ...]
    room: int = 0
    held: tuple[object, ...] = ()
    first: bytes | None = None


def address_of(x: np.ndarray) -> int:
    """Address of an array's first element."""
    address: int = x.__array_interface__["data"][0]
    return address


def array_numbers(x: np.ndarray) -> tuple[int, ...]:
    """An array of halfwords with five axes: its address, extents and strides."""
    return (address_of(x), *x.shape, *x.strides)


def table_numbers(table: np.ndarray | None) -> tuple[int, int]:
    """Operands of `table_of`: the address and the size of a table, or of none."""
    return (0, 0) if table is None else (address_of(table), table.size)


def double_number(value: float) -> int:
    """The bits of a float64, for `call.bits_double`."""
    return int(np.float64(value).view(np.int64))


def record_of(kernels: np.ndarray, *numbers: int) -> np.ndarray:
    """A record: the vector code's addresses, then what `SOURCE`, `OTHER`, `TARGET` and `MORE` say."""
    return np.array([address_of(kernels), *numbers], np.int64)


def joined(x: np.ndarray) -> np.ndarray | None:
    """(N, G, C, H, W) as (N, G * C, H, W) where that needs no copy."""
    n, g, c, h, w = x.shape
    if g > 1 and c > 1 and x.strides[1] != c * x.strides[2]:
        return None
    return as_strided(x, (n, g * c, h, w), (x.strides[0], x.strides[2 if c > 1 else 1], *x.strides[3:]))


NOTHING = (0,) * (1 + 2 * AXES)
"""An operand that there is not."""


@compiled(inner=True)
def numbers_at(record):
    """The numbers of a record, by its address; their count does not matter."""
    return carray(pointer(record), (1 << 10,), np.int64)


@compiled(inner=True)
def kernels_of(numbers):
    """The addresses of the vector code."""
    return carray(pointer(numbers[KERNELS]), (64,), np.int64)


@compiled(inner=True)
def halves_of(numbers, at):
    """An array of a record as halfwords, five axes."""
    one = carray(pointer(numbers[at]), (1,), np.uint16)
    shape = (numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4], numbers[at + 5])
    steps = (numbers[at + 6], numbers[at + 7], numbers[at + 8], numbers[at + 9], numbers[at + 10])
    return as_strided(one, shape, steps)


@compiled(inner=True)
def table_of(numbers, at):
    """The 65536 results of a function, or none: an address and a size."""
    return carray(pointer(numbers[at]), (numbers[at + 1],), np.uint16)


@compiled(inner=True)
def _share(phases, i, at, room):
    """Pieces of phase i, until all are taken; what is taken and what is done is counted beside `at`."""
    body, record, phase, units, grain = phases[i, 0], phases[i, 1], phases[i, 2], phases[i, 3], phases[i, 4]
    pieces = -(-units // grain)
    ticket = take_ticket(at + 8 * (1 + i))
    while ticket < pieces:
        call_body(body, record, phase, ticket * grain, min(units, (ticket + 1) * grain), room)
        take_ticket(at + 8 * (1 + phases.shape[0] + i))
        ticket = take_ticket(at + 8 * (1 + i))
    return pieces


@compiled()
def _lead(phases, control, room, pause):
    """Every phase in order, with whoever helps; phases: (count, 5): body, record, phase, units, units of a piece.

    pause: the address of what lets other threads run, see `pause_address`.
    """
    count = phases.shape[0]
    at = control.ctypes.data
    for i in range(count):
        units = phases[i, 3]
        if phases[i, 4] >= units:
            call_body(phases[i, 0], phases[i, 1], phases[i, 2], 0, units, room)
            continue
        show(at, i)
        pieces = _share(phases, i, at, room)
        looked = 0
        while look(at + 8 * (1 + count + i)) < pieces:
            looked += 1
            if looked > LOOKS:
                call_pause(pause)
    show(at, count)


@compiled()
def _help(phases, control, room, pause):
    """Pieces of the phase that is shown, until there are no phases, or none came for long.

    Who went does not come back, so it goes late; a thread that waits that long takes the processor from nobody.
    """
    count = phases.shape[0]
    at = control.ctypes.data
    finished_phases, looked = -1, 0
    while looked < LOOKS + PATIENCE:
        i = look(at)
        if i >= count:
            return
        if i <= finished_phases:
            looked += 1
            if looked > LOOKS:
                call_pause(pause)
            continue
        _share(phases, i, at, room)
        finished_phases, looked = i, 0


@cache
def _callback(body: Callable[..., None]) -> int:
    return callback(body)


class Span:
    """Jobs that run one after the other."""

    def __init__(self, jobs: Sequence[CompiledJob]) -> None:
        self.held = jobs
        self.room = max(job.room for job in jobs)
        rows: list[tuple[int, ...]] = []
        before: bytes | None = None
        for job in jobs:
            where = _callback(job.body), address_of(job.record)
            phases = [(*where, i, phase.units, _grain(phase)) for i, phase in enumerate(job.phases)]
            rows += phases[1:] if job.first is not None and job.first == before else phases
            before = job.first
        self.phases = np.array(rows, np.int64)
        self.shared = any(units > grain for _, _, _, units, grain in rows)
        self.control = np.zeros(1 + 2 * len(rows), np.int64)

    def run(self) -> None:
        """All jobs, once; not from two threads at a time."""
        control = self.control
        control[0], control[1:] = -1, 0
        with Workspace() as space:
            room = space.empty(self.room + 64, np.uint8)
            address = address_of(room)
            helpers: list[Future[None]] = []
            if self.shared:
                with suppress(RuntimeError):  # no further thread to be had, or the interpreter ends
                    for _ in range(thread_count() - 1):
                        helpers.append(pool(os.getpid(), thread_count()).submit(self._help, room))
            try:
                _lead(self.phases, control, address, pause_address())
            finally:
                control[0] = len(self.phases)
                for helper in helpers:
                    if not helper.cancel():
                        helper.result()

    def _help(self, room: np.ndarray) -> None:
        _help(self.phases, self.control, address_of(room), pause_address())


def pieces_for(cost: float) -> int:
    """In how many pieces to share work of so many nanoseconds: each pays, and there are not too many."""
    return 1 if thread_count() == 1 else max(1, min(int(cost / COST), PIECES * thread_count()))


def _grain(phase: Phase) -> int:
    return ceil_div(phase.units, min(phase.units, pieces_for(phase.units * phase.cost)))
