"""Golden: every program of the shared data survives, word by word, and its words follow from its named fields."""

from __future__ import annotations

import pytest

from conftest import shared_params
from hexane.isa import Task, decode_stream, encode_stream, link
from isa.streams import apple_stream, apple_words

H13 = shared_params("apple/h13/*.json")
H14 = shared_params("apple/h14/*.json")
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
        table = task._family.table
        for name, value in task.fields().items():
            handle = table.handle(name)
            rebuilt[handle.key] = rebuilt.get(handle.key, 0) | value << handle.shift
            if value and not handle.field.known:
                assert name == "TileDMASrc.Unk13840.Bit8" or name.startswith("TileDMADst.DMAConfig.Unk")
        assert {table.register(key)[0]: value for key, value in rebuilt.items()} == task.registers()


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
