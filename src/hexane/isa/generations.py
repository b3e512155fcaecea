"""The generations whose tasks hexane reads, and what their streams have in common.

Source: docs/reference/generations.md 1.1, 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from hexane import chips
from hexane.chips import generation_of_target
from hexane.errors import UnsupportedError, UsageError
from hexane.isa.records import H13_HEADS, PACKED_HEADS, RecordHeads
from hexane.isa.schema import Table

_HERE = Path(__file__).parent
_TABLES = {module.name for module in iter_modules([str(_HERE)])}
_WRITERS = {"h13", *(module.name for module in iter_modules([str(_HERE / "compose")]))}

GENERATIONS = tuple(g.name for g in chips.GENERATIONS if g.name in _TABLES)
"""Generations with a register table (``isa/hNN.py``), oldest first."""

WRITTEN = tuple(name for name in GENERATIONS if name in _WRITERS)
"""Those whose streams hexane writes and runs, too: H13, and each with rules in ``isa/compose``."""

_WITHOUT_TABLE = {"h11": "task descriptor version 5 (A12)", "h12": "task descriptor version 6 (A13)"}


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Layout of one generation's tasks in a stream."""

    table: Table
    heads: RecordHeads
    header_words: int  # without the extension word
    flags_word: int  # header word with the extension bits
    extension: int  # the bits that, when all set, announce one more header word
    alignment: int  # bytes between possible task starts
    frame: tuple[int, ...]  # words in front of the first task
    switched: bool = True  # address records switch the DMA engines of tensors on: H15 and later

    @property
    def generation(self) -> str:
        return self.table.generation

    @property
    def linked(self) -> bool:
        """Streams of H13: tasks link to the next, and a header that names channels."""
        return not self.packed

    @property
    def packed(self) -> bool:
        """Streams of H14 and later: no link pointer, sizes in header word 0, three record forms."""
        return self.heads is PACKED_HEADS

    def extended(self, flags: int) -> bool:
        return flags & self.extension == self.extension


@lru_cache
def family_of(generation: str) -> Family:
    """The family of a generation's name, or of a name of Apple's compiler (``"h16g"``), in any case.

    Raises UnsupportedError for H11 and H12, whose task format is not published, UsageError for other names.
    """
    row = generation_of_target(generation) if isinstance(generation, str) else None
    if row is not None and row.name != generation:
        return family_of(row.name)
    if generation in _WITHOUT_TABLE:
        raise UnsupportedError(
            f"{generation} tasks are {_WITHOUT_TABLE[generation]}, whose format is not known",
            hint=f"hexane reads tasks of {', '.join(GENERATIONS)}",
        )
    if generation not in GENERATIONS:
        raise UsageError(f"unknown engine generation {generation!r}", hint=f"known are {', '.join(GENERATIONS)}")
    table: Table = import_module(f"hexane.isa.{generation}").TABLE
    alignment = chips.generation(generation).task_alignment_bytes
    if generation == "h13":
        return Family(table, H13_HEADS, 10, 6, 1 << 24, alignment, (), switched=False)
    if generation == "h14":
        return Family(table, PACKED_HEADS, 8, 7, 3, alignment, (0, 0, 0, 0), switched=False)
    words = 8 if generation == "h15" else 9
    return Family(table, PACKED_HEADS, words, words - 1, 3, alignment, (1, 0, 0, 0))


def table_of(generation: str) -> Table:
    """The register table of a generation: blocks, registers, fields, and ``unknown_fields()``."""
    return family_of(generation).table
