"""A program of H14 as the six sections that the engine's firmware loads (docs/reference/devices.md 5).

The firmware resolves addresses in the task stream by slots: the operation section says which buffer stands behind which
slot, the generic section which buffers there are, and every call brings the buffers themselves.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexane.errors import UnsupportedError
from hexane.isa.channels import CONST, SCRATCH
from hexane.isa.granules import PAGE
from hexane.rounding import ceil_div
from hexane.runtime.linux.uapi import GENERATIONS, INPUT, MOST_BINDS, OUTPUT

if TYPE_CHECKING:
    from hexane.image import Image

GENERIC, KERNEL, DESCRIPTOR, OPERATION, PROCEDURE, TASK_PROPERTIES = 1, 2, 3, 4, 5, 7
SECTION_IDS = (GENERIC, KERNEL, DESCRIPTOR, OPERATION, PROCEDURE, TASK_PROPERTIES)
CONST_ID, SCRATCH_ID, FIRST_ID = 2, 0x40, 4
"""Buffer ids: the constants are section 2; 2 and 3 are no buffer's; outputs from 4 on, then inputs."""
MOST_ID = 31
FRAME = bytes(16)
GENERIC_HEAD, GENERIC_ENTRY = 0x208, 0x30
OPERATION_RECORD = 0x40C
COUNT_AT = 0x204
ADDRESS_RECORD, DENSE = 1 << 29, 1 << 31
_NO_LIMIT = 0xFFFF


@dataclass(frozen=True)
class SectionPort:
    """A buffer of a call: the slot that tasks name, the id that the firmware knows, type, bytes in whole tiles.

    ``label`` is the surface's; the scratch buffer has none.
    """

    label: str
    slot: int
    buffer_id: int
    kind: int
    size: int

    @property
    def scratch(self) -> bool:
        """True where the host neither fills nor reads it."""
        return self.buffer_id == SCRATCH_ID


def ports_of(image: Image) -> tuple[SectionPort, ...]:
    """The buffers of a call: inputs, then outputs, then scratch, each with an id of its own.

    Raises UnsupportedError for a program of another generation, or with more surfaces than there are ids.
    """
    if image.generation != GENERATIONS[2]:
        raise UnsupportedError(
            f"ABI 2 of the Linux drivers takes H14 programs, this one is for {image.generation}",
            hint='compile for the chip: hexane.compile(graph, chip="M2 Max")',
        )
    if FIRST_ID + len(image.surfaces) > MOST_ID + 1:
        raise UnsupportedError(
            f"{len(image.surfaces)} inputs and outputs; the driver's firmware knows {MOST_ID + 1 - FIRST_ID} buffers"
        )
    ports = []
    first_input = FIRST_ID + len(image.outputs)
    for surfaces, kind, first in ((image.inputs, INPUT, first_input), (image.outputs, OUTPUT, FIRST_ID)):
        ordered = sorted(surfaces, key=lambda s: s.channel or 0)
        for number, surface in enumerate(ordered, first):
            if surface.channel is None:
                raise UnsupportedError(f"no slot leads to surface {surface.label!r}")
            ports.append(SectionPort(surface.label, surface.channel, number, kind, _tiles(surface.nbytes)))
    if image.scratch_bytes:
        ports.append(SectionPort("", SCRATCH, SCRATCH_ID, INPUT, _tiles(image.scratch_bytes)))
    return tuple(ports)


def _tiles(size: int) -> int:
    return max(1, ceil_div(size, PAGE)) * PAGE


def sections_of(image: Image, ports: tuple[SectionPort, ...]) -> dict[int, bytes]:
    """Section id -> bytes, in ascending order of the ids. The same program always gives the same bytes.

    Raises UnsupportedError for a stream that names a slot without a buffer, or that the firmware would refuse.
    """
    stream = image.text()
    if stream[: len(FRAME)] != FRAME:
        raise UnsupportedError("the task stream does not start with a frame of 16 zero bytes")
    pairs = _pairs(stream, ports)
    return {
        GENERIC: _generic(ports),
        KERNEL: image.const,
        DESCRIPTOR: stream,
        OPERATION: _operation(pairs),
        PROCEDURE: _procedure(),
        TASK_PROPERTIES: _task_properties(stream),
    }


def digest(sections: Mapping[int, bytes]) -> bytes:
    """Key by which the driver tells programs apart: SHA-256 over id, size and bytes of every section, ids ascending."""
    total = hashlib.sha256()
    for number, content in sorted(sections.items()):
        total.update(struct.pack("<QQ", number, len(content)))
        total.update(content)
    return total.digest()


def blocks(stream: bytes) -> Iterator[tuple[int, int]]:
    """Offset and 32-bit words of every task of a stream, as the firmware walks it.

    Raises UnsupportedError where the walk meets a block without words or the stream's end.
    """
    (first,) = struct.unpack_from("<I", stream, 0)
    at = 0x30 if first & 4 else 0x10
    while at < len(stream):
        words = struct.unpack_from("<H", stream, at + 2)[0] & 0x7FF if at + 4 <= len(stream) else 0
        if not words or at + 4 * words > len(stream):
            raise UnsupportedError(f"the task stream has no whole task at byte {at:#x}; the firmware would refuse it")
        yield at, words
        at += (4 * words + 15) & 0x3FF0


def slots(stream: bytes) -> set[int]:
    """The slots that address records of a stream name.

    Raises UnsupportedError for a record that leaves its task, or whose slot cannot be read.
    """
    numbers = set()
    for at, words in blocks(stream):
        task = struct.unpack_from(f"<{words}I", stream, at)
        index = 9 if task[7] & 3 == 3 else 8
        while index < words:
            head = task[index]
            count = 1 + ((head >> 15 & 0xFFFF).bit_count() if head & DENSE else head >> 15 & 0x3F)
            if index + 1 + count > words:
                raise UnsupportedError(f"a record of the task at byte {at:#x} ends behind the task")
            if not head & DENSE and head & ADDRESS_RECORD:
                if head >> 28 & 1:
                    raise UnsupportedError(f"the task at byte {at:#x} names slot 32 or above; no program was seen to")
                if count > 1 and task[index + 2]:
                    raise UnsupportedError(f"the task at byte {at:#x} has an offset of 4 GiB or more")
                numbers.add(head >> 23 & 0x3F)
            index += 1 + count
    return numbers


def _pairs(stream: bytes, ports: tuple[SectionPort, ...]) -> list[tuple[int, int]]:
    ids = {CONST: CONST_ID, **{port.slot: port.buffer_id for port in ports}}
    slots_used = slots(stream)
    unknown = sorted(slots_used - set(ids))
    if unknown:
        raise UnsupportedError(f"tasks name slot {unknown[0]}, and no buffer stands behind it")
    if len(slots_used) > MOST_BINDS:
        raise UnsupportedError(f"tasks name {len(slots_used)} slots; a call has room for {MOST_BINDS} buffers")
    return [(slot, ids[slot]) for slot in sorted(slots_used)]


def _generic(ports: tuple[SectionPort, ...]) -> bytes:
    data = bytearray(GENERIC_HEAD + GENERIC_ENTRY * len(ports))
    struct.pack_into("<II", data, 0, 1, 0x10)
    struct.pack_into("<I", data, COUNT_AT, len(ports))
    for number, port in enumerate(ports):
        direction = 2 if port.kind == OUTPUT else 1
        at = GENERIC_HEAD + GENERIC_ENTRY * number
        struct.pack_into("<III", data, at, 1, port.buffer_id, port.kind)
        struct.pack_into("<I", data, at + 0x10, direction)
        struct.pack_into("<QI", data, at + 0x20, port.size, _NO_LIMIT)
    return bytes(data)


def _operation(pairs: list[tuple[int, int]]) -> bytes:
    """One record, which serves all tasks."""
    data = bytearray(4 + OPERATION_RECORD)
    struct.pack_into("<I", data, 0, 1)
    struct.pack_into("<I", data, 4 + 8, len(pairs))
    for number, pair in enumerate(pairs):
        struct.pack_into("<II", data, 4 + 0xC + 8 * number, *pair)
    return bytes(data)


def _procedure() -> bytes:
    """One procedure of one call; the contents are those that have run, and no rule for others is known."""
    head = struct.pack("<I4xQQ", 1, 0x18, 0x20)
    return head + struct.pack("<8I", 1, 3, 0, 0, 1, 0, 0xFFFFFFFF, 4)


def _task_properties(stream: bytes) -> bytes:
    count = sum(1 for _ in blocks(stream))
    return struct.pack("<I8xIQQQ", 1, count, 0, 0, len(stream))
