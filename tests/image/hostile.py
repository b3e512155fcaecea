"""Ways to spoil a file, and what must still hold of what comes out."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import strategies as st

import hexane
from hexane.errors import FormatError, HexaneError
from hexane.image import Surface, build_image, to_anec
from hexane.image.kernels import read_kernels
from hexane.image.summary import summary_of
from hexane.image.text import assemble_image, disassemble_image
from hexane.isa import Task, link

ABSURD = (0, 1, 2, 7, 0x3F, 0x7F, 0x80, 0xFF, 0x3FFF, 0x4000, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
ABSURD_WIDE = (*ABSURD, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def small_program(dialect: str = "zin4", tasks: int = 3) -> bytes:
    """A program that needs no data from elsewhere: a few tasks with kernels, three surfaces, scratch."""
    made = []
    for i in range(tasks):
        task = Task("h13")
        task.set("Header[9].KBase0", 1)
        task.set("Header[9].KBE0", 1)
        task.set("KernelDMASrc.MasterConfig.MasterEnable", 1)
        task.set("KernelDMASrc.CoeffDMAConfig[0].En", 1)
        task.set("KernelDMASrc.CoeffBaseAddr[0].Addr", i)
        task.set("KernelDMASrc.CoeffBfrSize[0].MemBfrSize", 1)
        task.set("Common.InDim.Win", 8 + i)
        task.set("TileDMADst.Fmt", 0x01302031)
        made.append(task)
    surfaces = [
        Surface("x", "input", (1, 3, 4, 5)),
        Surface("another", "input", (1, 3, 4, 5), dtype="uint8"),
        Surface("y", "output", (2, 3, 4, 50)),
    ]
    return build_image(link(made), bytes(range(256)), surfaces, "h13", scratch_bytes=100, dialect=dialect).to_bytes()


@st.composite
def spoiled(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """A file that was truncated, bit-flipped, spliced with another, or filled with absurd numbers."""
    data = bytearray(draw(st.sampled_from(originals)))
    hot = min(len(data), 0x1800)  # header, commands, symbols
    for _ in range(draw(st.integers(1, 4))):
        if len(data) < 8:
            break
        area = draw(st.sampled_from([hot, hot, 0x200, len(data)]))
        at = draw(st.integers(0, max(0, min(area, len(data)) - 1)))
        kind = draw(st.sampled_from(["cut", "flip", "u32", "u32", "u64", "splice", "erase", "insert"]))
        if kind == "cut":
            del data[at:]
        elif kind == "flip":
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "u32":
            data[at & ~3 : (at & ~3) + 4] = draw(st.sampled_from(ABSURD)).to_bytes(4, "little")
        elif kind == "u64":
            data[at & ~7 : (at & ~7) + 8] = draw(st.sampled_from(ABSURD_WIDE)).to_bytes(8, "little")
        elif kind == "splice":
            other = draw(st.sampled_from(originals))
            start = draw(st.integers(0, len(other) - 1))
            length = draw(st.integers(1, 0x400))
            data[at : at + length] = other[start : start + length]
        elif kind == "erase":
            del data[at : at + draw(st.integers(1, 64))]
        else:
            data[at:at] = bytes(draw(st.integers(1, 64)))
    return bytes(data)


def survives(data: bytes, text: bool = False) -> str:
    """Do everything with the bytes that a reader can do. Every refusal is a `HexaneError`; what opens loses nothing."""
    try:
        image = hexane.open_image(data)
    except FormatError as error:
        assert error.offset is not None, error
        assert error.message
        return "refused"
    assert image.to_bytes() == data
    try:
        _ = image.tasks, image.surfaces, image.kernels, repr(image)
    except FormatError as error:
        assert error.offset is not None, error
        return "bad tasks"
    except HexaneError:
        return "not decodable"
    assert image.rebuild() == data
    summary_of(image)
    read_kernels(image)
    with suppress(HexaneError):
        to_anec(image).to_bytes()
    if text:
        try:
            written = disassemble_image(image)
        except HexaneError:
            return "no text"
        assert assemble_image(written).rebuild() == data
    return "opened"
