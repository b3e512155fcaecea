"""Golden: every decoded program survives, word by word, and its words follow from its named fields."""

from __future__ import annotations

import re

import pytest

from codegen.programs import every_program, targets_of
from facts import fact_params
from hexane.image.files import open_image
from hexane.isa import Task, decode_stream, encode_stream, link
from hexane.isa.assembly import assemble, disassemble
from hexane.isa.compose.rules import generation_of
from hexane.isa.kinds import ELEMENT, NE_NONLINEAR, NE_OP, PE_OP
from isa.streams import apple_stream, apple_words

H13 = fact_params("apple/h13/*.json")
H14 = fact_params("apple/h14/*.json")
BOTH = [*(pytest.param("h13", *p.values, id=f"h13-{p.id}", marks=p.marks) for p in H13)]
BOTH += [*(pytest.param("h14", *p.values, id=f"h14-{p.id}", marks=p.marks) for p in H14)]


@pytest.mark.parametrize(("generation", "path"), BOTH)
def test_round_trip(generation, path):
    data = apple_stream(path)
    tasks = decode_stream(data, generation)
    assert [(task.offset, task.words()) for task in tasks] == apple_words(path)
    assert encode_stream(tasks, generation) == data


@pytest.mark.parametrize(("generation", "path"), BOTH)
def test_named_fields_hold_every_bit(generation, path):
    """The words of a task follow from its named fields, and no bit without a known meaning is set but these."""
    for task in decode_stream(apple_stream(path), generation):
        rebuilt = {}
        table = task.table
        for name, value in task.fields().items():
            handle = table.handle(name)
            rebuilt[handle.key] = rebuilt.get(handle.key, 0) | value << handle.shift
            if value and not handle.field.known:
                assert name == "TileDMASrc.Unk13840.Bit8" or re.fullmatch(r"TileDMADst\.DMAConfig\.Unk\d\d", name)
        assert {table.register(key)[0]: value for key, value in rebuilt.items()} == task.registers()


LATER = [
    pytest.param("h13" if target == "h13-2023" else generation_of(target), path, id=f"{target}-{path.stem}")
    for target in targets_of("more2")
    for path in every_program(target, ["more2"])
]


@pytest.mark.parametrize(("generation", "path"), LATER)
def test_round_trip_of_later_sets(generation, path):
    """Programs of all generations, H18 and chains of layers too: words, stream, text and back."""
    data = apple_stream(path)
    tasks = decode_stream(data, generation)
    assert [(task.offset, task.words()) for task in tasks] == apple_words(path)
    assert encode_stream(tasks, generation) == data
    assert encode_stream(assemble(disassemble(tasks)).tasks, generation) == data


def test_later_sets_are_whole():
    counts = {target: len(every_program(target, ["more2"])) for target in targets_of("more2")}
    assert counts == {
        "h13": 55, "h13-2023": 24, "h14": 29, "h15": 6, "h16": 6, "h16g": 32, "h17": 38, "h17g": 6, "h18": 57,
    }  # fmt: skip


@pytest.mark.parametrize("path", H13)
def test_h13_task_from_fields(path):
    """An H13 task made new from its fields has Apple's very records: both forms of the kernel DMA, and the header."""
    for task in decode_stream(apple_stream(path), "h13"):
        assert Task.from_fields("h13", task.fields()) == task


@pytest.mark.parametrize("path", H14)
def test_h14_task_from_fields_is_no_longer(path):
    """A new H14 task may choose other records than Apple's, but needs no more words and says the same."""
    for task in decode_stream(apple_stream(path), "h14"):
        rebuilt = Task.from_fields("h14", task.fields())
        for name, slot in task.slots().items():
            rebuilt.set_address(name, slot, task.get(name))
        assert rebuilt.registers() == {**task.registers(), "Header[0]": rebuilt.get("Header[0]")}
        assert rebuilt.slots() == task.slots()
        assert rebuilt.get("Header[0].Size") == len(rebuilt.words()) <= len(task.words())


@pytest.mark.parametrize(("generation", "path"), BOTH)
def test_link_gives_what_apple_linked(generation, path):
    """Rules of position alone, applied to tasks without links, give back offsets, links and task numbers."""
    data = apple_stream(path)
    tasks = decode_stream(data, generation)
    if generation == "h13":
        for task in tasks:
            for name in ("Header[0].LNID", "Header[0].EON", "Header[1].NextSize", "Header[7].NextPointer"):
                task.set(name, 0)
            task.set("Header[8].TBE", 0)
    assert encode_stream(link(tasks), generation) == data


@pytest.mark.parametrize("path", fact_params("hwx/*.hwx"))
def test_early_programs(path):
    """The task streams of real files: words from fields, text and back, and links by rule."""
    data = open_image(path).section("__TEXT", "__text")
    tasks = decode_stream(data, "h13")
    assert encode_stream(tasks, "h13") == data == encode_stream(link(tasks), "h13")
    assert [Task.from_fields("h13", task.fields()) for task in tasks] == tasks
    assert encode_stream(assemble(disassemble(tasks)).tasks, "h13") == data
    for task in tasks:
        unknown = {name for name, bits in task.fields().items() if bits and not task.handle(name).field.known}
        assert unknown <= {"TileDMASrc.Unk13840.Bit8"}


# Derived from the plists of the files: name -> (unit word, channels in and out, width, non-linearity, kernel bytes of
# core 0, row stride of the source in memory). Surfaces are fp16, rows rounded up to 64 bytes
# (docs/reference/engine-h13.md 6).
EARLY = {
    "relu_w77": ("bypass", 1, 1, 77, "relu", None, 192),
    "sigmoid_w77": ("bypass", 1, 1, 77, "table", 128, 192),
    "conv_3to3": ("sum", 3, 3, 1, "none", 64, 64),
    "gemm_512": ("sum", 512, 512, 1, "none", 512 * 512 * 2 // 16, 64),
}


@pytest.mark.parametrize("path", fact_params("hwx/*.hwx"))
def test_early_fields_agree_with_their_networks(path):
    tasks = decode_stream(open_image(path).section("__TEXT", "__text"), "h13")
    get = tasks[0].get
    assert {get(f"Common.{name}") for name in ("InDepth.Din", "OutDepth.Dout", "ConvCfg.Kw", "ConvCfg.Kh")} == {1}
    assert get("Common.ChCfg.InFmt") == get("Common.ChCfg.OutFmt") == ELEMENT.value("fp16")
    if path.stem in EARLY:
        unit, cin, cout, width, after, kernel, row = EARLY[path.stem]
        assert get("NE.MACCfg.OpMode") == NE_OP.value(unit)
        assert get("NE.MACCfg.NonlinearMode") == NE_NONLINEAR.value(after)
        assert (get("Common.Cin.Cin"), get("Common.Cout.Cout")) == (cin, cout)
        assert get("Common.InDim.Win") == get("Common.OutDim.Wout") == width
        assert get("TileDMASrc.RowStride.Stride") * 64 == get("TileDMADst.RowStride.RowStride") * 64 == row
        assert get("KernelDMASrc.MasterConfig.MasterEnable") == (kernel is not None)
        if kernel is not None:
            assert get("KernelDMASrc.CoeffBfrSize[0].MemBfrSize") * 64 == kernel
    elif path.stem == "sum_c64":
        assert get("Common.TaskInfo.NID") == 0 and get("PE.Cfg.OpMode") == PE_OP.value("add")
        assert get("PE.BiasScale.Scale") == 15360 and get("Common.Cin.Cin") == 64
    elif path.stem == "concat_16384_16":
        assert [task.get("Common.Cin.Cin") for task in tasks] == [16384, 16]
        assert tasks[1].get("TileDMADst.BaseAddr.Addr") * 64 == 16384 * 64
