"""Check an engine program without values: all that the emulator asks of a task before it computes anything.

Regions and strides in L2 and in DRAM, formats, counters, sizes of kernels, tags, links, reads of what nobody wrote,
outputs that are not written whole, missing waits (docs/reference/hazards.md). What is not checked here is not checked
by a run either: what hardware is known to hang on although the emulator does not mind stands in
docs/emulator-ignored.md.
"""

from __future__ import annotations

from hexane.emulator.engine import Engine
from hexane.emulator.program import EmulatedProgram
from hexane.emulator.registers import RegisterForms
from hexane.errors import HexaneError
from hexane.image import Image


def refusal(image: Image) -> str:
    """Reasons of the emulator to refuse a program; empty where it would run it."""
    try:
        check_program(image)
    except HexaneError as error:
        return str(error)
    return ""


def check_program(image: Image | EmulatedProgram) -> None:
    """EmulationError, with task, register and address, for a program that the emulator would refuse to run.

    Constant kernels are not unpacked: their sizes are checked, their contents are not.
    """
    program = EmulatedProgram.of(image)
    engine = Engine(program.buffers(), program.l2_bytes)
    for registers in program.chain(RegisterForms().of):
        engine.check(registers)
    program.require_complete(engine.memory)
