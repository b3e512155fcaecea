"""Futures and counters that survive an interrupt: no lock is held by a thread that a signal may tear out of it.

``concurrent.futures.Future`` waits under a condition, and a KeyboardInterrupt between two of its steps can leave that
condition locked for ever, or unlock it twice. What waits here waits on plain locks that nobody has to give back, and
who may run or cancel a request is settled by one attempt to take a lock that is never released.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

_T = TypeVar("_T")
_GLANCE_S = 0.1
"""A waiter whose wake-up call was lost to an interrupt of another one looks again after this time."""
_FINISHED = frozenset({"FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED"})
_CANCELLED = frozenset({"CANCELLED", "CANCELLED_AND_NOTIFIED"})


class PendingAnswer(Future[_T]):
    """A future of :class:`hexane.runtime.queue.RequestQueue`; works with ``concurrent.futures.wait`` too."""

    def __init__(self) -> None:
        super().__init__()
        self._claim = threading.Lock()
        self._gate = threading.Lock()
        self._gate.acquire()
        self._called_off = False

    # -- of the worker -------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """True where the work is to be done; from here on it cannot be cancelled."""
        if self._claim.acquire(blocking=False):
            super().set_running_or_notify_cancel()
            return True
        self._called_off = True
        super().cancel()
        super().set_running_or_notify_cancel()
        self._open()
        return False

    def set_result(self, result: _T) -> None:
        """The answer."""
        super().set_result(result)
        self._open()

    def set_exception(self, exception: BaseException | None) -> None:
        """The answer is an exception."""
        super().set_exception(exception)
        self._open()

    def _open(self) -> None:
        try:
            self._gate.release()
        except RuntimeError:  # a waiter that was interrupted has it open already
            return

    # -- of who asked --------------------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """True where it will not be done; False once it has begun."""
        if self._claim.acquire(blocking=False):
            self._called_off = True
            self._open()
            return True
        return self.cancelled()

    def cancelled(self) -> bool:
        """True where it was cancelled."""
        return self._called_off or self._state in _CANCELLED

    def done(self) -> bool:
        """True where the answer is there, or it was cancelled."""
        return self._called_off or self._state in _FINISHED

    def running(self) -> bool:
        """True where it is being done."""
        return self._state == "RUNNING"

    def result(self, timeout: float | None = None) -> _T:
        """The answer; TimeoutError after ``timeout`` seconds, CancelledError, or the exception of the work."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                error = None
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception of the work; None where it gave a result."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            remaining_s = _GLANCE_S if end is None else min(_GLANCE_S, end - time.monotonic())
            if remaining_s <= 0:
                raise TimeoutError("the answer has not come")
            if self._gate.acquire(timeout=remaining_s):
                self._open()
        if self.cancelled():
            raise CancelledError
        return self._exception


class Event:
    """A counter that requests signal and wait for; it never goes back."""

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._change = threading.Lock()
        self._bells: deque[Any] = deque()

    @property
    def value(self) -> int:
        """Progress of the request."""
        return self._value

    def signal(self, value: int | None = None) -> None:
        """Raise the counter to ``value``, or by one."""
        with self._change:
            self._value = max(self._value, self._value + 1 if value is None else value)
        while self._bells:
            try:
                self._bells.popleft().release()
            except (IndexError, RuntimeError):
                continue

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """True where the counter came to ``value`` within ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._value < value:
            remaining_s = _GLANCE_S if end is None else min(_GLANCE_S, end - time.monotonic())
            if remaining_s <= 0:
                return False
            bell = threading.Lock()
            bell.acquire()
            self._bells.append(bell)
            if self._value < value:
                bell.acquire(timeout=remaining_s)
            try:
                self._bells.remove(bell)
            except ValueError:
                continue
        return True
