"""The compiler's work as files: MIL after each pass, the tasks, and what each keeps in L2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hexane.counts import counted
from hexane.files import make_folder, plain_errors
from hexane.program.package import mil_of

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.program import Program


class Dump:
    """A compilation as files: ``compile(graph, on_pass=dump.on_pass)`` writes as it goes, ``finish`` adds the result.

    ``NN-pass.mil`` (after every pass that changed something), ``tasks.txt`` and ``memory.txt``.
    """

    def __init__(self, graph: Graph, folder: Path) -> None:
        self.folder = folder
        self._changes = 0
        make_folder(folder)
        self._write("00-loaded.mil", mil_of(graph)[0])

    def on_pass(self, name: str, graph: Graph, changed: int) -> None:
        """Graph behind a pass."""
        if changed:
            self._changes += 1
            self._write(f"{self._changes:02d}-{name}.mil", mil_of(graph)[0])

    def finish(self, program: Program) -> None:
        """The tasks of the program, and where their operands stand."""
        self._write("tasks.txt", task_table(program))
        self._write("memory.txt", memory_table(program))

    def _write(self, name: str, text: str) -> None:
        with plain_errors(self.folder):
            (self.folder / name).write_text(text)


def task_table(program: Program) -> str:
    """A line per task: segment, index, unit, sizes, evidence, op."""
    lines = []
    for number, segment in enumerate(program.segments):
        lines.append(f"segment {number}: {segment.kind}, {counted(len(segment.ops), 'op')}; {segment.reason}")
        for index, plan in enumerate(segment.plans):
            sizes = f"{plan.groups}x{plan.c}x{plan.h}x{plan.w} -> {plan.cout}x{plan.hout}x{plan.wout}"
            window = plan.window
            kernel = f", kernel {window.kh}x{window.kw}" if plan.kernel is not None and window.taps > 1 else ""
            note = f" ({plan.doubt})" if plan.doubt else ""
            lines.append(f"  {index:5d} {plan.unit} {sizes}{kernel}  {plan.evidence.value}{note}  {plan.op}")
    return "\n".join(lines) + "\n"


def memory_table(program: Program) -> str:
    """A line per task: where its operands and its result stand, in DRAM (buffer and offset) and in L2."""
    lines = []
    for number, segment in enumerate(program.segments):
        for index, plan in enumerate(segment.plans):
            ends = []
            for name, walk, region in (
                ("source", plan.source.dma, plan.source.region),
                ("source 2", plan.second.dma, plan.second.region),
                ("result", plan.result.dma, plan.result.region),
            ):
                place = f"{walk.buffer.space.name.lower()} {walk.buffer.name!r} + {walk.offset:#x}, " if walk else ""
                if walk is not None or region.base or name != "source 2":
                    ends.append(f"{name}: {place}L2 {region.base:#x}")
            kernel = f"; kernel: {plan.kernel.bytes_read} bytes" if plan.kernel is not None else ""
            lines.append(f"segment {number} task {index:5d}  {'; '.join(ends)}{kernel}")
    return "\n".join(lines) + "\n"
