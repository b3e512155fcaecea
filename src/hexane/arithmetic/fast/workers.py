"""A few threads that share one list of tasks; compiled code releases the interpreter while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from itertools import count
from queue import Empty, SimpleQueue
from threading import get_ident

import numpy as np

from hexane.rounding import ceil_div


@lru_cache(maxsize=1)
def thread_count() -> int:
    """HEXANE_THREADS, or the processors that this process may use; looked up once."""
    forced = os.environ.get("HEXANE_THREADS", "")
    if forced.isdigit() and int(forced) > 0:
        return int(forced)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


PIECES = 4
"""Pieces of work per thread: enough to even out their lengths."""


def pieces_of(cost: int, enough: int) -> int:
    """In how many pieces to share work: each of `enough` cost to pay for waking a thread, and not too many."""
    return max(1, min(cost // enough, PIECES * thread_count()))


@lru_cache(maxsize=1)
def pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of this process."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hexane")


class _Pieces:
    """The pieces of one computation: taken one by one by every thread that helps, until there are no more.

    It holds what the pieces write to. Compiled code writes to addresses, so that memory must not go away, and must
    not serve anything else, before the last thread has left.
    """

    def __init__(self, work: Callable[[int, int], None], total: int, grain: int) -> None:
        self.work, self.total, self.grain = work, total, grain
        self.tickets = count()
        self.open = True
        self.helpers: set[int] = set()
        self.errors: list[BaseException] = []
        self.left: SimpleQueue[None] = SimpleQueue()

    def take(self) -> None:
        """Do pieces until there are no more to be had."""
        while self.open and (first := next(self.tickets) * self.grain) < self.total:
            self.work(first, min(first + self.grain, self.total))

    def help(self) -> None:
        """The same in another thread; an error is kept for the one who asked, and ends the work of all."""
        thread = get_ident()
        self.helpers.add(thread)  # before it looks whether there is work: who ends the work looks afterwards
        try:
            self.take()
        except BaseException as error:
            self.open = False
            self.errors.append(error)
        finally:
            self.helpers.discard(thread)
            self.left.put(None)

    def settle(self) -> None:
        """Hand out nothing more and wait until nobody works; an interrupt is raised only then."""
        interrupt: BaseException | None = None
        self.open = False
        while self.helpers:
            try:
                with suppress(Empty):
                    self.left.get(timeout=0.05)  # a time, because an interrupt may take the token away
            except BaseException as error:
                interrupt = error
        try:
            if interrupt is not None:
                raise interrupt
        finally:
            interrupt = None  # a frame that holds its own traceback would keep the arrays


def share(work: Callable[[int, int], None], total: int, grain: int = 1) -> None:
    """Call work(first, last) for pieces of range(total), each of at most `grain`, on all threads; waits for the end.

    After an exception, Ctrl-C in the calling thread among them, no more pieces begin, and it is raised when the last
    thread has finished its piece. ``work`` must hold the arrays whose addresses it writes to.
    """
    threads = min(thread_count(), ceil_div(total, grain))
    if threads <= 1:
        for first in range(0, total, grain):
            work(first, min(first + grain, total))
        return
    pieces = _Pieces(work, total, grain)
    try:
        threads_of_all = pool(os.getpid(), thread_count())
        with suppress(RuntimeError):  # no further thread to be had, or the interpreter ends: fewer do it all
            for _ in range(threads - 1):
                threads_of_all.submit(pieces.help)
        pieces.take()
    finally:
        pieces.settle()
    if pieces.errors:
        raise pieces.errors.pop()


def share_arrays(work: Callable[..., None], grain: int, *arrays: np.ndarray) -> None:
    """Call work(*arrays) in pieces of about `grain` elements of the last array, along the first axis that it has.

    The others have as many axes, and along that one as many elements or one, which all pieces get. Fewer than two
    pieces are one call.
    """
    shape, size = arrays[-1].shape, arrays[-1].size
    if size < 2 * grain:
        work(*arrays)
        return
    axis = next(i for i, n in enumerate(shape) if n > 1)
    before = (slice(None),) * axis

    def piece(first: int, last: int) -> None:
        part = (*before, slice(first, last))
        work(*(x if x.shape[axis] == 1 else x[part] for x in arrays))

    share(piece, shape[axis], max(1, grain * shape[axis] // size))
