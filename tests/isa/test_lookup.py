"""Registers looked up by name, engine address and byte offset in a task; commands with the same answers."""

from __future__ import annotations

import pytest

from hexane.errors import UsageError
from hexane.isa import GENERATIONS, Task
from hexane.isa.generations import family_of
from hexane.isa.lookup import lookup, task_offsets
from report.networks import command

PUBLISHED = {
    0x128: "Common.InDim.Win",
    0x12A: "Common.InDim.Hin",
    0x134: "Common.Cin.Cin",
    0x138: "Common.Cout.Cout",
    0x13C: "Common.OutDim.Wout",
    0x13E: "Common.OutDim.Hout",
    0x144: "Common.ConvCfg.Kw",
    0x178: "TileDMASrc.RowStride.Stride",
    0x17C: "TileDMASrc.PlaneStride.PlaneStride",
    0x180: "TileDMASrc.DepthStride.Stride",
    0x260: "TileDMADst.RowStride.RowStride",
    0x264: "TileDMADst.PlaneStride.PlaneStride",
    0x268: "TileDMADst.DepthStride.DepthStride",
    0x273: "TileDMADst.Fmt.Interleave",
}
"""Byte offsets that the first published notes on the engine give (tinygrad, 2020), with the field that each means."""


@pytest.mark.parametrize("offset", PUBLISHED, ids=hex)
def test_published_offsets_lead_to_their_fields(offset: int) -> None:
    names = [entry.name for entry in lookup(f"{offset:#x}")]
    assert PUBLISHED[offset] in names or PUBLISHED[offset].rpartition(".")[0] in {n.rpartition(".")[0] for n in names}


OLDER = (
    "InputWidth 128 InputHeight 12a InputDepth 12c InputType 130 InputChannels 134 OutputChannels 138 OutputWidth 13c "
    "OutputHeight 13e OutputDepth 140 KernelWidth 144 BatchSize 14c InputRowStride 178 InputPlaneStride 17c "
    "InputDepthStride 180 InputBatchStride 184 InputInterleave 1a7 BiasScalar 230 ScaleScalar 232 KernelType 240 "
    "NeuronType 246 OutputRowStride 260 OutputPlaneStride 264 OutputDepthStride 268 OutputBatchStride 26c "
    "OutputInterleave 273"
).split()
"""Names and bytes of the same notes; kernel height, pads and the output's type stand in the middle of a byte there."""


@pytest.mark.parametrize("name, offset", list(zip(OLDER[::2], (int(digits, 16) for digits in OLDER[1::2]))))
def test_older_names_lie_at_the_bytes_that_they_were_given(name: str, offset: int) -> None:
    (entry,) = lookup(name)
    first = (entry.mask & -entry.mask).bit_length() - 1
    assert 4 * (entry.offset // 4) + first // 8 == offset
    task = Task("h13")
    task.set(name, 3)
    assert task.get(entry.name) == task.get(f"aneTD.{name}") == 3


def test_older_names_that_begin_inside_a_byte() -> None:
    """``0xa000 | KernelHeight * 0x20 | KernelWidth``, ``0x5000 | PadTop * 0x40 | PadLeft * 2`` two bytes on, and
    ``OutputType * 0x10 | InputType``."""
    masks = {
        name: (entry.offset, entry.mask) for name in ("KernelHeight", "PadTop", "PadLeft") for entry in lookup(name)
    }
    assert {offset for offset, _ in masks.values()} == {0x144}
    assert [mask & -mask for _, mask in masks.values()] == [0x20, 0x40 << 16, 2 << 16]
    assert [(entry.offset, entry.mask & -entry.mask) for entry in lookup("OutputType")] == [(0x130, 0x10)]


def test_sections_of_a_task_begin_and_end_where_published() -> None:
    offsets = task_offsets("h13")
    by_block = {block.name: offsets[block.address] for block in family_of("h13").table.blocks}
    assert [by_block[n] for n in ("Common", "TileDMASrc", "L2", "PE", "NE", "TileDMADst")] == [
        0x128, 0x16C, 0x1E0, 0x22C, 0x240, 0x258,
    ]  # fmt: skip
    assert max(offsets.values()) + 4 == 0x274


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_field_is_found_by_its_own_name(generation: str) -> None:
    for key in family_of(generation).table.by_key:
        name, register = family_of(generation).table.register(key)
        for field in register.fields:
            (entry,) = [e for e in lookup(f"{name}.{field.name}", generation) if e.name == f"{name}.{field.name}"]
            assert entry.bits == field.bits and entry.address == (key if key >= 0 else None)


def test_prefixes_bits_and_parts() -> None:
    assert [e.name for e in lookup("aneTD.Header[0].NID")] == ["Header[0].NID"]
    assert [e.name for e in lookup("TileDMADst.Fmt 27")] == ["TileDMADst.Fmt.Interleave"]
    assert {e.name.rpartition(".")[0] for e in lookup("engine:0x13800")} == {"TileDMASrc.DMAConfig"}
    assert all("kernel" in e.name.lower() for e in lookup("kernel"))
    task = Task("h13")
    task.set("aneRegs.Common.InDim.Win", 77)
    assert task.get("Common.InDim.Win") == 77


@pytest.mark.parametrize("text", ["nonsense", "", "0xffffffff", "InDim x", "a b c", "TileDMADst.Fmt 32", "e"])
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        lookup(text)


def test_the_command_prints_the_same(tmp_path) -> None:
    shown = command("registers", "InDim", "--json")
    assert shown["schema"] == "hexane-registers/1" and shown["fields"][0]["name"] == "Common.InDim.Win"
    assert "0x128" in command("registers", "InDim")
