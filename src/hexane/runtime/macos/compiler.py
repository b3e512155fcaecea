"""Compiling in a child process: the in-memory class leaks, and a process that compiled about 119 times cannot any more.

A child compiles what this process staged; the system keeps the result under the program's identifier, so that this
process only loads it. A child whose budget is spent is replaced. What a child takes with it when it dies is an error
here, not the end.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from hexane.errors import HexaneError
from hexane.private_api.budget import SAFE_LIMIT, CompileBudget
from hexane.private_api.remedies import fault_of
from hexane.runtime.macos.border import BorderError, SystemBorder

TIMEOUT_S = 600.0
CHILD = "hexane.runtime.macos.child"


class CompilerProcess:
    """A process that compiles for this one. A context manager; the process ends with it.

    Parameters
    ----------
    border : says how the child gets a border of its own.
    limit : compilations of one child.
    timeout_s : a compilation that takes longer ends the child.
    """

    def __init__(self, border: SystemBorder, *, limit: int = SAFE_LIMIT, timeout_s: float = TIMEOUT_S) -> None:
        self.command = [sys.executable, "-m", CHILD, *border.again()]
        self.limit = limit
        self.timeout_s = timeout_s
        self.started = 0
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> CompilerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile(self, folder: Path, weights: Mapping[str, bytes], qos: int) -> None:
        """Compile a staged program. RuntimeFault where the compiler refuses, BorderError where the child fails."""
        with self._lock:
            if self._child is not None and not self._child.budget.left:
                self.close()
            if self._child is None:
                self._child = _Child(self.command, CompileBudget(self.limit))
                self.started += 1
            self._child.budget.spend()
            request = {"folder": str(folder), "weights": list(weights), "qos": qos}
            try:
                answer = self._child.ask(request, self.timeout_s)
            except BorderError:
                self.close()
                raise
        fault = answer.get("fault")
        if fault is not None:
            raise fault_of(fault["domain"], fault["code"], fault["words"])
        if "error" in answer:
            raise HexaneError(answer["error"], hint=answer.get("hint"))
        if answer.get("identifier") != folder.name:
            raise BorderError(
                "another process gives the program another identifier, so that its result would not be found",
                hint="hexane.mil.Options(in_child=False) compiles here",
            )

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            child, self._child = self._child, None
            child.end()


_COMPILERS: weakref.WeakKeyDictionary[SystemBorder, CompilerProcess] = weakref.WeakKeyDictionary()


def compiler_for(border: SystemBorder) -> CompilerProcess:
    """The child that compiles for everything of this process that is on one side; it ends with that side."""
    if border not in _COMPILERS:
        _COMPILERS[border] = CompilerProcess(border)
    return _COMPILERS[border]


class _Child:
    """The process, its two pipes, and what it wrote to standard error."""

    def __init__(self, command: list[str], budget: CompileBudget) -> None:
        self.budget = budget
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, text=True, encoding="utf-8"
            )
        except OSError as error:
            self._words.close()
            raise BorderError(f"no process to compile in ({error.strerror or error})") from None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._process, self._words)

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Its answer; BorderError where it is gone, silent for too long, or writes something else."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise BorderError(
                f"the process that compiles said nothing for {timeout_s:g} s and was ended",
                hint="a smaller program, or more time",
            ) from None
        except OSError:
            line = ""
        if not line:
            status = self._process.wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            last = self._last_words()
            raise BorderError(
                f"the process that compiles ended with {how}{f': {last}' if last else ''}",
                hint="nothing was loaded; the same program would end it again, if it is the cause",
            )
        try:
            answer = json.loads(line)
        except ValueError:
            raise BorderError(f"the process that compiles answered {line[:80]!r}") from None
        return answer if isinstance(answer, dict) else {"error": f"the process that compiles answered {line[:80]!r}"}

    def _last_words(self) -> str:
        self._words.seek(0)
        lines = self._words.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def end(self) -> None:
        self._finalizer()


def _read(pipe: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with pipe:
        for line in pipe:
            lines.put(line)
    lines.put("")


def _end(process: subprocess.Popen[str], words: IO[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # it is gone already
            process.stdin.close()
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    words.close()
