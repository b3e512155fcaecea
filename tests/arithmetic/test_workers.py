"""An exception in one thread ends a computation only when no other thread works for it any more."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from hexane.arithmetic.fast import workers


@pytest.mark.parametrize(("given", "count"), [("1", 1), ("3", 3), ("0", None), ("-2", None), ("all", None), ("", None)])
def test_threads_that_the_environment_asks_for(given: str, count: int | None) -> None:
    """A number from one on; whatever else stands there, the processors."""
    script = "from hexane.arithmetic.fast.workers import thread_count; print(thread_count())"
    environment = {**os.environ, "HEXANE_THREADS": given}
    made = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(made.stdout) == (count or len(os.sched_getaffinity(0)))


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "thread_count", lambda: 4)


def test_pieces_are_worth_a_thread_and_no_more_than_four_for_each() -> None:
    assert [workers.pieces_of(cost, 10) for cost in (0, 9, 10, 39, 159, 160, 10**6)] == [1, 1, 1, 3, 15, 16, 16]


class Slow:
    """Pieces of which each other thread does one for a while; the thread that asked raises in its own."""

    def __init__(self, mine: Callable[[], None]) -> None:
        self.mine, self.asking = mine, threading.get_ident()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.busy = threading.Event()

    def __call__(self, first: int, last: int) -> None:
        if threading.get_ident() == self.asking:
            self.busy.wait(10)
            self.mine()
            return
        self.begun.append(first)
        self.busy.set()
        time.sleep(0.2)
        self.ended.append(first)


def _fail() -> None:
    raise KeyboardInterrupt


def test_an_exception_waits_for_every_thread_and_begins_nothing() -> None:
    work = Slow(_fail)
    with pytest.raises(KeyboardInterrupt):
        workers.share(work, 1000)
    assert work.begun and sorted(work.ended) == sorted(work.begun)
    begun = len(work.begun)
    assert begun <= 3
    time.sleep(0.3)
    assert len(work.begun) == begun


def test_an_error_of_another_thread_is_raised_once_all_have_left() -> None:
    begun, ended = [], []
    asking = threading.get_ident()

    def work(first: int, last: int) -> None:
        begun.append(first)
        if threading.get_ident() != asking and len(begun) > 2:
            ended.append(first)
            raise ValueError("a piece")
        time.sleep(0.05)
        ended.append(first)

    with pytest.raises(ValueError, match="a piece"):
        workers.share(work, 1000)
    assert sorted(begun) == sorted(ended) and len(begun) < 100


def test_what_the_pieces_write_to_is_let_go_afterwards() -> None:
    """Held while threads write, and not by the traceback that is left."""
    array = np.zeros(1000)
    gone = weakref.ref(array)

    def work(first: int, last: int, out: np.ndarray = array) -> None:
        out[first:last] = 1
        if first == 500:
            raise KeyError

    with pytest.raises(KeyError):
        workers.share(work, 1000)
    del work, array
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:  # a thread that found no work leaves in its own time
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


INTERRUPTED = """
import os, signal, threading, time
from hexane.arithmetic.fast import workers
asking, done, busy = threading.get_ident(), [], threading.Event()
def work(first, last):
    if threading.get_ident() == asking:
        busy.wait()
        return
    busy.set()
    if first < 4:
        time.sleep(0.6)
        done.append(first)
try:
    for delay in (0.3, 0.4, 0.5):  # all three while it waits
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
    workers.share(work, 100000)
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted", len(done) > 0)
    before = len(done)
    time.sleep(0.8)
    print(len(done) == before)
"""


def interruptible() -> None:
    """A job in the background of a shell ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way there")
def test_interrupts_while_waiting_are_raised_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], preexec_fn=interruptible,
        capture_output=True, text=True, timeout=120, env={**os.environ, "HEXANE_THREADS": "4"},
    )  # fmt: skip
    assert done.stdout == "interrupted True\nTrue\n", done.stderr


FOREIGN = """
import os, signal, sys, threading, time
import numpy as np
from hexane import arithmetic
x, w = np.ones((1, 128, 56, 56), np.float16), np.full((128, 128, 3, 3), 0.01, np.float16)
run = lambda: arithmetic.conv2d(x, w, pads=(1, 1, 1, 1))
right = run()
start = time.perf_counter()
run()
length = time.perf_counter() - start
interrupted = changed = 0
for k in range(20):
    try:
        threading.Timer(length * (0.1 + 0.04 * k), os.kill, (os.getpid(), signal.SIGINT)).start()
        run()
        time.sleep(length + 1)
    except KeyboardInterrupt:
        interrupted += 1
    mine = [np.full(right.shape, 7, right.dtype) for _ in range(4)]
    time.sleep(length / 2)
    changed += sum(int((array != 7).sum()) for array in mine)
    assert (run() == right).all()
print(interrupted, changed)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way there")
def test_after_an_interrupt_no_foreign_memory_changes() -> None:
    """Before, pool threads went on and wrote into freed memory: other arrays changed, or the process died."""
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN], preexec_fn=interruptible,
        capture_output=True, text=True, timeout=300, env={**os.environ, "HEXANE_THREADS": "4"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    interrupted, changed = map(int, done.stdout.split())
    assert interrupted and changed == 0
