"""Registers in words, of field values set by hand (docs/reference/engine-h13.md 4)."""

from __future__ import annotations

import pytest

from hexane.isa.explain import explain
from hexane.isa.generations import family_of

TABLE = family_of("h13").table
PHRASES = [
    ("h13 Header[6]", {"SPL": 1, "TSR": 1}, "alone in its L2 group"),
    ("h13 Header[6]", {"SPL": 1, "SrcLoc": 1}, "first of an L2 group, reads memory"),
    ("h13 Header[6]", {"TSR": 1, "DstLoc": 1}, "last of an L2 group, writes memory"),
    ("h13 Header[6]", {"SrcLoc": 1, "DstLoc": 1}, "inside an L2 group, reads memory, writes memory"),
    ("h13 Header[8]", {"RBase0": 4, "RBE0": 1, "WBase": 5, "WBE": 1}, "source 1 is channel 4, result is channel 5"),
    ("h13 Header[8]", {"RBase0": 4, "RBase1": 6, "RBE1": 1}, "source 2 is channel 6"),
    ("h13 Header[9]", {"KBase0": 2, "KBE0": 1}, "kernel is channel 2"),
    ("Common.ChCfg", {"InFmt": 2, "OutFmt": 1}, "fp16 in, int8 out"),
    ("Common.ChCfg", {"InFmt": 0, "Src2InFmt": 2, "OutFmt": 2}, "uint8 and fp16 in, fp16 out"),
    ("Common.ConvCfg", {"Kh": 3, "Kw": 5, "Sy": 2, "Sx": 1}, "3 x 5 window, stride 2 x 1"),
    (
        "Common.ConvCfg", {"Kh": 3, "Kw": 3, "Sy": 1, "Sx": 1, "Py": 1, "Px": 2},
        "3 x 3 window, stride 1 x 1, 1 rows above and 2 columns left are padding",
    ),
    ("Common.GroupConvCfg", {"NumGroups": 1}, "one group, every output sees every input"),
    (
        "Common.GroupConvCfg", {"NumGroups": 2, "UnicastEn": 1, "UnicastCin": 1},
        "2 groups, every output sees 1 of the inputs",
    ),
    (
        "Common.GroupConvCfg", {"NumGroups": 4, "UnicastEn": 1, "UnicastCin": 2},
        "4 groups, every output sees 2 of the inputs, combined",
    ),
    (
        "Common.GroupConvCfg", {"NumGroups": 4, "UnicastEn": 1, "UnicastCin": 2, "ElemMultMode": 1},
        "4 groups, every output sees 2 of the inputs, multiplied",
    ),
    ("Common.Cfg", {"PEKind": 2}, "planar engine, unary"),
    ("Common.Cfg", {"ActiveNE": 4, "ShMax": 3}, "16 cores, patches of up to 16 x 8 pixels"),
    ("Common.Cfg", {"ActiveNE": 0, "ShMax": 4}, "1 core, patches of up to 8 x 16 pixels"),
    ("Common.Cfg", {"ActiveNE": 1, "ShMax": 5}, "2 cores"),
    ("PE.Cfg", {"FirstSrc": 1, "SecSrc": 2, "OpMode": 1}, "-source 1 mul source 2"),
    ("PE.Cfg", {"SecSrc": 3, "OpMode": 0, "Cond": 3}, "source 1 add -source 2, gt"),
    ("PE.Cfg", {"OpMode": 4, "ReduceMode": 1}, "source 1 squared, reductions take the average"),
    ("PE.Cfg", {"Cond": 1, "NonlinearMode": 2, "ReluEn": 1}, "source 1, absolute value, rsqrt, relu"),
    ("NE.MACCfg", {"OpMode": 0, "KernelMode": 1, "BiasMode": 1}, "sum, then kernel of ones, then bias"),
    ("NE.MACCfg", {"OpMode": 4, "KernelMode": 1, "NonlinearMode": 2}, "bypass, then table"),
    ("L2.SourceCfg", {"SourceType": 0, "Dependent": 1}, "already in L2, right behind the NE task before"),
    ("L2.SourceCfg", {"SourceType": 1}, "by DMA, kept whole"),
    ("L2.SourceCfg", {"SourceType": 2}, "by DMA, streamed"),
    ("L2.SourceCfg", {"SourceType": 3, "Dependent": 2}, "strips of the task before, right behind the PE task before"),
    *(
        ("L2.ResultCfg", {"ResultType": number}, phrase)
        for number, phrase in enumerate(
            ("stays in L2", "kept and sent by DMA", "streamed out by DMA", "strips for the task behind")
        )
    ),
    ("TileDMASrc.Fmt", {"FmtMode": 1, "MemFmt": 2, "Interleave": 4}, "fp16, 4 channels side by side"),
    ("TileDMADst.Fmt", {"FmtMode": 0, "MemFmt": 1, "Interleave": 1}, "int8"),
    ("TileDMADst.Fmt", {"FmtMode": 0, "MemFmt": 0}, "8-bit"),
    ("TileDMADst.Fmt", {"FmtMode": 3, "MemFmt": 3}, "fp32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "phrase"), PHRASES, ids=[phrase for *_, phrase in PHRASES])
def test_what_a_register_says(name: str, fields: dict[str, int], phrase: str) -> None:
    number = name.partition("Header[")[2].rstrip("]")
    register = TABLE.header[int(number)] if number else dict(TABLE.by_key.values())[name]
    rows = {row.name: row for row in register.fields}
    assert explain(name, register, [sum(value << rows[field].low for field, value in fields.items())]) == phrase


def test_sizes_are_bytes_and_logarithms_counts() -> None:
    """Fields in units of 64 bytes, of one register and of a row of them."""
    sizes = next(r for _, r in TABLE.by_key.values() if r.name == "CoeffBfrSize")
    title = sizes.meaning.partition(";")[0]
    for words, text in (([64], "64 bytes"), ([64, 64], "64 bytes"), ([64, 192], "64 to 192 bytes in steps of 128"),
                        ([64, 192, 128], "up to 192 bytes")):  # fmt: skip
        assert explain("KernelDMASrc.CoeffBfrSize", sizes, words) == f"{title}, {text}"
