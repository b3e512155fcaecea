"""Flip one bit of a program's text and say what becomes of the run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hexane import isa
from hexane.emulator import EmulatedProgram, emulate
from hexane.emulator.ignored import reason
from hexane.emulator.registers import Registers
from hexane.errors import HexaneError

CHANGED, REFUSED, IGNORED, SILENT = "output changed", "error", "on the ignore-list", "SILENT"


@dataclass(frozen=True)
class Flip:
    """One bit: task, dotted name of its field, byte offset in the text, bit of that word."""

    task: int
    name: str
    offset: int
    bit: int


def flips(program: EmulatedProgram) -> Iterator[Flip]:
    """Every bit of every word of every task, record heads included."""
    for index, task in enumerate(isa.decode_stream(program.text, program.generation)):
        names = _names(task)
        for position in range(task.layout.size):
            for bit in range(32):
                yield Flip(index, names.get((position, bit), "record head"), task.offset + 4 * position, bit)


def _names(task: isa.Task) -> dict[tuple[int, int], str]:
    """(word of the task, bit) -> dotted field name."""
    table = task._family.table
    names = {}
    for key, position in task.layout.position.items():
        register_name, register = table.register(key)
        for field in register.fields:
            for bit in range(field.low, field.low + field.limit.bit_length()):
                names[position, bit] = f"{register_name}.{field.name}"
    return names


def _only_ignored(changed: EmulatedProgram, task: isa.Task, flip: Flip) -> bool:
    """Whether a changed record head, from H14 on, moves only values that are read over to other registers."""
    if flip.name != "record head" or changed.generation == "h13":
        return False
    before = Registers(flip.task, task)
    after = Registers(flip.task, isa.decode_stream(changed.text, changed.generation)[flip.task])
    moved = {n for n in {*before.values, *after.values} if before[n] != after[n]}
    return all(reason(before, name) or reason(after, name) for name in moved)


Arrays = dict[str, np.ndarray]


def outcome(program: EmulatedProgram, cases: list[tuple[Arrays, Arrays]], flip: Flip) -> str:
    """What the flip does: changes an output, raises, stands on the ignore-list, or (a defect) nothing at all.

    ``cases`` are inputs with the outputs that they have without the flip. A case is tried where those before it show
    nothing: no data let a small addend and the last bits of a factor be seen at once.
    """
    text = bytearray(program.text)
    (word,) = struct.unpack_from("<I", text, flip.offset)
    struct.pack_into("<I", text, flip.offset, word ^ (1 << flip.bit))
    changed = replace(program, text=bytes(text))
    task = isa.decode_stream(program.text, program.generation)[flip.task]
    for inputs, normal in cases:
        try:
            outputs = emulate(changed, inputs)
        except HexaneError:
            return REFUSED
        if any(not np.array_equal(outputs[name].view(np.uint8), normal[name].view(np.uint8)) for name in normal):
            return CHANGED
        if reason(Registers(flip.task, task), flip.name, flip.bit) or _only_ignored(changed, task, flip):
            return IGNORED
    return SILENT
