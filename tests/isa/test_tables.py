"""The register tables: complete, without overlaps, and with the names and values that the specification states."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hexane.errors import UnsupportedError, UsageError
from hexane.isa import GENERATIONS, FieldError, Task, decode_stream, encode_stream, table_of
from hexane.isa.generations import family_of
from hexane.isa.schema import UNKNOWN, Unit, Values

# Words of every block (docs/reference/generations.md 5), in the order of the tables.
WORDS = {
    "h13": {"KernelDMASrc": 62, "Common": 16, "TileDMASrc": 28, "L2": 18, "PE": 4, "NE": 5, "TileDMADst": 7},
    "h14": {"KernelDMASrc": 70, "Common": 19, "TileDMASrc": 53, "L2": 25, "PE": 5, "NE": 5, "TileDMADst": 10},
    "h15": {"KernelDMASrc": 72, "Common": 19, "TileDMASrc": 69, "L2": 30, "PE": 15, "NE": 11, "TileDMADst": 21},
    "h16": {"KernelDMASrc": 72, "Common": 23, "TileDMASrc": 81, "L2": 41, "PE": 15, "NE": 12, "TileDMADst": 21},
    "h17": {"KernelDMASrc": 81, "Common": 23, "TileDMASrc": 83, "L2": 42, "PE": 16, "NE": 13, "TileDMADst": 23},
    "h18": {"KernelDMASrc": 83, "Common": 23, "TileDMASrc": 81, "L2": 43, "PE": 16, "NE": 13, "TileDMADst": 27},
    "h19": {"KernelDMASrc": 83, "Common": 23, "TileDMASrc": 81, "L2": 43, "PE": 16, "NE": 14, "TileDMADst": 27},
}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_bit_has_one_field(generation):
    table = family_of(generation).table
    for name, register in table.by_key.values():
        assert sum(row.mask for row in register.fields) == 0xFFFFFFFF, name
        for row in register.fields:
            assert row.known or not row.kind
            if row.known:
                assert row.meaning, f"{name}.{row.name} without a meaning"
            if isinstance(row.kind, Values):
                assert all(0 <= value <= row.limit for value in row.kind.names), f"{name}.{row.name}"
            if isinstance(row.kind, Unit) and row.kind.scale > 1:
                assert row.kind.scale == 1 << row.low, f"{name}.{row.name}"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_blocks_have_their_lengths(generation):
    blocks = family_of(generation).table.blocks
    counts = {block.name: block.words for block in blocks if block.name != "CacheDMA"}
    assert counts == WORDS[generation]
    for block in blocks:
        assert sum(register.words for register in block.registers) == block.words
    spans = sorted((block.address, block.address + 4 * block.words) for block in blocks)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_unknown_fields_are_unknown_only(generation):
    table = family_of(generation).table
    listed = set(table.unknown_fields())
    for block in table.blocks:
        for register in block.registers:
            dotted = f"{block.name}.{register.name}" + (f"[{register.count}]" if register.count else "")
            for row in register.fields:
                assert (f"{dotted}.{row.name}" in listed) == (row.evidence is UNKNOWN)


@pytest.mark.parametrize(
    ("generation", "word", "fields"),
    [  # composite values that the specification reads out
        ("h13", ("Common.ConvCfg", 0x5042A063), {"Kw": 3, "Kh": 3, "Sx": 1, "Sy": 1, "Px": 1, "Py": 1}),
        ("h13", ("Common.ConvCfg", 0x50014821), {"Kw": 1, "Kh": 1, "OCGSize": 2, "Sx": 2, "Sy": 2, "Ox": 1, "Oy": 1}),
        ("h13", ("Common.GroupConvCfg", 0x2C001), {"NumGroups": 1, "UnicastEn": 1, "ElemMultMode": 1, "UnicastCin": 2}),
        ("h13", ("TileDMASrc.DMAConfig", 0x53901), {"En": 1, "CacheHint": 4, "DependencyMode": 1}),
        ("h13", ("TileDMADst.Fmt", 0x02302031), {"FmtMode": 1, "Truncate": 3, "MemFmt": 2, "ZeroPadLast": 1}),
        ("h13", ("L2.SourceCfg", 0x1000144), {"SourceType": 0, "Dependent": 1, "DMAFmt": 1, "Src2Dma": 1}),
        ("h13", ("PE.Cfg", 0x92010), {"OpMode": 4, "NonlinearMode": 2, "FirstSrc": 1, "SecSrc": 2, "ReduceMode": 0}),
        ("h13", ("NE.MACCfg", 0x121C0A), {"OpMode": 2, "KernelMode": 1, "BinaryPoint": 0x1C, "NonlinearMode": 2}),
        ("h13", ("NE.KernelCfg", 0x8116), {"KernelFmt": 2, "PalettizedEn": 1, "PalettizedBits": 1, "SparseFmt": 1}),
        ("h13", ("Header[8]", 0x05025024), {"RBase0": 4, "RBE0": 1, "WBase": 5, "WBE": 1, "ENE": 5}),
        ("h14", ("Common.ConvCfg", 0x5042A0C3), {"Kw": 3, "Kh": 3, "Sx": 1, "Sy": 1, "Px": 1, "Py": 1}),
        ("h14", ("KernelDMASrc.MasterConfig", 0x102C0), {"MasterEnable": 1, "LastTask": 1, "KernelStream": 1}),
        ("h14", ("TileDMASrc.DMAConfig", 0x10E21), {"En": 1, "CacheHint": 2, "DataSetId": 14, "Tag": 1}),
        ("h16", ("NE.MACCfg", 0x103C0C), {"OpMode": 4, "KernelMode": 1, "BinaryPoint": 0x3C, "Bit20": 1}),
        ("h16", ("Common.Cfg", 0x30241100), {"ShPref": 1, "ShMin": 1, "ShMax": 4, "ActiveNE": 4, "OutTrans": 1}),
        ("h16", ("Common.NECfg", 0x38), {"OCGSize": 0, "FatTile": 1, "WUStackLog2": 3}),
        ("h16", ("PE.FinalScale", 0x3C000000), {"FinalScale": 0x3C000000 >> 13}),
        ("h16", ("L2.ResultCfg", 0x50087A), {"ResultType": 2, "L2BfrMode": 2, "DMAInterleave": 8}),
        ("h17", ("Common.TaskInfo", 0x00200000), {"NID": 1}),
        ("h19", ("NE.KernelCfg", 0x10000046), {"KernelFmt": 2, "PalettizedBits": 4, "DetectZeros": 1}),
        ("h19", ("NE.MACCfg", 0x113C00), {"OpMode": 0, "BinaryPoint": 0x3C, "NonlinearMode": 1, "Bit20": 1}),
        ("h18", ("Common.ChCfg", 0x124), {"InFmt": 4, "Src2InFmt": 4, "OutFmt": 4}),
    ],
)  # fmt: skip
def test_composite_values(generation, word, fields):
    task = Task(generation)
    task.set(*word)
    assert {name: task.get(f"{word[0]}.{name}") for name in fields} == fields


@pytest.mark.parametrize(
    ("generation", "name", "address"),
    [  # docs/reference/generations.md 6, where a field lives
        ("h13", "Common.TileCfg", 0x28),
        ("h14", "Common.TileCfg", 0x2C),
        ("h16", "Common.TileCfg", 0x34),
        ("h13", "L2.ResultCfg", 0x4830),
        ("h14", "L2.ResultCfg", 0x530),
        ("h15", "L2.ResultCfg", 0x4134),
        ("h16", "L2.ResultCfg", 0x4148),
        ("h13", "NE.PostScale", 0xC810),
        ("h14", "NE.PostScale", 0xD10),
        ("h16", "NE.PostScale", 0x4910),
        ("h13", "TileDMASrc.Src2RowStride", 0x13820),
        ("h14", "TileDMASrc.Src2RowStride", 0x1130),
        ("h16", "TileDMASrc.Src2RowStride", 0x4D30),
        ("h17", "TileDMASrc.Src2RowStride", 0x4D30),
        ("h18", "TileDMASrc.Src2RowStride", 0x4D38),
        ("h18", "TileDMASrc.Fmt", 0x4D70),
        ("h16", "TileDMADst.RowStride", 0x5110),
        ("h18", "TileDMADst.RowStride", 0x5118),
        ("h18", "KernelDMASrc.TableBase", 0x5638),
        ("h13", "KernelDMASrc.CoeffBfrSize[3]", 0x1F894),
        ("h14", "KernelDMASrc.CoeffBfrSize[3]", 0x19A4),
        ("h16", "KernelDMASrc.CoeffBfrSize[3]", 0x55AC),
        ("h16", "KernelDMASrc.TableSize", 0x5614),
        ("h14", "KernelDMASrc.TableSize", 0x1A14),
        ("h18", "KernelDMASrc.Tag", 0x5648),
        ("h19", "NE.MACCfg", 4 * 0x1242),
        ("h19", "NE.PostScale", 4 * 0x1245),
        ("h19", "TileDMASrc.Src2BaseAddr", 4 * 0x134C),
        ("h19", "TileDMASrc.Fmt", 4 * 0x135C),
        ("h19", "TileDMADst.PlaneStride", 4 * 0x1447),
        ("h19", "KernelDMASrc.CoeffBaseAddr[1]", 4 * 0x1559),
    ],
)
def test_addresses(generation, name, address):
    assert family_of(generation).table.handle(name).key == address


@pytest.mark.parametrize(
    ("generation", "name", "value"),
    [
        ("h14", "Common.Cin.Cin", 16),
        ("h14", "Common.OCGCfg.OCGSize", 3),
        ("h14", "Common.ConvCfg.Kh", 1),
        ("h14", "NE.KernelCfg", 0x82),
        ("h16", "Common.Win.Win", 256),
        ("h16", "Common.ChCfg.OutFmt", 2),
        ("h16", "PE.FinalScale", 0x3F800000),
        ("h13", "Common.Cin.Cin", 0),
    ],
)
def test_reset_values(generation, name, value):
    task = Task(generation)
    assert task.get(name) == value
    assert task.get(name, None) is None
    assert not task.written(name)


def test_old_generations_are_recognised():
    for generation, chip in (("h11", "A12"), ("h12", "A13")):
        with pytest.raises(UnsupportedError, match=rf"{generation}.*{chip}"):
            decode_stream(b"", generation)
    with pytest.raises(UsageError, match="unknown engine generation 'h20'"):
        Task("h20")


def test_names_that_do_not_exist_say_what_does():
    task = Task("h13")
    with pytest.raises(FieldError, match=r"NE\.MACCfg\.NonlinearMod; the register's fields are .*NonlinearMode"):
        task.get("NE.MACCfg.NonlinearMod")
    with pytest.raises(FieldError, match=r"did you mean Common\.InDim"):
        task.get("Common.InDims.Win")
    with pytest.raises(FieldError, match="the blocks are Header, KernelDMASrc"):
        _ = task.Comon
    for name in ("CoeffBfrSize", "KernelDMASrc.CoeffBfrSize[16]", "Common.InDim[0]", "Header[11]", "", "..", "a.b.c.d"):
        with pytest.raises(FieldError):
            task.get(name)
    assert not hasattr(task, "Comon") and not hasattr(task.NE, "MACfg") and not hasattr(task.NE.MACCfg, "Mode")


@pytest.mark.parametrize(
    ("name", "generation"), [("H13", "h13"), ("h13g", "h13"), ("H16G", "h16"), ("h18g", "h19"), ("h17s", "h17")]
)
def test_a_generation_answers_to_the_names_of_its_targets(name, generation):
    assert table_of(name).generation == generation
    assert decode_stream(encode_stream([Task(name)], name), name)[0].generation == generation


@pytest.mark.parametrize("name", ["h16x", "", "M1"])
def test_other_names_are_refused(name):
    with pytest.raises(UsageError):
        table_of(name)
