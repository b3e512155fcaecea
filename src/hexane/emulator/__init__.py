"""The engine, emulated: an image in, numbers out. Registers and bytes only; nothing of graphs or compilers."""

from hexane.emulator.engine import Engine
from hexane.emulator.program import EmulatedProgram
from hexane.emulator.run import Result, emulate, run
from hexane.emulator.trace import Computation, TaskReport, TraceReport

__all__ = ["Computation", "EmulatedProgram", "Engine", "Result", "TaskReport", "TraceReport", "emulate", "run"]
