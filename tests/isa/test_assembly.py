"""Assembly text: complete for every program, readable back, and exact about where it is wrong."""

from __future__ import annotations

import re
import struct

import pytest

from facts import fact_params
from hexane.errors import SyntaxProblem, UsageError
from hexane.isa import Task, decode_stream, encode_stream, link
from hexane.isa.assembly import assemble, disassemble, format_directive
from isa.streams import apple_stream

PROGRAMS = [pytest.param("h13", *p.values, id=f"h13-{p.id}", marks=p.marks) for p in fact_params("apple/h13/*.json")]
PROGRAMS += [pytest.param("h14", *p.values, id=f"h14-{p.id}", marks=p.marks) for p in fact_params("apple/h14/*.json")]


@pytest.mark.parametrize(("generation", "path"), PROGRAMS)
def test_text_is_complete(generation, path):
    data = apple_stream(path)
    tasks = decode_stream(data, generation)
    text = disassemble(tasks)
    assembly = assemble(text)
    assert assembly.generation == generation
    assert encode_stream(assembly.tasks, generation) == data
    bare = disassemble(tasks, comments=False)
    assert ";" not in bare
    assert assemble(bare).tasks == tasks


def test_a_program_by_hand():
    text = """
    .generation h13
    task first:
        Header[0]      TID=0
        Header[1]      NextSize=words(second)-1
        Header[7]      NextPointer=offset(second)
        Common.InDim   Win=77 Hin=0x1
        NE.MACCfg      OpMode=bypass KernelMode=1, NonlinearMode=relu Bit20=1   ; comment
        NE.PostScale   PostScale=fp16(0.5 + 0.5)
        L2.ResultBase  Addr=bytes(0xa0)
        KernelDMASrc.CoeffBaseAddr[0..3]  Addr=[0, 9, 2*9, (1 << 4) + 11]
        KernelDMASrc.CoeffDMAConfig[0..3] CacheHint=noalloc
        zero PE.Cfg, PE.BiasScale
        PE.FinalScale = fp32(-1.5)
    task second
        Header[0]      TID=1 EON=1
    """
    first, second = assemble(text).tasks
    assert first.get("Header[1].NextSize") == len(second.words()) - 1
    assert first.get("Header[7].NextPointer") == second.offset == 0x100
    assert first.Common.InDim.Win == 77
    assert first.get("NE.MACCfg") == 0x11000C
    assert first.NE.PostScale.PostScale == 0x3C00
    assert first.L2.ResultBase.Addr == 0xA
    assert [lane.Addr for lane in first.KernelDMASrc.CoeffBaseAddr] == [0, 9, 18, 27] + 12 * [0]
    assert first.written("PE.Cfg") and not first.written("PE.PreScale")
    assert first.get("PE.FinalScale") == 0xBFC00000


@pytest.mark.parametrize("number", ["10.0", "0.1", "123.25", "1.5e-3", "65504.0"])
def test_numbers_of_several_digits(number):
    (task,) = assemble(f".generation h13\ntask t\n  PE.FinalScale FinalScale=fp32({number})").tasks
    assert struct.pack("<I", task.PE.FinalScale.FinalScale) == struct.pack("<f", float(number))


def test_records_of_packed_streams():
    text = """
    .generation h14
    task t:
      scatter
        Common.InDim  Win=4 Hin=4
        Common.Cin    Cin=32
      address 16
        TileDMASrc.BaseAddr
        TileDMASrc.BaseAddrHigh
      dense
        TileDMADst.Filler = 0xdead
      dense
        TileDMADst.Filler = 0xdead
    """
    (task,) = assemble(text).tasks
    assert [record.form for record, _ in task.records()] == ["scatter", "address", "dense", "dense"]
    assert task.slots() == {"TileDMASrc.BaseAddr": 16, "TileDMASrc.BaseAddrHigh": 16}
    assert task.Header[0].Size == len(task.words()) == 8 + 3 + 3 + 2 + 2
    assert assemble(disassemble([task])).tasks == [task]


def test_places_and_labels():
    tasks = link([Task("h13"), Task("h13")], [Task("h13")])
    text = disassemble(tasks, labels=["a", "b", "c"])
    assert "NextPointer=offset(b)" in text and "NextSize=words(c)-1" in text
    moved = assemble(text.replace("task b:", ".org 0x4000\ntask b:") + "\n.tail 12\n")
    assert [task.offset for task in moved.tasks] == [0, 0x4000, 0x4100]
    data = encode_stream(moved.tasks, "h13")
    assert len(data) == 0x4100 + 40 + 12
    again = decode_stream(data, "h13")
    assert again == moved.tasks
    assert assemble(disassemble(again)).tasks == again
    assert encode_stream(assemble(disassemble(again)).tasks, "h13") == data
    with pytest.raises(UsageError):
        disassemble(tasks, labels=["a", "a", "b"])


def test_directives_of_a_caller():
    taken = []
    line = format_directive("surface", "x", [1, 3, 224, 224], "a b", dtype="float16", scale=0.5, fill=1e-8)
    text = f".generation h13\n{line}\ntask t\n.const 0x10 -2\n"
    assembly = assemble(text, directives={"surface": taken.append, "const": taken.append}, name="x.hxs")
    assert len(assembly.tasks) == 1
    surface, const = taken
    assert surface.arguments == ("x", [1, 3, 224, 224], "a b")
    assert surface.options == {"dtype": "float16", "scale": 0.5, "fill": 1e-8}
    assert (surface.line, const.line) == (2, 4)
    assert const.arguments == (14,)  # an expression; a comma separates
    with pytest.raises(SyntaxProblem, match=r"x\.hxs:4:1: \.const: too small"):
        const.fail("too small")


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("    NE.MACCfg OpMod=3", 15, "no field NE.MACCfg.OpMod"),
        ("    NE.MACCfg OpMode=bypas", 22, "known are sum, .*bypass"),
        ("    NE.MACCfg OpMode=", 22, "ends too early"),
        ("    NE.MACCfg OpMode=8", 22, "does not fit the 3 bits of NE.MACCfg.OpMode"),
        ("    NE.MACCfg OpMode=-1", 23, "does not fit"),
        ("    NE.MACCfg OpMode=1.5", 22, "takes an integer"),
        ("    NE.MACCfg OpMode=1 OpMode=1", 24, "twice"),
        ("    NE.MACfg", 5, "did you mean NE.MACCfg"),
        ("    NE.MACCfg\r", None, ""),
        ("    CoeffBaseAddr Addr=1", 19, "does not belong here"),
        ("    KernelDMASrc.CoeffBaseAddr Addr=1", 5, "no register or field"),
        ("    KernelDMASrc.CoeffBaseAddr[16] Addr=1", 5, "no register or field"),
        ("    KernelDMASrc.CoeffBaseAddr[0..1] Addr=[1]", 38, "a list of 1 values for 2 registers"),
        ("    L2.SourceBase Addr=bytes(17)", 24, "steps of 16 bytes"),
        ("    Common.Cin Cin=bytes(16)", 20, "does not count bytes"),
        ("    NE.PostScale PostScale=fp17(1.0)", 28, "unknown function fp17"),
        ("    Header[7] NextPointer=offset(nobody)", 34, "no task nobody"),
        ("    Header[10] DTID=1", 6, "only when"),
        ("    scatter", 5, "h13 has no scatter records"),
        ("    NE.MACCfg $", 15, "does not belong here"),
        ("    .org 3", 5, "multiple of 4"),
        ("    .surfaces 3", 5, "unknown directive"),
        ("    zero NE.MACCfg, NE.MACCfg", 21, "written twice"),
        ("    task t", 10, "a second task t"),
        ("    Common.Cin Cin=" + "(" * 5000 + "1" + ")" * 5000 + "+" + "1+" * 50000 + "1", None, "nested too deep"),
    ],
)
def test_errors_name_the_place(line, column, message):
    text = f".generation h13\ntask t:\n{line}\n"
    if not message:
        assert assemble(text).tasks[0].written("NE.MACCfg")
        return
    with pytest.raises(SyntaxProblem, match=message) as caught:
        assemble(text, directives={"section": print})
    if column is not None and "DTID" not in line:
        assert (caught.value.line, caught.value.column) == (3, column)
        shown, caret = str(caught.value).splitlines()[1:3]
        assert caret.index("^") - 4 == column - 1
        assert shown[4:] == line


def test_errors_of_the_whole_text():
    with pytest.raises(SyntaxProblem, match="does not say its generation"):
        assemble("; nothing\n")
    with pytest.raises(SyntaxProblem, match="before the generation is known"):
        assemble("task t\n")
    with pytest.raises(SyntaxProblem, match=re.escape("h11 tasks")):
        assemble(".generation h11\n")
    with pytest.raises(SyntaxProblem, match="outside of every task"):
        assemble(".generation h13\nNE.MACCfg\n")
    assert assemble("", generation="h14").tasks == []
