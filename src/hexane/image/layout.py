"""Lay an engine program out from values: every byte of the container follows from them.

Source: docs/reference/engine-h13.md 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hexane.errors import UnsupportedError, UsageError
from hexane.image.assemble import assemble
from hexane.image.commands import (
    CONSTANT_WORD,
    ident_command,
    program_thread,
    segments,
    surface_names,
    tensor_threads,
    with_relocations,
)
from hexane.image.container import Container
from hexane.image.dialect import Dialect
from hexane.image.ident import Ident
from hexane.image.kernels import Kernel, kernels_of
from hexane.image.parts import GENERATION_SUBTYPES, Command
from hexane.image.placement import place
from hexane.image.stream_layout import ThreadStream, lay_out_stream
from hexane.image.surface import Surface
from hexane.image.symbols import symbols_of
from hexane.isa import WRITTEN, Task, encode_stream
from hexane.isa import place as place_tasks
from hexane.isa.generations import family_of
from hexane.isa.granules import PAGE
from hexane.isa.roles import STREAMS

EMPTY_CONST = bytes(PAGE)
"""The constant section of a program without constants (docs/reference/engine-h13.md 2.2)."""


def lay_out(
    tasks: Sequence[Task],
    const: bytes,
    surfaces: Iterable[Surface],
    generation: str,
    scratch_bytes: int,
    dialect: Dialect,
    ident: Ident,
    procedure: str,
    kernels: bytes = b"",
) -> Container:
    """All parts of the container that holds this program."""
    if generation not in WRITTEN:
        raise UnsupportedError(f"hexane writes engine programs for {', '.join(WRITTEN)}, not for {generation!r}")
    if not tasks:
        raise UsageError("a program needs at least one task")
    if scratch_bytes < 0:
        raise UsageError(f"scratch of {scratch_bytes} bytes")
    if not procedure or "\0" in procedure:
        raise UsageError(f"procedure name {procedure!r}")
    const = const or EMPTY_CONST
    if family_of(generation).packed:
        stream = ThreadStream(tasks, const, kernels, tuple(surfaces), generation, scratch_bytes, procedure)
        return lay_out_stream(stream, dialect, ident)
    text = encode_stream(tasks, generation)
    streams = kernels_of(tasks)
    places = place(surfaces, len(text), len(const), scratch_bytes, dialect)
    relocated = _relocated_words(tasks, generation, streams)
    parts = segments(places, text, const, len(relocated), dialect)
    parts = with_relocations(parts, relocated, CONSTANT_WORD, ("__TEXT", "__const"))
    commands: tuple[Command, ...] = (
        *parts,
        *surface_names(places.surfaces, dialect),
        program_thread(places, len(tasks[0].words()), len(tasks), dialect, procedure),
        *tensor_threads(places.surfaces, dialect, procedure),
        ident_command(ident, dialect, generation),
    )
    symbols = symbols_of(streams, places, const, ident, parts, dialect)
    return assemble(commands, symbols, GENERATION_SUBTYPES[generation])


def _relocated_words(tasks: Sequence[Task], generation: str, kernels: Sequence[Kernel]) -> tuple[int, ...]:
    """Byte offsets in the text of every word that names a place in the constant section.

    Source: docs/reference/engine-h13.md 2.10.
    """
    offsets = place_tasks(tasks, generation)
    keys = [tasks[0].handle(f"KernelDMASrc.CoeffBaseAddr[{core}]").key for core in range(STREAMS)]
    places = []
    for kernel in kernels:
        if kernel.is_constant:
            at, position = offsets[kernel.task], tasks[kernel.task].layout.position
            places += [at + 4 * position[keys[chunk.core]] for chunk in kernel.chunks if keys[chunk.core] in position]
    return tuple(places)
