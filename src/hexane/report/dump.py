"""What the compiler did, as files: MIL after each pass, the tasks, and what each keeps in L2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hexane import passes
from hexane.program.package import mil_of

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.program import Program


def dump(graph: Graph, program: Program, folder: Path) -> None:
    """Write ``NN-pass.mil`` (after every pass that changed something), ``tasks.txt`` and ``memory.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "00-loaded.mil").write_text(mil_of(graph)[0])
    count = 0

    def on_pass(name: str, so_far: Graph, changed: int) -> None:
        nonlocal count
        if changed:
            count += 1
            (folder / f"{count:02d}-{name}.mil").write_text(mil_of(so_far)[0])

    passes.run(graph, on_pass=on_pass)
    (folder / "tasks.txt").write_text(task_table(program))
    (folder / "memory.txt").write_text(memory_table(program))


def task_table(program: Program) -> str:
    """A line per task: segment, index, unit, sizes, evidence, op."""
    lines = []
    for number, segment in enumerate(program.segments):
        lines.append(f"segment {number}: {segment.kind}, {len(segment.ops)} ops; {segment.reason}")
        for index, plan in enumerate(segment.plans):
            sizes = f"{plan.groups}x{plan.c}x{plan.h}x{plan.w} -> {plan.cout}x{plan.hout}x{plan.wout}"
            kernel = f", kernel {plan.kh}x{plan.kw}" if plan.kernel is not None and plan.kh * plan.kw > 1 else ""
            note = f" ({plan.note})" if plan.note else ""
            lines.append(f"  {index:5d} {plan.unit} {sizes}{kernel}  {plan.evidence.value}{note}  {plan.op}")
    return "\n".join(lines) + "\n"


def memory_table(program: Program) -> str:
    """A line per task: where its operands and its result stand, in DRAM (buffer and offset) and in L2."""
    lines = []
    for number, segment in enumerate(program.segments):
        for index, plan in enumerate(segment.plans):
            ends = []
            for name, walk, region in (
                ("source", plan.src, plan.source),
                ("source 2", plan.src2, plan.source2),
                ("result", plan.dst, plan.result),
            ):
                place = f"{walk.buffer.space.name.lower()} {walk.buffer.name!r} + {walk.offset:#x}, " if walk else ""
                if walk is not None or region.base or name != "source 2":
                    ends.append(f"{name}: {place}L2 {region.base:#x}")
            kernel = f"; kernel: {plan.kernel.bytes_read} bytes" if plan.kernel is not None else ""
            lines.append(f"segment {number} task {index:5d}  {'; '.join(ends)}{kernel}")
    return "\n".join(lines) + "\n"
