"""Graph to tasks to image: partition, selection, tiling, placement on chip, linking."""

from hexane.codegen.driver import compile
from hexane.codegen.package import load_program
from hexane.codegen.program import Port, Program, Segment

__all__ = ["Port", "Program", "Segment", "compile", "load_program"]
