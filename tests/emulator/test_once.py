"""Checks that are made once for all tasks with the same values: they may ask for fields, and for nothing else."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hexane
from hexane.emulator.engine import Engine
from hexane.emulator.once import once
from hexane.emulator.program import EmulatedProgram
from hexane.emulator.registers import TURN, FormRegisters, RegisterForms, Registers
from hexane.errors import EmulationError
from hexane.graph import GraphBuilder


def tasks(chip: str) -> list[Registers]:
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8))
    for _ in range(2):
        x = b.relu(x=b.conv(x=x, weight=np.ones((16, 16, 1, 1), np.float16)))
    b.output(x)
    return [Registers(i, task) for i, task in enumerate(hexane.compile(b.graph, chip).images[0].tasks)]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_check_is_made_once_for_the_fields_that_it_reads(chip: str) -> None:
    met = []

    @once
    def width(r: Registers) -> int:
        met.append(r)
        return r["Common.InDim.Win"] + r.several(("Common.Cin.Cin", "Common.Cout.Cout"))[1]

    first, *others = tasks(chip)
    assert [width(r) for r in (first, *others)] == [24] * (1 + len(others))
    assert len(met) == 1


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("reads", ["descriptor", "values", "index"])
def test_a_check_that_reads_more_than_fields_is_refused(chip: str, reads: str) -> None:
    """The answer would be given to tasks that are different."""
    with pytest.raises(AssertionError, match=f"reads {reads}"):
        once(lambda r: getattr(r, reads))(tasks(chip)[0])


def test_a_refusal_names_the_task() -> None:
    @once
    def refuse(r: Registers) -> None:
        r.one_of("Common.InDim.Win", (1,))

    for r in tasks("M1"):
        with pytest.raises(EmulationError, match=rf"task\[{r.index}\]"):
            refuse(r)


def blocks(chip: str) -> hexane.image.Image:
    """A product of computed operands between convolutions, three times over."""
    b, weight = GraphBuilder(), np.eye(64, dtype=np.float16)
    x = b.input("x", (1, 64, 64), "fp16")
    for _ in range(3):
        y = b.softmax(x=b.matmul(x=b.linear(x=x, weight=weight), y=x, transpose_y=True), axis=-1)
        x = b.add(x=x, y=b.matmul(x=y, y=x))
    b.output(x)
    return hexane.compile(b.graph, chip).images[0]


def answer(image: hexane.image.Image, ask: str) -> tuple[str, int]:
    """The refusal of a program, asked task by task, and how many forms of tasks were met."""
    program = EmulatedProgram.of(image)
    engine = Engine(program.buffers(), program.l2_bytes)
    try:
        for r in program.chain(RegisterForms().of if ask == "check" else Registers):
            engine.check(r) if ask == "check" else engine.prepare(r, read_kernels=False)
    except EmulationError as error:
        return str(error), len(engine.forms)
    return "", len(engine.forms)


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
def test_tasks_that_differ_in_their_turn_alone_are_of_one_form(chip: str) -> None:
    image = blocks(chip)
    refusal, forms = answer(image, "check")
    assert not refusal and forms < len(image.tasks)
    with pytest.raises(AssertionError, match=r"reads Task\.TID"):
        FormRegisters.of(Registers(0, image.tasks[0]))["Task.TID"]


@pytest.mark.parametrize("field", ["L2.SourceBase.Addr", "L2.ResultBase.Addr", "Common.InDim.Hin", "NE.MACCfg.OpMode"])
def test_a_check_by_form_refuses_what_one_of_each_task_refuses(field: str) -> None:
    """Where another value makes the task one of another form, and where the machine stands otherwise by then."""
    refused = 0
    for index in range(len(blocks("M1").tasks)):
        image = blocks("M1")
        image.tasks[index].set(field, image.tasks[index].get(field) ^ 3)
        assert answer(image, "check")[0] == answer(image, "prepare")[0]
        refused += bool(answer(image, "check")[0])
    assert refused


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "M5"])
def test_registers_of_a_form_are_those_of_the_task_itself(chip: str) -> None:
    """Each field of each task, by its own words; one that differs makes another form."""
    image = blocks(chip)
    forms = RegisterForms()
    registers = [forms.of(index, task) for index, task in enumerate(image.tasks)]
    for r, own in zip(registers, (Registers(index, task) for index, task in enumerate(image.tasks))):
        names = tuple(own.values)
        assert r.several(names) == own.several(names) == tuple(r[name] for name in names)
    own = [Registers(r.index, r.descriptor).values.items() for r in registers]
    lasting = [[(name, value) for name, value in values if not TURN.fullmatch(name)] for values in own]
    for a, b in product(range(len(registers)), repeat=2):
        same_records = registers[a].descriptor.layout is registers[b].descriptor.layout
        assert (registers[a].form is registers[b].form) == (same_records and lasting[a] == lasting[b])
    assert len({r.form for r in registers}) < len(registers)
