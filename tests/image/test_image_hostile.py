"""Hostile files end in an error that says where and why, or open without losing a bit."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, seed, settings

import hexane
from facts import fact_files
from hexane.errors import FormatError, HexaneError
from hexane.image import to_anec
from hexane.image.hwx import read_hwx
from hexane.image.parts import Header, ProgramThread, Section, Segment, SymbolTableCommand
from hexane.image.summary import summary_of
from image.hostile import small_program, spoiled, survives

MADE = [small_program("zin4"), small_program("default")]
ORIGINALS = [
    *MADE,
    to_anec(hexane.open_image(MADE[0])).to_bytes(),
    *(path.read_bytes() for path in fact_files("hwx/*.hwx") if path.stat().st_size < 1 << 17),
]
CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def test_the_originals_open() -> None:
    assert [survives(data, text=True) for data in ORIGINALS] == ["opened"] * len(ORIGINALS)


def test_a_load_command_has_eight_bytes_at_least() -> None:
    (size,) = struct.unpack_from("<I", MADE[0], 0x14)
    with pytest.raises(FormatError) as caught:
        read_hwx(_with(MADE[0], 0x10, "I", size // 8))
    assert "do not fit" not in str(caught.value)
    with pytest.raises(FormatError, match="do not fit"):
        read_hwx(_with(MADE[0], 0x10, "I", size // 8 + 1))


@given(spoiled(ORIGINALS))
@settings(max_examples=250, **CALM)
def test_spoiled_files(data: bytes) -> None:
    survives(data)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(5))
def test_many_spoiled_files(piece: int) -> None:
    @seed(piece)
    @given(spoiled(ORIGINALS))
    @settings(max_examples=2_000, **CALM)
    def one(data: bytes) -> None:
        survives(data, text=True)

    one()


def test_every_truncation_of_the_head() -> None:
    data = MADE[0]
    for end in [*range(0x200), *range(0x200, len(data), 97)]:
        assert survives(data[:end]) != "opened"


def _command(data: bytes, kind: type, number: int = 0) -> int:
    container = read_hwx(data)
    return container.offset_of(container.all_of(kind)[number])


def _with(data: bytes, at: int, code: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into("<" + code, out, at, *values)
    return bytes(out)


SECTION = Segment.fixed_size()
TEXT = 1  # __PAGEZERO, __TEXT, ...

CASES = {
    "a command count of 2^32": (lambda d: _with(d, 0x10, "I", 0xFFFFFFFF), "load commands do not fit"),
    "command bytes of 2^32": (lambda d: _with(d, 0x14, "I", 0xFFFFFFFF), "end behind the file"),
    "a command of size 0": (lambda d: _with(d, 0x24, "I", 0), "states 0x0 bytes"),
    "a command that leaves the list": (lambda d: _with(d, 0x24, "I", 0x7FFFFFF0), "are left"),
    "2^32 sections": (lambda d: _with(d, _command(d, Segment, TEXT) + 64, "I", 0xFFFFFFFF), "has room for"),
    "a segment of 2^63 bytes": (lambda d: _with(d, _command(d, Segment, TEXT) + 48, "Q", 1 << 63), "the file has"),
    "a segment beyond the address space": (
        lambda d: _with(d, _command(d, Segment, TEXT) + 32, "Q", (1 << 64) - 1),
        "leaves the address space",
    ),
    "a section of 2^63 bytes": (
        lambda d: _with(d, _command(d, Segment, TEXT) + SECTION + 40, "Q", 1 << 63),
        "outside its segment",
    ),
    "a section before its segment": (
        lambda d: _with(d, _command(d, Segment, TEXT) + SECTION + 48, "I", 0),
        "outside its segment",
    ),
    "2^32 relocations": (
        lambda d: _with(d, _command(d, Segment, TEXT) + SECTION + 60, "I", 0xFFFFFFFF),
        "relocations",
    ),
    "two sections on the same bytes": (
        lambda d: _with(d, _command(d, Segment, TEXT) + SECTION + Section.fixed_size() + 48, "I", 0x4000),
        "overlap in the file",
    ),
    "two segments on the same addresses": (
        lambda d: _with(d, _command(d, Segment, 3) + 24, "Q", 0x30000000),
        "overlap in memory",
    ),
    "2^32 symbols": (lambda d: _with(d, _command(d, SymbolTableCommand) + 12, "I", 0xFFFFFFFF), "symbols"),
    "strings of 2^32 bytes": (lambda d: _with(d, _command(d, SymbolTableCommand) + 20, "I", 0xFFFFFFFF), "strings"),
    "no strings": (lambda d: _with(d, _command(d, SymbolTableCommand) + 20, "I", 0), "runs out of the string table"),
    "a procedure name outside": (
        lambda d: _with(d, _command(d, ProgramThread) + 0x83C, "I", 0xFFFFFFFF),
        "procedure's name",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_absurd_numbers(case: str) -> None:
    spoil, reason = CASES[case]
    data = spoil(MADE[0])
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=reason) as caught:
            hexane.open_image(data)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.offset is not None


def test_a_loop_in_the_task_list() -> None:
    image = hexane.open_image(MADE[0])
    third = image.tasks[2]
    at = image.contents.text_offset + third.offset + 4 * 7
    looped = _with(MADE[0], at, "I", image.tasks[1].offset)
    with pytest.raises(FormatError, match="loop") as caught:
        hexane.open_image(looped)
    assert caught.value.offset == at
    opened = hexane.open_image(looped, lenient=True)
    assert opened.surfaces == image.surfaces and opened.to_bytes() == looped
    assert "loop" in summary_of(opened)["tasks"][0]["problem"]
    with pytest.raises(FormatError, match="loop"):
        _ = opened.tasks


def test_a_wrong_task_count() -> None:
    at = _command(MADE[0], ProgramThread) + 0x81C
    with pytest.raises(FormatError, match="states 77 tasks, its stream has 3"):
        hexane.open_image(_with(MADE[0], at, "I", 77))


def test_symbols_that_share_one_long_name() -> None:
    """Names that overlap endlessly would cost the square of the file's size."""
    count = 2000
    strings = b"\0" + b"n" * 60_000 + b"\0"
    table = SymbolTableCommand(2, 24, 56, count, 56 + 16 * count, len(strings))
    symbols = b"".join(struct.pack("<IBBHQ", 1 + i, 0, 0, 0, 0) for i in range(count))
    header = Header(command_count=1, command_bytes=24)
    with pytest.raises(FormatError, match="overlap"):
        hexane.open_image(header.pack() + table.write() + symbols + strings)


def test_packages_with_absurd_numbers() -> None:
    data = ORIGINALS[2]
    assert hexane.open_image(data).dialect == "anec"
    for at, code, value in ((0x10, "Q", 1 << 63), (0x18, "Q", 1 << 63), (0, "Q", 1 << 63), (0x20, "I", 1 << 31)):
        with pytest.raises(HexaneError):
            hexane.open_image(_with(data, at, code, value))
