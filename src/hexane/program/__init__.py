"""A compiled network: ports, segments and the ``.hexane`` package."""

from hexane.program.load import load_program
from hexane.program.program import Program
from hexane.program.segment import ENGINE, HOST, Port, Segment, input_ports

__all__ = ["ENGINE", "HOST", "Port", "Program", "Segment", "input_ports", "load_program"]
