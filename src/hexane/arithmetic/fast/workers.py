"""A few threads that share one list of tasks; compiled code releases the interpreter while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import count

import numpy as np


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
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="hexane")


def share(work: Callable[[int, int], None], total: int, grain: int = 1) -> None:
    """Call work(first, last) for pieces of range(total), each of at most `grain`, on all threads; waits for the end."""
    pieces = -(-total // grain)
    if pieces == 1:
        work(0, total)
        return
    threads = min(thread_count(), pieces)
    tickets = count()

    def worker() -> None:
        while (ticket := next(tickets)) < pieces:
            work(ticket * grain, min((ticket + 1) * grain, total))

    if threads <= 1:
        worker()
        return
    pool = _pool(os.getpid(), thread_count())
    others = [pool.submit(worker) for _ in range(threads - 1)]
    worker()
    for other in others:
        other.result()


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
