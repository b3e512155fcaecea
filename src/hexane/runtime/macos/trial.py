"""One small program through the private classes, in a process that may end: ``hexane doctor --try``."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from hexane.errors import HexaneError
from hexane.graph import GraphBuilder
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.model import MemoryModel, SubmissionWay
from hexane.runtime.macos.segments import source_of, written
from hexane.runtime.macos.sides import open_side

SHAPE = (1, 64, 1, 64)
TIMES = 20
GOOD = "a difference of two tensors, 20 times, with the bits that it should have"
TIMEOUT_S = 120


def tried(border: SystemBorder) -> str:
    """Outcome: GOOD, or what was wrong. A difference also shows whether inputs are bound by name."""
    b = GraphBuilder()
    second, first = b.input("second", SHAPE, "fp16"), b.input("first", SHAPE, "fp16")
    b.output(b.sub(x=first, y=second, name="y"))
    a = np.arange(np.prod(SHAPE), dtype=np.float16).reshape(SHAPE) % 64
    model = MemoryModel(border, source_of(*written(b.graph, "h13")), SubmissionWay())
    try:
        model.compile()
        model.load()
        for number in range(TIMES):
            other = np.full(SHAPE, number, np.float16)
            result = model.evaluate({"first": a, "second": other})["y"]
            if np.array_equal(result, other - a):
                return "the inputs are bound in the wrong order"
            if not np.array_equal(result, a - other):
                return f"call {number + 1} gives other bits than it should"
    finally:
        model.close()
    return GOOD


def in_child(words: list[str]) -> tuple[bool, str]:
    """The same in a process of its own: whether it went well, and what came out."""
    command = [sys.executable, "-c", "from hexane.runtime.macos.trial import main; main()", *words]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace")
    except (OSError, subprocess.SubprocessError) as error:
        return False, f"the trial did not end ({type(error).__name__})"
    lines = process.stdout.strip().splitlines()
    if process.returncode == 0 and lines:
        return lines[-1] == GOOD, lines[-1]
    last = (process.stderr.strip().splitlines() or [""])[-1][:200]
    return False, f"the process ended with status {process.returncode}{f': {last}' if last else ''}"


def main() -> None:
    """Print what came out; the arguments say what is on the other side of the border."""
    try:
        print(tried(open_side(sys.argv[1:])))
    except HexaneError as error:
        print(error.message.splitlines()[0])
