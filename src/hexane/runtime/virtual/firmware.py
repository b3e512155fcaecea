"""The firmware behind ABI 2: it checks a program's sections when it loads them, and resolves slots at every call.

What it checks is what is known of the real one (docs/reference/devices.md 5); programs run on the emulator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hexane.emulator.stream import walk
from hexane.errors import HexaneError
from hexane.isa.channels import CONST
from hexane.runtime.linux import sections as parts
from hexane.runtime.linux.uapi import OUTPUT, SPARE_BYTES
from hexane.runtime.virtual.engine import EmulatedEngine
from hexane.runtime.virtual.memory import VirtualBuffer

FIRST_PROGRAM, FIRST_PROCESS = 1, 1
LATEST_VERSION = 0x10


class FirmwareError(HexaneError):
    """The firmware refuses a program or a call."""

    code = "firmware"


@dataclass(frozen=True, eq=False)
class FirmwareCall:
    """A buffer of one call."""

    buffer_id: int
    kind: int
    size: int
    buffer: VirtualBuffer


@dataclass(frozen=True)
class _Entry:
    kind: int
    size: int


@dataclass(frozen=True)
class _Program:
    stream: bytes
    const: bytes
    entries: Mapping[int, _Entry]
    slots: Mapping[int, int]
    tasks: int


class Firmware:
    """Programs by id, each with one process."""

    def __init__(self) -> None:
        self.programs: dict[int, _Program] = {}
        self.processes: dict[int, int] = {}
        self.engine = EmulatedEngine()

    def load(self, sections: Mapping[int, bytes]) -> int:
        """The id of a program; FirmwareError for sections that do not hold together."""
        missing = [number for number in parts.SECTION_IDS if number not in sections]
        if missing:
            raise FirmwareError(f"section {missing[0]} is missing")
        stream = sections[parts.DESCRIPTOR]
        entries = _entries(sections[parts.GENERIC])
        slots = _slots(sections[parts.OPERATION])
        count = _require_properties(sections[parts.TASK_PROPERTIES], stream)
        if sections[parts.PROCEDURE][:4] != b"\1\0\0\0" or len(sections[parts.PROCEDURE]) < 0x38:
            raise FirmwareError("the procedure section is not one procedure")
        for slot, number in slots.items():
            if number != parts.CONST_ID and number not in entries:
                raise FirmwareError(f"slot {slot} leads to buffer {number}, which the program does not list")
        number = FIRST_PROGRAM + len(self.programs)
        self.programs[number] = _Program(stream, sections[parts.KERNEL], entries, slots, count)
        return number

    def process(self, program: int) -> int:
        """The process of a program."""
        return self.processes.setdefault(program, FIRST_PROCESS + len(self.processes))

    def prepare(self, program: int, process: int, calls: list[FirmwareCall]) -> Callable[[], int]:
        """Runner of a call; FirmwareError for one that is not made for the program."""
        program_found = self.programs.get(program)
        if program_found is None or self.processes.get(program) != process:
            raise FirmwareError(f"program {program} with process {process} is not there")
        by_id = {one.buffer_id: one for one in calls}
        if len(by_id) != len(calls) or set(by_id) != set(program_found.entries):
            raise FirmwareError(f"buffers {sorted(by_id)}, and the program lists {sorted(program_found.entries)}")
        for number, entry in program_found.entries.items():
            if by_id[number].size != entry.size:
                raise FirmwareError(
                    f"buffer {number} has {by_id[number].size:#x} bytes, the program lists {entry.size:#x}"
                )
        return lambda: self._run(program_found, by_id)

    def _run(self, program: _Program, given: Mapping[int, FirmwareCall]) -> int:
        channels = {}
        for slot, number in program.slots.items():
            if number == parts.CONST_ID:
                continue
            one = given[number]
            # the engine reads past an input, and writes at an output's very end
            if one.buffer.size < one.size + SPARE_BYTES:
                verb = "writes" if one.kind == OUTPUT else "reads"
                raise FirmwareError(f"the engine {verb} past buffer {number}, and no page is behind it")
            channels[slot] = np.frombuffer(one.buffer.data, np.uint8, one.size)
        const = program.const if CONST in program.slots else b""
        return self.engine.run(walk(program.stream, "h14", count=program.tasks), program.stream, const, channels)

    def forget(self) -> None:
        """Let buffers go."""
        self.engine.forget()


def _entries(generic: bytes) -> dict[int, _Entry]:
    if len(generic) < parts.GENERIC_HEAD or struct.unpack_from("<I", generic)[0] != 1:
        raise FirmwareError("the generic section does not start with 1")
    version, count = struct.unpack_from("<I", generic, 4)[0], struct.unpack_from("<I", generic, parts.COUNT_AT)[0]
    if version > LATEST_VERSION:
        raise FirmwareError(f"version {version:#x} of the generic section, the latest known is {LATEST_VERSION:#x}")
    if len(generic) < parts.GENERIC_HEAD + parts.GENERIC_ENTRY * count:
        raise FirmwareError(f"{count} buffers do not fit the generic section")
    entries: dict[int, _Entry] = {}
    for index in range(count):
        at = parts.GENERIC_HEAD + parts.GENERIC_ENTRY * index
        _, number, kind = struct.unpack_from("<III", generic, at)
        (size,) = struct.unpack_from("<Q", generic, at + 0x20)
        if number in (2, 3) or number in entries:
            raise FirmwareError(f"buffer id {number} is a section's, or used twice")
        entries[number] = _Entry(kind, size)
    return entries


def _slots(operation: bytes) -> dict[int, int]:
    if len(operation) < 4 + parts.OPERATION_RECORD or struct.unpack_from("<I", operation)[0] != 1:
        raise FirmwareError("the operation section is not one record")
    (count,) = struct.unpack_from("<I", operation, 4 + 8)
    if 0xC + 8 * count > parts.OPERATION_RECORD:
        raise FirmwareError(f"{count} slots do not fit a record of the operation section")
    numbers = struct.unpack_from(f"<{2 * count}I", operation, 4 + 0xC)
    return dict(zip(numbers[::2], numbers[1::2]))


def _require_properties(properties: bytes, stream: bytes) -> int:
    if len(properties) < 40:
        raise FirmwareError("the task properties are cut off")
    (count,), (size,) = struct.unpack_from("<I", properties, 0xC), struct.unpack_from("<Q", properties, 0x20)
    walked = sum(1 for _ in parts.blocks(stream))
    if count != walked or size != len(stream):
        raise FirmwareError(f"{count} tasks in {size:#x} bytes, and the stream has {walked} in {len(stream):#x}")
    return walked
