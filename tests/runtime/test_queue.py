"""The queue: nothing lost, nothing reordered, at most 127 waiting, whatever happens to who hands over."""

from __future__ import annotations

import random
import signal
import threading
import time
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest
from tests.restrictions.programs import call, const, program, tensor

from hexane.errors import HexaneError, UsageError
from hexane.mil import Model, Options
from hexane.runtime import queue as module
from hexane.runtime.queue import DEPTH, Event, QueueClosed, QueueFull, Request, RequestQueue

SMALL = tensor(1, 8, 1, 32)
TEXT = program(const("fp16", "c", "0x1p+0") + call(SMALL, "y", "add", "x = x, y = c"), f"{SMALL} x", "y")


def test_first_come_first_served() -> None:
    done: list[int] = []
    with RequestQueue() as queue:
        futures = [queue.call(lambda i=i: done.append(i) or i) for i in range(500)]
        assert [future.result(10) for future in futures] == list(range(500))
    assert done == list(range(500))


def test_127_wait_and_the_next_has_to() -> None:
    gate = threading.Event()
    with RequestQueue() as queue:
        first = queue.call(lambda: gate.wait(20))
        while not first.running():
            time.sleep(0.001)
        futures = [queue.submit(Request(lambda: 1), block=False) for _ in range(DEPTH)]
        with pytest.raises(QueueFull):
            queue.submit(Request(lambda: 1), block=False)
        with pytest.raises(QueueFull):
            queue.submit(Request(lambda: 1), timeout=0.01)
        blocked: list[Future] = []
        thread = threading.Thread(target=lambda: blocked.append(queue.call(lambda: 2)))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        gate.set()
        thread.join(10)
        assert blocked[0].result(10) == 2
        assert all(future.result(10) == 1 for future in futures)


def test_exceptions_are_answers() -> None:
    def broken() -> None:
        raise ValueError("of the work")

    with RequestQueue() as queue:
        with pytest.raises(ValueError, match="of the work"):
            queue.call(broken).result(10)
        with pytest.raises(SystemExit):
            queue.call(lambda: (_ for _ in ()).throw(SystemExit(3))).result(10)
        assert queue.call(lambda: 5).result(10) == 5


def test_cancelled_before_its_turn() -> None:
    gate, ran = threading.Event(), []
    with RequestQueue() as queue:
        queue.call(lambda: gate.wait(20))
        future = queue.call(lambda: ran.append(1))
        assert future.cancel()
        gate.set()
        with pytest.raises(CancelledError):
            future.result(10)
    assert not ran


def test_signals_come_also_from_work_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event()
    with RequestQueue() as first, RequestQueue() as second:
        waiting = second.submit(Request(lambda: "ran", waits=[(event, 1)]))
        first.submit(Request(lambda: 1 / 0, signals=[(event, 1)]))
        assert waiting.result(10) == "ran"
        monkeypatch.setattr(module, "PATIENCE_S", 0.02)
        with pytest.raises(HexaneError, match="no signal"):
            second.submit(Request(lambda: 1, waits=[(event, 9)])).result(10)


def test_close_and_unload_answer_everything() -> None:
    gate = threading.Event()
    queue = RequestQueue()
    queue.call(lambda: gate.wait(20))
    owner = object()
    mine, others = [queue.call(lambda: 1, owner) for _ in range(9)], [queue.call(lambda: 2) for _ in range(9)]
    sweeper = threading.Thread(target=lambda: queue.forget(owner))
    sweeper.start()
    time.sleep(0.02)
    gate.set()
    sweeper.join(10)
    assert all(isinstance(future.exception(10), QueueClosed) for future in mine)
    assert [future.result(10) for future in others] == [2] * 9
    queue.close()
    with pytest.raises(QueueClosed):
        queue.call(lambda: 1)


def test_a_request_that_hands_over_a_request() -> None:
    with RequestQueue() as queue, pytest.raises(UsageError, match="hands over"):
        queue.call(lambda: queue.call(lambda: 1)).result(10)


class Storm:
    """Evaluations from several threads on a counting model, with everything that may go wrong."""

    def __init__(self, total: int, threads: int, seed: int) -> None:
        self.queue = RequestQueue()
        self.model = Model(TEXT, {}, "M4", options=Options(queue=self.queue, statistics=False)).compile().load()
        self.total, self.threads = total, threads
        self.random = random.Random(seed)
        self.order: list[list[int]] = [[] for _ in range(threads)]
        self.answers: list[dict[str, int]] = [
            dict.fromkeys(("right", "wrong", "error", "cancelled", "closed"), 0) for _ in range(threads)
        ]
        self.most_waiting = 0
        self.interrupts = 0
        self.armed = False

    def submit(self, thread: int, number: int) -> Future:
        """One evaluation whose answer says which it was; some raise in the queue."""
        value = np.full((1, 8, 1, 32), number % 1000, np.float16)
        broken = number % 97 == 13

        def work() -> np.ndarray:
            self.order[thread].append(number)
            if broken:
                raise ZeroDivisionError(str(number))
            return self.model._evaluated({"x": value}, 21)["y"]

        return self.queue.submit(Request(work, self.model))

    def take(self, thread: int, number: int, future: Future) -> None:
        """Count how a request ended; every one ends."""
        answers = self.answers[thread]
        try:
            got = future.result(60)
            answers["right" if (got == number % 1000 + 1).all() else "wrong"] += 1
        except ZeroDivisionError as error:
            answers["error" if str(error) == str(number) else "wrong"] += 1
        except CancelledError:
            answers["cancelled"] += 1
        except QueueClosed:
            answers["closed"] += 1

    def client(self, thread: int, count: int) -> None:
        """Hand over ``count`` requests, keep up to 200 answers open, cancel some, be interrupted now and then."""
        rng, open_answers, number = random.Random(thread), [], 0
        while number < count or open_answers:
            try:
                self.armed = thread == 0
                while number < count and len(open_answers) < 200:
                    future = self.submit(thread, number)
                    open_answers.append((number, future))
                    number += 1
                    if rng.random() < 0.02:
                        future.cancel()
                    self.most_waiting = max(self.most_waiting, self.queue.waiting)
                while open_answers:
                    self.take(thread, *open_answers[0])
                    del open_answers[0]
                self.armed = self.armed and thread != 0
            except KeyboardInterrupt:
                self.interrupts += 1

    def interrupt(self, *_: object) -> None:
        """As Ctrl-C, wherever the first thread is; once each time that it is ready for it."""
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def run(self, *, interrupt: bool) -> None:
        stop = threading.Event()
        share = self.total // self.threads
        others = [threading.Thread(target=self.client, args=(i, share)) for i in range(1, self.threads)]
        sweeper = threading.Thread(target=self.unload, args=(stop,))
        for thread in (*others, sweeper):
            thread.start()
        old = signal.getsignal(signal.SIGALRM)
        if interrupt:
            signal.signal(signal.SIGALRM, self.interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.007)
        try:
            self.client(0, share)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        for thread in others:
            thread.join()
        stop.set()
        sweeper.join()

    def unload(self, stop: threading.Event) -> None:
        """Unload and load in flight."""
        while not stop.wait(0.1):
            self.queue.forget(self.model)

    def check(self) -> None:
        share = self.total // self.threads
        for thread, answers in enumerate(self.answers):
            assert answers["wrong"] == 0
            ran = self.order[thread]
            assert ran == sorted(ran)
            if thread == 0:  # an interrupt may come between handing over and noting the future: then it hands over anew
                assert len(ran) - len(set(ran)) <= self.interrupts
            else:
                assert len(set(ran)) == len(ran)
                assert sum(answers.values()) == share, (thread, answers)
                assert len(ran) == answers["right"] + answers["error"]
        assert self.most_waiting <= DEPTH
        assert self.queue.waiting == 0
        self.queue.close()


def storm(total: int, threads: int) -> Storm:
    found = Storm(total, threads, 1)
    found.run(interrupt=hasattr(signal, "setitimer"))
    found.check()
    return found


def test_a_storm() -> None:
    done = storm(4000, 4)
    print(done.answers, done.interrupts, done.most_waiting)


@pytest.mark.slow
def test_a_long_storm() -> None:
    """100,000 evaluations from eight threads; memory does not grow with them."""
    import resource

    storm(2000, 8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = storm(100_000, 8)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(done.answers, done.interrupts, done.most_waiting, f"{grown:.1f} MiB more")
    assert grown < 128


def test_a_cancelled_request_raises_its_signals() -> None:
    """Who waits for it goes on."""
    gate, event = threading.Event(), Event()
    with RequestQueue() as queue:
        first = queue.call(lambda: gate.wait(20))
        cancelled = queue.submit(Request(lambda: 1, signals=[(event, 3)]))
        assert cancelled.cancel() and event.value == 0
        gate.set()
        assert first.result(10) and queue.call(lambda: 2).result(10) == 2
    assert event.value == 3
