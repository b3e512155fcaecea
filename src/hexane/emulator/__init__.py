"""The engine, emulated: an image in, numbers out. Registers and bytes only; nothing of graphs or compilers."""

from hexane.emulator.engine import Engine
from hexane.emulator.program import Program
from hexane.emulator.run import Result, emulate, run
from hexane.emulator.trace import Computation, Report, TaskReport

__all__ = ["Computation", "Engine", "Program", "Report", "Result", "TaskReport", "emulate", "run"]
