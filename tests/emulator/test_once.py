"""Checks that are made once for all tasks with the same values: they may ask for fields, and for nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.emulator.once import once
from hexane.emulator.registers import Registers
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
