"""Golden: every program of the shared data survives, word by word, and its words follow from its named fields."""

from __future__ import annotations

import pytest

from conftest import shared_params
from hexane.isa import Task, decode_stream, encode_stream, link
from isa.streams import apple_stream, apple_words

H13 = shared_params("apple/h13/*.json")


@pytest.mark.parametrize("path", H13)
def test_h13_round_trip(path):
    data = apple_stream(path)
    tasks = decode_stream(data, "h13")
    assert [(task.offset, task.words()) for task in tasks] == apple_words(path)
    assert encode_stream(tasks, "h13") == data


@pytest.mark.parametrize("path", H13)
def test_h13_fields_hold_every_bit(path):
    for task in decode_stream(apple_stream(path), "h13"):
        fields = task.fields()
        rebuilt = Task.from_fields("h13", fields)
        assert rebuilt == task
        unknown = {name for name, bits in fields.items() if ".Unk" in name.replace("TileDMASrc.Unk138", "") and bits}
        assert unknown <= {f"TileDMADst.DMAConfig.Unk{bit}" for bit in (16, 18, 19, 22, 24)}


@pytest.mark.parametrize("path", H13)
def test_link_gives_what_apple_linked(path):
    """Rules of position alone, applied to unlinked copies, give back offsets, links and task numbers."""
    data = apple_stream(path)
    tasks = decode_stream(data, "h13")
    for task in tasks:
        for name in ("Header[0].TID", "Header[0].LNID", "Header[0].EON", "Header[1].NextSize", "Header[7].NextPointer"):
            if not (name == "Header[0].TID" and any(t.get("Header[6].TDE") for t in tasks)):
                task.set(name, 0)
    assert encode_stream(link(tasks), "h13") == data
