"""Properties of the codec: what goes in comes out, for every generation, for made and for arbitrary tasks."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.isa import GENERATIONS, Task, cut, decode_stream, encode_stream, link, task_from_words
from hexane.isa.assembly import assemble, disassemble
from hexane.isa.generations import family_of
from isa.strategies import generations, made_tasks, programs, recorded_tasks

relaxed = settings(deadline=None, max_examples=60)


@relaxed
@given(st.data(), generations)
def test_fields_read_what_was_written(data, generation):
    table = family_of(generation).table
    task = Task(generation)
    wanted: dict[str, int] = {}
    for key in data.draw(st.lists(st.sampled_from(sorted(table.by_key)), max_size=30, unique=True)):
        name, register = table.by_key[key]
        for row in register.fields:
            if row.name != "Size" and name != f"Header[{family_of(generation).flags_word}]":
                wanted[f"{name}.{row.name}"] = data.draw(st.integers(0, row.limit))
    for name, value in wanted.items():
        task.set(name, value)
    words = task.words()
    again = task_from_words(words, generation)
    assert again == task
    for name, value in wanted.items():
        handle = table.handle(name)
        assert task.get(name) == again.read(handle) == value
    assert Task.from_fields(generation, again.fields()) == task


@relaxed
@given(st.data(), generations)
def test_streams_round_trip(data, generation):
    tasks = link(data.draw(programs(generation)))
    stream = encode_stream(tasks, generation)
    assert len(stream) == tasks[-1].offset + tasks[-1].size
    decoded = decode_stream(stream, generation)
    assert decoded == tasks
    assert [task.place for task in decoded] == [task.place for task in tasks]
    assert encode_stream(decoded, generation) == stream
    padded = stream + bytes(data.draw(st.integers(0, 70)))
    assert encode_stream(decode_stream(padded, generation), generation) == padded


@relaxed
@given(st.data(), generations)
def test_assembly_round_trips(data, generation):
    tasks = link(data.draw(programs(generation)))
    for comments in (True, False):
        assembly = assemble(disassemble(tasks, comments=comments))
        assert assembly.tasks == tasks
        assert [task.place for task in assembly.tasks] == [task.place for task in tasks]


@relaxed
@given(st.data(), generations)
def test_records_say_what_registers_hold(data, generation):
    task = data.draw(st.one_of(made_tasks(generation), recorded_tasks(generation)))
    held: dict[int, int] = {}
    for record, values in task.records():
        held.update(zip(record.addresses, values))
    table = family_of(generation).table
    named = {name: value for name, value in task.registers().items() if not name.startswith("Header")}
    assert named == {table.register(key)[0]: value for key, value in held.items()}
    assert task.layout.size == len(task.words()) == task.size // 4


@relaxed
@given(st.data(), generations)
def test_changes_keep_everything_else(data, generation):
    """Writing, adding and removing a register leaves the other registers and their records' slots alone."""
    task = data.draw(st.one_of(made_tasks(generation), recorded_tasks(generation)))
    before, slots, words = task.registers(), task.slots(), task.words()
    name = data.draw(st.sampled_from([n for n, _ in family_of(generation).table.by_key.values() if "Header" not in n]))
    changed = task.copy()
    changed.set(name, 0x12345678)
    assert {**before, name: 0x12345678, "Header[0]": 0} == {**changed.registers(), "Header[0]": 0}
    assert slots == changed.slots()
    changed.clear(name)
    expected = {key: value for key, value in before.items() if key != name}
    assert {**expected, "Header[0]": 0} == {**changed.registers(), "Header[0]": 0}
    assert not changed.written(name)
    assert task.words() == words, "a copy changed its original"
    assert task_from_words(changed.words(), generation) == changed


@relaxed
@given(st.data(), generations)
def test_copies_are_equal_and_apart(data, generation):
    (task, *_) = link(data.draw(programs(generation)))
    (lazy, *_) = decode_stream(encode_stream(link([task]), generation), generation)
    for other in (task.copy(), copy.deepcopy(task), pickle.loads(pickle.dumps(task)), copy.copy(task)):
        assert other == task and other is not task
        other.set("Header[1].ExeCycles", task.get("Header[1].ExeCycles") ^ 1)
        assert other != task
    shared = lazy.copy()
    shared.set("Header[3]", lazy.get("Header[3]") ^ 1)
    assert shared != lazy
    assert pickle.loads(pickle.dumps(lazy)) == lazy


@relaxed
@given(st.data(), generations)
def test_cut_and_link_undo_each_other(data, generation):
    whole = link(data.draw(programs(generation, made_tasks(generation))), data.draw(programs(generation)))
    at = data.draw(st.integers(1, len(whole) - 1))
    again = link(cut(whole, 0, at), cut(whole, at, len(whole)))
    dtid = f"Header[{family_of(generation).header_words}].DTID"
    for task, other in zip(whole, again):
        if task.written(dtid):
            continue  # a reference into the other part is lost by the cut
        assert task == other and task.place == other.place


@pytest.mark.parametrize("generation", GENERATIONS)
def test_extension_word_comes_and_goes_with_its_flag(generation):
    family = family_of(generation)
    task = Task(generation)
    task.Common.Cin.Cin = 4
    flags, dtid = f"Header[{family.flags_word}].TDE", f"Header[{family.header_words}].DTID"
    assert task.get(dtid) == 0 and not task.written(dtid)
    short = task.words()
    task.set(dtid, 7)
    assert task.get(flags) == 1 and task.get(dtid) == 7
    assert len(task.words()) == len(short) + 1
    assert task_from_words(task.words(), generation) == task
    task.set(flags, 0)
    assert len(task.words()) == len(short) and not task.written(dtid)
