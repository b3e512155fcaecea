"""Random tasks and streams for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from hexane.isa import GENERATIONS, Task
from hexane.isa.generations import family_of
from hexane.isa.records import ADDRESS, DENSE, SCATTER, Record

generations = st.sampled_from(GENERATIONS)
words = st.one_of(st.integers(0, 0xFFFFFFFF), st.sampled_from([0, 1, 0x80000000, 0xFFFFFFFF]))


@st.composite
def header(draw, family) -> list[int]:
    """Random header words whose length agrees with their flags."""
    count = family.header_words + draw(st.booleans())
    values = [draw(words) for _ in range(count)]
    flags = values[family.flags_word]
    values[family.flags_word] = flags | family.extension if count > family.header_words else flags & ~family.extension
    return values


@st.composite
def made_tasks(draw, generation: str) -> Task:
    """A task made register by register."""
    family = family_of(generation)
    keys = sorted(family.table.rank)
    task = Task(generation)
    for key in draw(st.lists(st.sampled_from(keys), max_size=40, unique=True)):
        name, register = family.table.register(key)
        if draw(st.booleans()):
            task.set(name, draw(words))
        else:
            row = draw(st.sampled_from(register.fields))
            task.set(f"{name}.{row.name}", draw(st.integers(0, row.limit)))
    if family.packed:
        for key in draw(st.lists(st.sampled_from(keys), max_size=4, unique=True)):
            task.set_address(family.table.register(key)[0], draw(st.integers(0, 255)), draw(words))
    for i, value in enumerate(draw(header(family))):
        if i != family.flags_word and i < family.header_words and not (family.packed and i == 0):
            task.set(f"Header[{i}]", value)
    return task


@st.composite
def recorded_tasks(draw, generation: str) -> Task:
    """A task of arbitrary records: any form, any address, registers written twice."""
    family = family_of(generation)
    unit, top = (4, 0x8000) if family.packed else (4, 0x1000000)
    records = []
    for _ in range(draw(st.integers(0, 6))):
        form = draw(st.sampled_from([DENSE, SCATTER, ADDRESS])) if family.packed else DENSE
        base = unit * draw(st.one_of(st.integers(0, 0x18), st.integers(0x1000, 0x1180), st.integers(0, top - 65)))
        if form == SCATTER:
            reach = draw(st.sets(st.integers(1, 16)))
            addresses = (base, *(base + 4 * i for i in sorted(reach)))
        else:
            addresses = tuple(range(base, base + 4 * draw(st.integers(1, 64)), 4))
        slot = draw(st.integers(0, 255)) if form == ADDRESS else 0
        values = [draw(words) for _ in addresses[:3]]
        values += [values[0]] * (len(addresses) - len(values))
        records.append((Record(form, addresses, slot), values))
    return Task.from_records(generation, draw(header(family)), records)


@st.composite
def programs(draw, generation: str, task=None) -> list[Task]:
    """One to four random tasks. An H13 stream cannot say that its first task ends in a zero written to address 0."""
    one = task if task is not None else st.one_of(made_tasks(generation), recorded_tasks(generation))
    tasks = draw(st.lists(one, min_size=1, max_size=4))
    if generation == "h13":
        tasks[0].set("TileDMADst.Fmt", 0x01302031)
    return tasks
