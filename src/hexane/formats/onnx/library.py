"""onnx's own C++ at a distance: in a process of its own, with limits of time and memory, kept warm between calls.

Shape inference, inlining, conversion between op sets and the definitions of ops trust the model: files of thirty bytes
make them crash, abort or never end. There a process ends that nobody else lives in.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO, cast

from hexane.errors import FormatError
from hexane.formats.onnx import child
from hexane.formats.quiet import first_line, quiet

SECONDS = 5
"""Time on the processor for a call, and as much again for each megabyte; ordinary networks take a tenth of a second."""

PATIENCE = 12
"""Time by the clock, as a multiple: other processes may want the processor too."""

MEMORY = 4 << 30
"""Address space of the process, and 16 times the model's size."""


class LibraryRefusal(Exception):
    """onnx refuses a model: the name of its error and what it says."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(first_line(ValueError(message)) if message.strip() else kind)
        self.kind = kind


class _Child:
    """A running process and what was said to it last."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(child.__file__).resolve()), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.requests = cast(BinaryIO, self.process.stdin)
        self.answers = cast(BinaryIO, self.process.stdout)
        self.ready = False

    def greeted(self) -> bool:
        """True where the process has said that it is there; waits for that."""
        if not self.ready:
            with contextlib.suppress(EOFError, OSError, ValueError):
                child.receive(self.answers)
                self.ready = True
        return self.ready

    def ask(self, action: str, blobs: list[bytes]) -> bytes:
        size = sum(map(len, blobs))
        seconds = SECONDS * (1 + (size >> 20))
        header = {"action": action, "seconds": seconds, "memory": MEMORY + 16 * size}
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(PATIENCE * seconds, stop)
        timer.daemon = True
        try:
            child.send(self.requests, header, blobs)
            child.receive(self.answers)
            timer.start()
            reply, results = child.receive(self.answers)
        except (EOFError, OSError, ValueError):
            code = self._ended()
            if late.is_set() or code == -24:  # SIGXCPU
                raise FormatError(f"onnx needs more than {seconds} seconds for this model") from None
            raise FormatError(f"onnx crashes on this model (its process ended with {_exit_of(code)})") from None
        finally:
            timer.cancel()
        if "error" in reply:
            raise LibraryRefusal(reply["error"], reply["message"])
        return results[0]

    def _ended(self) -> int:
        with contextlib.suppress(OSError):
            self.requests.close()
        try:
            return self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def end(self) -> None:
        """Stop the process, whatever it does."""
        self.process.kill()
        self.process.wait()
        for stream in (self.requests, self.answers):
            with contextlib.suppress(OSError):
                stream.close()


_lock = threading.Lock()
_child: _Child | None = None
_alone = False
"""No process can be started here; then onnx runs in this one, and a warning has said so."""


def start() -> None:
    """Start the process, so that it is there when it is needed; importing onnx here takes longer."""
    with _lock:
        _running()


def call(action: str, *blobs: bytes, where: str) -> bytes:
    """Result of an action of `child`.

    Raises
    ------
    Refused : onnx refuses the model.
    FormatError : onnx crashes on it, or needs more time than any network does.
    """
    with _lock:
        running = _running()
        if running is not None and not running.greeted():
            _forget(running)
            running = None
            _alone_now("it ended at once")
        if running is None:
            with quiet():
                reply, results = child.answer(action, list(blobs))
            if "error" in reply:
                raise LibraryRefusal(reply["error"], reply["message"])
            return results[0]
        try:
            return running.ask(action, list(blobs))
        except LibraryRefusal:
            raise
        except BaseException as error:  # a process that was not heard to the end answers the next call wrongly
            _forget(running)
            if isinstance(error, FormatError):
                raise FormatError(error.message, where=where, hint="does onnx.checker.check_model accept it?") from None
            raise


def _running() -> _Child | None:
    global _child
    if _child is not None and _child.process.poll() is not None:
        _forget(_child)
    if _child is None and not _alone:
        try:
            _child = _Child()
        except (OSError, ValueError) as error:
            _alone_now(str(error))
    return _child


def _alone_now(reason: str) -> None:
    global _alone
    _alone = True
    logging.getLogger(__name__).warning(
        "no process can be started (%s): onnx's own code runs in this one, without limits", reason
    )


def _forget(running: _Child) -> None:
    global _child
    _child = None
    running.end()


def _exit_of(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def _close() -> None:
    with _lock:
        if _child is not None:
            _forget(_child)


def _after_fork() -> None:
    """A forked process starts a process of its own: two that speak on one pipe would get each other's answers."""
    global _lock, _child
    _lock, _child = threading.Lock(), None


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
