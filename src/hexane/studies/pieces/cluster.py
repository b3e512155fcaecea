"""Pieces on Dask: a window of them under way, everything else about them is the scheduler's business.

What is shared is the result of a task of its own, so that each worker takes it once, from whichever worker is nearest,
and Dask makes it anew where the workers that had it are gone. A worker computes on one thread: there is a worker for
each core, and helpers of several that look for work take the cores from all. A result comes back to this process, which
alone writes files: workers need share no folder with it. Where the scheduler itself is lost, another is waited for
under the same address and what was under way is given out again.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.studies.pieces.piece import Piece, Result, Shared, code_digest, compute
from hexane.studies.pieces.place import Outcomes, Workers
from hexane.studies.pieces.store import Store

AHEAD = 3
"""Pieces under way for each thread of the cluster: one at work, one with its data there, one to come."""
PASSING = 2
"""Blocks of samples that workers keep for pieces to come; those under way keep theirs."""
ASK_S = 2.0
"""How often the scheduler is asked for the size of its cluster, which may grow and shrink."""
MOST_TIMES = 12
"""How often a piece is given out again after its workers died; each time counts four deaths."""
PROCESSES = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
    "distributed.worker.profile.enabled": False,
}
"""Dask's settings for processes of our own. Its own thresholds (bytes) give memory back to the system after every
array and take it again for the next, a third of a worker's time; its profile looks at each thread every 10 ms."""
_LOST = ("KilledWorker", "CancelledError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError",
         "TimeoutError", "ClosedClientError", "StreamClosedError", "NoValidWorkerError")  # fmt: skip
"""Names of errors that say that a machine or a connection is gone, and nothing of the piece."""


def require_dask() -> Any:
    """The package ``distributed``; UnsupportedError where it is missing."""
    try:
        import distributed
    except ImportError:
        raise UnsupportedError("more than one process needs Dask", hint="pip install 'hexane[scale]'") from None
    return distributed


@contextmanager
def connected(where: Workers) -> Iterator[Any]:
    """A function that gives a client: of the scheduler that was named, or of processes on this machine."""
    distributed = require_dask()
    if where.scheduler is not None:
        clients = []

        def connect() -> Any:
            clients.append(_client(distributed, where.scheduler, where.patience_s))
            return clients[-1]

        log = logging.getLogger("distributed.client")
        level = log.level
        log.setLevel(logging.CRITICAL)  # a scheduler that dies is said in a line, not by a traceback
        try:
            yield connect
        finally:
            for client in clients:
                _close(client)
            log.setLevel(level)
        return
    with processes_ahead(where) as local, distributed.Client(local.result(), set_as_default=False) as client:
        yield lambda: client


@contextmanager
def processes_ahead(where: Workers) -> Iterator[Any]:
    """A future of Dask's processes on this machine, which start in another thread and end with the block."""
    if where.processes is not None:  # somebody else's block
        yield where.processes
        return
    require_dask()
    with ThreadPoolExecutor(1) as thread:
        where.processes = future = thread.submit(_processes, where)
        try:
            yield future
        finally:
            where.processes = None
            future.result().close()


def _processes(where: Workers) -> Any:
    import dask
    import distributed

    with dask.config.set(PROCESSES):
        return distributed.LocalCluster(
            n_workers=where.workers, threads_per_worker=1, processes=True, memory_limit=where.memory,
            dashboard_address=":0", silence_logs=logging.CRITICAL,
        )  # fmt: skip


def _client(distributed: Any, address: str | None, patience_s: float) -> Any:
    end = time.monotonic() + patience_s
    while True:
        try:
            return distributed.Client(address, timeout=min(10.0, patience_s), set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            if isinstance(error, ValueError):
                raise UsageError(f"{address!r} is no address of a scheduler", hint="tcp://HOST:8786") from None
            if time.monotonic() > end:
                raise UsageError(f"no scheduler answers at {address}", hint="start one: dask scheduler") from None
            time.sleep(1.0)


def _close(client: Any) -> None:
    with suppress(Exception):  # whose scheduler may be gone
        client.close(timeout=2)


class _UnderWay:
    """The futures of one client."""

    def __init__(self, client: Any, store: Store) -> None:
        self.client, self.store = client, store
        self.futures: dict[str, Any] = {}
        self.shared: dict[str, Any] = {}
        self.passing: OrderedDict[str, Any] = OrderedDict()
        self.ended: SimpleQueue[str] = SimpleQueue()

    def _sent(self, one: Shared) -> Any:
        futures = self.passing if one.passing else self.shared
        if one.digest not in futures:
            futures[one.digest] = self.client.submit(_itself, one, key=f"shared-{one.digest}", pure=True)
        future = futures[one.digest]
        while len(self.passing) > PASSING:
            self.passing.popitem(last=False)
        return future

    def give(self, piece: Piece) -> list[Piece]:
        """Give out a piece with what it needs; all that is new under way."""
        needs = []
        before: list[Any] = [self._sent(one) for one in piece.shared]
        for need in piece.needs:
            result = self.store.get(need.key)
            if result is None and need.key not in self.futures:
                needs += self.give(need)
            before.append(self.futures[need.key] if result is None else result)
        self.futures[piece.key] = self.client.submit(
            _computed, code_digest(), piece.function, piece.arguments, *before, key=f"piece-{piece.key}", pure=True
        )
        self.futures[piece.key].add_done_callback(lambda _, key=piece.key: self.ended.put(key))
        return [*needs, piece]


def _itself(one: Shared) -> Shared:
    return one


def _computed(code: str, function: Callable[..., Result], arguments: tuple[Any, ...], *before: Any) -> Result:
    """``compute`` in a worker: on one thread, unless its environment says how many."""
    os.environ.setdefault("HEXANE_THREADS", "1")
    return compute(code, function, arguments, *before)


def on_cluster(pieces: Iterable[Piece | None], store: Store, where: Workers) -> Outcomes:
    """As ``results``."""
    waiting = iter(pieces)
    with connected(where) as connect, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        client = connect()
        way = _UnderWay(client, store)
        waiting_on: dict[str, list[Piece]] = {}  # key -> who asked for it
        inner: dict[str, Piece] = {}  # key -> a piece that others need and nobody asked for
        tries: dict[str, int] = {}
        room, asked_at = AHEAD, 0.0
        ended = False
        while True:
            if time.monotonic() > asked_at + ASK_S:
                room, asked_at = max(AHEAD, AHEAD * _threads(client)), time.monotonic()
            while not ended and len(way.futures) < room:
                try:
                    piece = next(waiting)
                except StopIteration:
                    ended = True
                    break
                if piece is None:
                    break
                result = store.get(piece.key)
                if result is not None:
                    where.counts.kept += 1
                    yield piece, result
                    continue
                waiting_on.setdefault(piece.key, []).append(piece)
                if piece.key not in way.futures:
                    inner.update((new.key, new) for new in way.give(piece))
            if not way.futures:
                if ended:
                    return
                continue
            try:
                ready = _ready(way)
            except _Gone:
                message = (
                    f"no scheduler answers at {where.scheduler} any more: waiting {where.patience_s:.0f} s for another"
                )
                warnings.warn(message, UserWarning, stacklevel=2)
                _close(client)
                client = connect()
                way, under = _UnderWay(client, store), [inner[key] for key in way.futures]
                where.counts.again += len(under)
                for piece in under:
                    if piece.key not in way.futures:
                        way.give(piece)
                continue
            for key in ready:
                outcome = _outcome(way.futures.pop(key), inner[key])
                if outcome is None:
                    tries[key] = tries.get(key, 0) + 1
                    where.counts.again += 1
                    if tries[key] < MOST_TIMES:
                        way.give(inner[key])
                        continue
                    outcome = HexaneError(f"{inner[key].what} ends every worker that computes it", hint=_MEMORY)
                piece = inner.pop(key)
                if not isinstance(outcome, HexaneError):
                    where.counts.computed += 1
                    store.put(key, outcome)
                for asker in waiting_on.pop(key, []):
                    yield asker, outcome


_MEMORY = "give the workers more memory"


class _Gone(Exception):
    """The scheduler does not answer any more."""


def _threads(client: Any) -> int:
    with suppress(Exception):
        return sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    return 0


def _ready(way: _UnderWay) -> list[str]:
    """Keys of futures that are done, one way or the other; waits up to a second for one."""
    ready = []
    with suppress(Empty):
        ready.append(way.ended.get(timeout=1.0))
        while True:
            ready.append(way.ended.get_nowait())
    ready = [key for key in dict.fromkeys(ready) if key in way.futures and way.futures[key].done()]
    if way.client.status != "running" or any(way.futures[key].cancelled() for key in ready):
        raise _Gone
    return ready


def _outcome(future: Any, piece: Piece) -> Result | HexaneError | None:
    """A result, an error of the piece itself, or None where it has to be given out again."""
    try:
        result: Result = future.result(timeout=30)
        return result
    except HexaneError as error:
        return error
    except Exception as error:
        if type(error).__name__ in _LOST or isinstance(error, OSError):
            return None
        return HexaneError(f"{type(error).__name__}: {error}", where=piece.what)
