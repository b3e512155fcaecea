"""Tasks as objects: names, ranges, named values, views, and what each refuses."""

from __future__ import annotations

import pytest

from hexane.errors import FormatError, UsageError
from hexane.isa import (
    GENERATIONS,
    FieldError,
    Task,
    TaskPlace,
    cut,
    decode_stream,
    encode_stream,
    link,
    next_offset,
    place,
    task_from_words,
)
from hexane.isa.assembly import assemble, disassemble
from hexane.isa.records import DENSE, Record


def test_dotted_access():
    task = Task("h13")
    task.NE.MACCfg.NonlinearMode = "table"
    task.NE.MACCfg.Bit20 = 1
    task.Header[8].RBase0 = 5
    task.KernelDMASrc.CoeffDMAConfig[3].En = 1
    task.Common.InDim = 0x00100020
    task.KernelDMASrc.CoeffBaseAddr[1] = 0x240
    task.Header[9] = 0x21
    task.Outside.Unk20000 = 3
    assert task.NE.MACCfg.NonlinearMode == 2 == task.get("NE.MACCfg.NonlinearMode")
    assert int(task.NE.MACCfg) == 0x120000 == task.NE.MACCfg
    assert (task.Common.InDim.Win, task.Common.InDim.Hin) == (32, 16)
    assert [lane.En for lane in task.KernelDMASrc.CoeffDMAConfig] == [0, 0, 0, 1] + 12 * [0]
    assert task.KernelDMASrc.CoeffBaseAddr[1].Addr == 9
    assert (task.Header[9].KBase0, task.Header[9].KBE0) == (1, 1)
    assert len(task.Header) == 10 and len(task.KernelDMASrc.CoeffBfrSize) == 16
    assert task.Outside.Unk20000.Unk31_0 == 3
    assert {"NE", "Header"} <= set(dir(task)) and "MACCfg" in dir(task.NE) and "Win" in dir(task.Common.InDim)
    assert "NonlinearMode=0x2" in repr(task.NE.MACCfg)
    assert "h13 #0" in repr(task) and "NE.MACCfg" in str(task) and "MACCfg" in repr(task.NE)


def test_no_write_is_not_a_write_of_zero():
    silent, zero = Task("h13"), Task("h13")
    zero.NE.MACCfg = 0
    assert silent != zero
    assert silent.get("NE.MACCfg") == zero.get("NE.MACCfg") == 0
    assert (silent.get("NE.MACCfg", None), zero.get("NE.MACCfg", None)) == (None, 0)
    assert len(zero.words()) == len(silent.words()) + 2
    assert "NE.MACCfg.OpMode" in zero.fields() and "NE.MACCfg.OpMode" not in silent.fields()
    zero.clear("NE.MACCfg")
    assert silent == zero


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NE.MACCfg.NonlinearMode", 4, "0x4 does not fit the 2 bits of NE.MACCfg.NonlinearMode"),
        ("NE.MACCfg.NonlinearMode", -1, "does not fit the 2 bits of NE.MACCfg.NonlinearMode"),
        ("NE.MACCfg", 1 << 32, "does not fit the 32 bits of NE.MACCfg"),
        ("NE.MACCfg.NonlinearMode", "gelu", "no value named 'gelu'; the names are none, relu, table"),
        ("NE.MACCfg.BiasMode", "on", "give a number"),
        ("NE.MACCfg.BiasMode", 1.0, "takes an integer, not 1.0"),
        ("NE.MACCfg.BiasMode", None, "takes an integer"),
    ],
)
def test_values_that_do_not_fit(name, value, message):
    task = Task("h13")
    before = task.words()
    with pytest.raises(FieldError, match=message):
        task.set(name, value)
    assert task.words() == before
    block, register, *rest = name.split(".")
    with pytest.raises(FieldError, match=message):
        setattr(getattr(task, block), register, value) if not rest else setattr(
            getattr(getattr(task, block), register), rest[0], value
        )
    assert task.words() == before


def test_many_fields_are_read_as_one_by_one():
    """Of a task that has all registers, of one that has none (resets count), and of one that is still open."""
    for generation in ("h13", "h14", "h16"):
        task = Task(generation)
        names = [f"KernelDMASrc.CoeffDMAConfig[{core}].En" for core in range(16)] + ["Common.Cout.Cout"]
        handles = [task.handle(name) for name in names]
        for name in (None, names[3], names[-1]):
            if name is not None:
                task.set(name, 1)
            for each in (task, Task.from_layout(task.family, task.layout, task.words())):
                assert each.read_each("lanes", handles) == [each.read(handle) for handle in handles]


def test_views_refuse_what_is_not_there():
    task = Task("h13")
    with pytest.raises(FieldError, match=r"CoeffBfrSize\[16\]"):
        task.KernelDMASrc.CoeffBfrSize[16]
    with pytest.raises(FieldError):
        task.Header[11]
    with pytest.raises(AttributeError):
        task.offfset = 3
    with pytest.raises(FieldError, match="cannot be left out"):
        task.clear("Header[3]")
    with pytest.raises(FieldError, match="no address records"):
        task.set_address("TileDMASrc.BaseAddr", 4)
    with pytest.raises(FieldError, match="must fit"):
        Task("h14").set_address("TileDMASrc.BaseAddr", 256)
    with pytest.raises(TypeError):
        hash(task)


def test_h14_sizes_follow():
    task = Task("h14")
    assert task.Header[0].Size == 8
    task.Common.Cin.Cin = 4
    assert task.Header[0].Size == 10 == len(task.words())
    task.set("Header[0].Size", 99)
    task.set("Header[0]", 7)
    assert (task.Header[0].TID, task.Header[0].Size) == (7, 10)
    task.Header[0].TID = 0
    task.set_address("TileDMASrc.BaseAddr", 16, 0x40)
    task.set_address("TileDMASrc.BaseAddrHigh", 16)
    assert task.Header[0].Size == 13 == len(task.words())
    assert task.slot("TileDMASrc.BaseAddr") == 16 and task.slot("Common.Cin") is None
    assert task.words()[-3:] == [0x22008444, 0x40, 0]  # the packet that Apple's H14 programs have (generations §7.8)


def test_kernel_dma_has_both_forms():
    """Without kernel data Apple writes 18 + 12 words, else one record of 62 (docs/reference/engine-h13.md 4.1)."""
    short, long = Task("h13"), Task("h13")
    for i in range(16):
        short.KernelDMASrc.CoeffDMAConfig[i] = 0x80
        long.KernelDMASrc.CoeffDMAConfig[i] = 0x80
        long.KernelDMASrc.CoeffBaseAddr[i] = 0
        long.KernelDMASrc.CoeffBfrSize[i] = 0x40
    for task in (short, long):
        task.KernelDMASrc.MasterConfig = 0
        task.KernelDMASrc.AlignedCoeffSizePerCh = 0
        for i in range(4):
            task.KernelDMASrc.SideDMAConfig[i] = 0x80
            task.KernelDMASrc.SideBaseAddr[i] = 0
            task.KernelDMASrc.SideBfrSize[i] = 0x40
    assert [word for word in short.words() if word > 0x1000000] == [0x4401F800, 0x2C01F8C8]
    assert [word for word in long.words() if word > 0x1000000] == [0xF401F800]


def test_placement_of_h13():
    """The next multiple of 0x100, or of 0x4000 where the task would straddle a page.

    Source: docs/reference/engine-h13.md 4.1.
    """
    assert next_offset(504, 504, "h13") == 0x200
    assert next_offset(628, 504, "h13") == 0x300
    assert next_offset(0x3D00, 628, "h13") == 0x3D00
    assert next_offset(0x3DF4, 628, "h13") == 0x4000
    assert next_offset(0x3E00, 0x200, "h13") == 0x3E00
    assert next_offset(0x24, 8, "h14") == 0x30
    full = task_from_words([0] * 10 + [63 << 26 | 0x4000] + [0] * 64 + [51 << 26 | 0x5000] + [0] * 52, "h13")
    tasks = link([full] * 40)
    assert full.size == 512 and [task.offset for task in tasks] == [0x200 * i for i in range(40)]
    longer = task_from_words([*full.words(), 0, 0], "h13")
    offsets = [task.offset for task in link([longer] * 24)]
    assert offsets[20:22] == [0x300 * 20, 0x4000]
    assert encode_stream(link([longer] * 24), "h13")


def test_link_sets_what_follows_from_position_only():
    task = Task("h13")
    task.Header[2] = 0x42A
    task.Header[8].RBase0 = 4
    task.Header[6].SPL = 1
    tasks = link([task], [task, task])
    assert [t.Header[0].TID for t in tasks] == [0, 1, 2]
    assert [t.Header[0].LNID for t in tasks] == [0, 1, 1]
    assert [t.Header[0].EON for t in tasks] == [0, 0, 1]
    assert [t.Header[7].NextPointer for t in tasks] == [0x100, 0x200, 0]
    assert [t.Header[1].NextSize for t in tasks] == [9, 9, 0]
    assert [t.Header[8].TBE for t in tasks] == [1, 1, 0]
    assert all(t.Header[2].LogEvents == 0x42A and t.Header[8].RBase0 == 4 and t.Header[6].SPL for t in tasks)
    assert task.Header[7].NextPointer == 0, "link works on copies"
    assert [t.Header[0].TID for t in cut(tasks, 1)] == [0]
    assert [t.Header[0].TID for t in cut(tasks, 1, 3)] == [0, 1]


def test_link_follows_references_between_tasks():
    plain, user = Task("h13"), Task("h13")
    plain.set("Header[0].TID", 3)
    user.set("Header[0].TID", 4)
    user.set("Header[10].DTID", 3)
    tasks = link([plain, user], [plain, user])
    assert [t.get("Header[10].DTID") for t in tasks] == [0, 0, 0, 2]
    assert [t.written("Header[10]") for t in tasks] == [False, True, False, True]


def test_last_task_is_marked_from_h16_on():
    tasks = link([Task("h16"), Task("h16")])
    assert [task.Header[8].LastTask for task in tasks] == [0, 1]
    assert encode_stream(tasks, "h16")[:16] == bytes([1] + 15 * [0])


def test_streams_that_cannot_be():
    task = Task("h13")
    for data in ("text", 10**12, None, [1, 2]):
        with pytest.raises(UsageError, match="a task stream is bytes"):
            decode_stream(data, "h13")
    with pytest.raises(UsageError, match=r"task\[0\]: a bytes among the tasks"):
        encode_stream([b""], "h13")
    assert decode_stream(bytearray(encode_stream([task], "h13")), "h13") == [task]
    with pytest.raises(UsageError, match=r"task\[1\]: a task of h14 among tasks of h13"):
        encode_stream([task, Task("h14")], "h13")
    with pytest.raises(UsageError, match="among tasks of h13"):
        link([task, Task("h14")])
    with pytest.raises(UsageError, match=r"link\(\) sets them"):
        encode_stream([task, task], "h13")
    linked = link([task, task])
    linked[0].place = TaskPlace(0x80)
    linked[1].place = TaskPlace(0x90)
    with pytest.raises(UsageError, match="overlaps"):
        place(linked, "h13")
    huge = Task.from_records("h13", [0] * 10, [(Record(DENSE, tuple(range(0, 256, 4))), [0] * 64)] * 9)
    with pytest.raises(UsageError, match="room for 512"):
        link([task, huge])
    with pytest.raises(UsageError, match="cannot cut"):
        cut(linked, 1, 1)
    with pytest.raises(UsageError, match="room for 2047"):
        Task.from_records("h14", [0] * 8, [(Record(DENSE, tuple(range(0, 256, 4))), [0] * 64)] * 32)
    with pytest.raises(FormatError, match="its header has 10"):
        task_from_words([0] * 9, "h13")
    with pytest.raises(FormatError, match="where 0 words are left"):
        task_from_words([0] * 11, "h13")
    assert link() == [] and encode_stream([], "h13") == b""


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_kind_of_task_has_a_headline(generation):
    """One line for every unit, operation and kind, known or not."""
    for unit in (0, 1):
        for kind in range(8):
            task = Task(generation)
            task.set("Common.TaskInfo.NID", unit)
            task.set("Common.Cfg.PEKind", kind)
            task.set("NE.MACCfg.OpMode", kind)
            task.set("PE.Cfg.OpMode", kind)
            task.set("PE.Cfg.SecSrc", kind % 4)
            assert repr(task).startswith(f"<Task {generation} #0 {'NE' if unit else 'PE'} ")
            assert assemble(disassemble([task])).tasks == [task]


@pytest.mark.parametrize("tasks", [None, 5, Task("h13"), ["task"], [Task("h13"), Task("h14")]])
def test_what_is_no_list_of_tasks(tasks):
    with pytest.raises(UsageError):
        encode_stream(tasks, "h13")
    with pytest.raises(UsageError):
        link(tasks)


@pytest.mark.parametrize("words", ["words", [0] * 9 + [1 << 32], [0.5] * 10, None])
def test_what_are_no_words(words):
    with pytest.raises(UsageError):
        task_from_words(words, "h13")


def test_views_of_words_in_a_row_are_sequences():
    task = Task("h13")
    task.Header[8].RBase0 = 5
    assert [int(word) for word in task.Header] == task.words()
    assert len(list(task.KernelDMASrc.CoeffBfrSize)) == 16
    for index in (16, -1, "0"):
        with pytest.raises(FieldError):
            _ = task.KernelDMASrc.CoeffBfrSize[index]
    with pytest.raises(FieldError, match=r"x\.\.\."):
        task.get("x" * 100_000)
