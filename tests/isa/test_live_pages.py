"""Masks of live L2 pages: from the load or the result to the last reader, and the page of the byte behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hexane.isa.compose.shape import KEPT, live_pages

L2_BYTES = 2 << 20

PAGE = 0x10000
RESIDENT = 0


@dataclass
class Operands:
    """A task of the cores as ``live_pages`` asks for it: spans in L2, and which of them it finds there."""

    source: tuple[int, int] = (0, 0)
    result: tuple[int, int] = (0, 0)
    kept: bool = False
    writes: bool = True
    finds: list[tuple[int, int]] = field(default_factory=list)
    reads_first: bool = True
    planar: bool = False

    def get(self, name: str) -> int:
        return KEPT if self.kept and name == "L2.SourceCfg.SourceType" else RESIDENT

    def span(self, side: str) -> tuple[int, int]:
        return {"Source": self.source, "Result": self.result}[side]

    def resident(self) -> list[int]:
        return [at for at, _ in self.finds]


def result_of(first: int, end: int) -> list[int]:
    """The masks of a task that leaves a result, of one that reads it, and of one behind both."""
    return live_pages([Operands(result=(first, end), writes=False), Operands(finds=[(first, end)]), Operands()])


@pytest.mark.parametrize(
    "first, end, pages",
    [
        (0, 16, 0b1),
        (0, PAGE - 16, 0b1),
        (0, PAGE, 0b11),
        (PAGE - 16, PAGE + 16, 0b11),
        (PAGE, 2 * PAGE - 1, 0b10),
        (PAGE, 3 * PAGE, 0b1110),
        (L2_BYTES - PAGE, L2_BYTES, 1 << 31),
        (L2_BYTES - PAGE - 16, L2_BYTES - 16, 0b11 << 30),
        (0, L2_BYTES, (1 << 32) - 1),
    ],
)
def test_the_pages_of_a_result(first: int, end: int, pages: int) -> None:
    assert result_of(first, end) == [pages, pages, 0]


def test_a_source_lives_from_its_load_to_its_last_reader() -> None:
    kept = Operands(source=(5 * PAGE, 6 * PAGE - 16), kept=True)
    reader = Operands(finds=[(5 * PAGE, 0)])
    assert live_pages([Operands(), kept, Operands(), reader, Operands(), Operands()]) == [0, 32, 32, 32, 0, 0]


def test_streams_and_what_nobody_reads() -> None:
    streamed = Operands(source=(PAGE, 2 * PAGE - 16), result=(3 * PAGE, 4 * PAGE - 16))
    unread = Operands(result=(PAGE, 2 * PAGE - 16), writes=False)
    assert live_pages([streamed, unread, streamed]) == [0, 2, 0]
    assert live_pages([unread]) == [0] and live_pages([]) == []


def test_two_results_share_a_mask() -> None:
    first, second = (0, 16), (2 * PAGE, 2 * PAGE + 16)
    tasks = [
        Operands(result=first, writes=False),
        Operands(result=second, writes=False),
        Operands(finds=[first, second]),
        Operands(),
    ]
    assert live_pages(tasks) == [1, 5, 5, 0]
