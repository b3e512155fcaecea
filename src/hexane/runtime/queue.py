"""A queue of requests for one engine: first come, first served, at most 127 waiting, futures for answers.

An engine runs one program after the other; its queue holds 127 requests, and who hands over one more waits. Every
request that was accepted ends in one of three ways, its result, an exception or a cancellation, whatever happens to
the thread that handed it over: a request is in the queue or it is not, by one step that no interrupt can divide, and
who sleeps looks again by himself where an interrupt swallowed the call that was to wake him.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from hexane.errors import HexaneError, UsageError
from hexane.private_api.calls import QUEUE_DEPTH
from hexane.runtime.futures import Event, PendingAnswer

DEPTH = QUEUE_DEPTH
"""Requests that may wait, as on the real runtime (docs/private-api.md)."""
PATIENCE_S = 60.0
"""How long a request waits for a signal before it fails."""
_GLANCE_S = 0.05


class QueueFull(HexaneError):
    """127 requests wait, and the caller did not want to wait for a place."""

    code = "queue full"


class QueueClosed(HexaneError):
    """The queue takes no more requests, or was closed before the request's turn."""

    code = "queue closed"


Moment = tuple[Event, int]
"""An event and the value that it is waited for, or raised to."""


@dataclass(eq=False)
class Request:
    """A piece of work: ``waits`` come before it, ``signals`` after it, also when it fails."""

    work: Callable[[], Any]
    owner: object = None
    waits: Sequence[Moment] = ()
    signals: Sequence[Moment] = ()
    future: PendingAnswer[Any] = field(default_factory=PendingAnswer)
    number: int = 0

    def run(self, refusal: Exception | None) -> None:
        """Do the work and answer; nothing leaves but by the future."""
        if not self.future.begin():
            self._finish()
            return
        try:
            if refusal is not None:
                raise refusal
            for event, value in self.waits:
                if not event.wait(value, PATIENCE_S):
                    raise HexaneError(
                        f"no signal came: the event stands at {event.value}, {value} was waited for",
                        hint="a request cannot wait for one behind it in the same queue",
                    )
            result = self.work()
        except BaseException as error:  # an exception of the work is its answer
            self._finish()
            self.future.set_exception(error)
        else:
            self._finish()
            self.future.set_result(result)

    def _finish(self) -> None:
        for event, value in self.signals:
            event.signal(value)
        self.work, self.owner = _nothing, None


def _nothing() -> None:
    """Rest of work that is done."""


class RequestQueue:
    """Requests of any thread for one engine, run one after the other in the order in which they came.

    A context manager: at its end it waits for what it took.
    """

    def __init__(self, depth: int = DEPTH, name: str = "engine") -> None:
        if depth < 1:
            raise UsageError(f"a queue of depth {depth}", hint="at least 1")
        self.depth = depth
        self.completed = 0
        self._waiting: deque[Request] = deque()
        self._enter = threading.Lock()
        self._came: SimpleQueue[None] = SimpleQueue()  # wakes the worker
        self._left: SimpleQueue[None] = SimpleQueue()  # wakes who waits for a place
        self._gone: dict[int, int] = {}  # owner -> requests with a smaller number are refused
        self._numbers = itertools.count(1)
        self._closed = False
        self._hurry = False
        self._thread = threading.Thread(target=self._work, name=f"hexane-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests that were taken and not begun; at most ``depth``."""
        return len(self._waiting)

    def submit(self, request: Request, *, block: bool = True, timeout: float | None = None) -> PendingAnswer[Any]:
        """Hand over a request; its answer comes by the future.

        Raises QueueFull where no place is free (in ``timeout`` seconds, or at once with ``block=False``), QueueClosed.
        """
        if threading.current_thread() is self._thread:
            raise UsageError("a request hands over another one", hint="it would wait for itself when the queue is full")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._entered(request):
            remaining_s = _GLANCE_S if end is None else min(_GLANCE_S, end - time.monotonic())
            if not block or remaining_s <= 0:
                raise QueueFull(f"{self.depth} requests wait", hint="wait for one of them, or submit with block=True")
            try:
                self._left.get(timeout=remaining_s)
            except Empty:
                continue
        self._came.put(None)
        return request.future

    def _entered(self, request: Request) -> bool:
        """True where there was a place; the request is then in the queue."""
        with self._enter:
            if self._closed:
                raise QueueClosed("the queue is closed")
            if len(self._waiting) >= self.depth:
                return False
            request.number = next(self._numbers)
            self._waiting.append(request)
            return True

    def call(self, work: Callable[[], Any], owner: object = None) -> PendingAnswer[Any]:
        """The same for a plain function."""
        return self.submit(Request(work, owner))

    def forget(self, owner: object) -> None:
        """Answer the requests that an owner has waiting with QueueClosed; one that runs comes to its end first.

        Requests that come in afterwards are served.
        """
        key = id(owner)
        self._gone[key] = next(self._numbers)
        try:
            if threading.current_thread() is not self._thread:
                self.submit(Request(_nothing)).result()
        except QueueClosed:
            self._thread.join()
        finally:
            self._gone.pop(key, None)

    def close(self, *, wait: bool = True) -> None:
        """Take no more; with ``wait`` run what was taken, else answer it with QueueClosed."""
        self._hurry = self._hurry or not wait
        with self._enter:
            self._closed = True
        self._came.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> RequestQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            try:
                request = self._waiting.popleft()
            except IndexError:
                if self._closed and not self._waiting:
                    return
                self._sleep()
                continue
            if self._left.qsize() < self.depth:
                self._left.put(None)
            gone = self._hurry or request.number < self._gone.get(id(request.owner), 0)
            request.run(QueueClosed("the program was unloaded before the request's turn") if gone else None)
            self.completed += 1
            del request

    def _sleep(self) -> None:
        """Until a request came, or a while went by; calls that piled up meanwhile are taken together."""
        try:
            self._came.get(timeout=_GLANCE_S)
            while True:
                self._came.get_nowait()
        except Empty:
            return
