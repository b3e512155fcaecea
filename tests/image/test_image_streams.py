"""Containers of H14 and later: the program thread of flavor 4 (docs/reference/generations.md 3.1). No such file is
at hand, so the fixture writes one from parts by the published layout, around task words that Apple's compiler wrote.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hexane
from facts import fact_params
from hexane.image.commands import tensor_threads
from hexane.image.container import Container
from hexane.image.dialect import DIALECTS
from hexane.image.parts import (
    LC_SURFACE_64,
    LC_THREAD,
    Header,
    ProgramThread,
    Section,
    Segment,
    StreamThread,
    SurfaceName64,
    Tag,
)
from hexane.image.surface import Surface
from hexane.image.text import assemble_image, disassemble_image
from hexane.isa import decode_stream

TEXT, FIRST, SECOND = 0x30010000, 0x30000000, 0x30004000


def stream(path: Path) -> bytes:
    record = json.loads(path.read_text())
    data = bytearray()
    for task in record["tasks"]:
        data.extend(bytes(task["offset"] - len(data)))
        data.extend(b"".join(int(word, 16).to_bytes(4, "little") for word in task["words"]))
    return bytes(data)


def container(text: bytes, subtype: int, first_slot: int, scratch: int = 0) -> Container:
    surfaces = (
        Surface("x", "input", (1, 1, 1, 8), address=FIRST),
        Surface("y", "output", (1, 1, 1, 8), address=SECOND),
    )
    slots = [0] * 256
    slots[0], slots[2] = TEXT, TEXT + len(text)
    for i, surface in enumerate(surfaces):
        slots[2 * (first_slot + i)] = surface.address
    tags = (Tag(7, 8, 0x461C4000), Tag(9, 8, 12))
    name_at = StreamThread.TAGS_AT + 8 + len(tags) * Tag.fixed_size()
    thread = StreamThread(
        command=LC_THREAD,
        size=name_at + 8,
        flavor=4,
        payload_words=(name_at - 0x10) // 4,
        slots=tuple(slots),
        text_address=TEXT,
        unknown_818=0,
        unknown_820=4,
        text_words=len(text) // 4,
        unknown_828=0,
        task_count=len(decode_stream(text, "h14")) if subtype == 5 else 1,
        unknown_834=0,
        unknown_838=0xFFFFFFFF,
        unknown_83c=0xFFFFFFFF,
        unknown_840=0,
        unknown_844=0xFFFF,
        procedure_offset=name_at,
        unknown_84c=(0, 0, 0),
        scratch_bytes=scratch,
        record_count=16,
        unknown_864=0,
        unknown_868=4,
        unknown_86c=0,
        procedure="main",
        tags=tags,
    )
    section = Section("__text", "__TEXT", TEXT, len(text), offset=0x4000, align=14, flags=0x28, content=text)
    segment = Segment(0x19, 152, "__TEXT", TEXT, 0x4000, 0x4000, 0x4000, 5, 5, 1, 4, (section,))
    names = tuple(SurfaceName64(LC_SURFACE_64, 32, 0x18, 0, s.address, s.name) for s in surfaces)
    commands = (segment, *names, thread, *tensor_threads(surfaces, DIALECTS["default"], "main"))
    header = Header(
        cpu_subtype=subtype, command_count=len(commands), command_bytes=sum(command.size for command in commands)
    )
    return Container(header, commands, (), 0x8000)


@pytest.mark.parametrize("path", fact_params("apple/h14/*.json"))
def test_a_program_of_h14(path: Path) -> None:
    text = stream(path)
    data = container(text, 5, 4, scratch=0x1000).write()
    image = hexane.open_image(data)
    assert image.generation == "h14"
    assert image.rebuild() == data and not image.parts.remainders
    assert image.tasks == decode_stream(text, "h14")
    assert [(s.name, s.channel) for s in image.surfaces] == [("x", 4), ("y", 5)]
    assert image.procedure == "main"
    assert image.scratch_bytes == 0x1000
    assert image.program_thread.tags[1].value == 12
    assert assemble_image(disassemble_image(image)).rebuild() == data
    kernels = [kernel for kernel in image.kernels if kernel.is_constant]
    assert bool(kernels) == path.stem.startswith(("conv", "matmul"))
    assert all(chunk.core == core for kernel in kernels for core, chunk in enumerate(kernel.chunks))
    image.tasks[0].set("Header[1].ExeCycles", 77)
    assert hexane.open_image(image.rebuild()).tasks[0].get("Header[1].ExeCycles") == 77


def test_slots_of_h16() -> None:
    text = bytes.fromhex("01000000") + bytes(12)
    image = hexane.open_image(container(text, 7, 6).write())
    assert image.generation == "h16"
    assert [s.channel for s in image.surfaces] == [6, 7]


def test_a_thread_of_an_unknown_flavor_is_kept() -> None:
    parts = container(bytes(16), 5, 4)
    data = bytearray(parts.write())
    at = parts.offset_of(parts.first(StreamThread))
    data[at + 8] = 9
    image = hexane.open_image(bytes(data))
    assert image.program_thread is None
    assert image.rebuild() == bytes(data)
    assert image.parts.first(ProgramThread) is None
    with pytest.raises(hexane.HexaneError):
        _ = replace(parts, file_size=8).write()
