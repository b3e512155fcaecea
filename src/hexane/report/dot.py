"""A compiled program as a graph for Graphviz: a node for each task, with its tiling and the layout of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hexane.codegen.plan import Space
from hexane.counts import counted
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.codegen.plan import Plan
    from hexane.program import Program
    from hexane.program.segment import Segment


def graph_of_tasks(program: Program) -> str:
    """The program in the DOT language: a box of tasks per engine segment, one of op names per host segment.

    A node has the unit, the sizes, the rows of a tile, the patch, the cores, and the weights as they lie in the
    kernel section (format, bytes of each core). Edges are tensors, through memory (full lines) or L2 (dashed).
    """
    lines = ["digraph program {", "  rankdir=TB; node [shape=box, fontname=monospace, fontsize=10];"]
    writers: dict[str, str] = {}
    for port in program.inputs:
        lines.append(f"  {_quoted('in ' + port.name)} [shape=ellipse, label={_quoted(port.name)}];")
        writers[port.name] = f"in {port.name}"
    for number, segment in enumerate(program.segments):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(f'segment {number}: {segment.kind}')};"]
        body, edges = _tasks(number, segment, writers) if segment.plans else _host(number, segment, writers)
        lines += [*(f"    {line}" for line in body), "  }", *(f"  {line}" for line in edges)]
    for port in program.outputs:
        lines.append(f"  {_quoted('out ' + port.name)} [shape=ellipse, label={_quoted(port.name)}];")
        lines += [f"  {line}" for line in _edge(writers, port.name, f"out {port.name}")]
    return "\n".join([*lines, "}"]) + "\n"


def _tasks(number: int, segment: Segment, writers: dict[str, str]) -> tuple[list[str], list[str]]:
    nodes: list[str] = []
    edges: list[str] = []
    in_l2: dict[int, str] = {}  # first byte of a region of L2 -> the task that wrote there last
    for index, plan in enumerate(segment.plans):
        name = f"{number}.{index}"
        nodes.append(f"{_quoted(name)} [label={_quoted(chr(10).join(_facts(index, plan)))}];")
        for walk, region in ((plan.source.transfer, plan.source.region), (plan.second.dma, plan.second.region)):
            if walk is not None:
                edges += _edge(writers, walk.buffer.name, name, constant=walk.buffer.space is Space.CONST)
            elif region.base in in_l2:
                edges.append(f"{_quoted(in_l2[region.base])} -> {_quoted(name)} [style=dashed, label=L2];")
        if plan.kernel_buffer is not None:
            edges += _edge(writers, plan.kernel_buffer.name, name)
        if plan.result.transfer is not None:
            writers[plan.result.transfer.buffer.name] = name
        else:
            in_l2[plan.result.region.base] = name
    return nodes, edges


def _host(number: int, segment: Segment, writers: dict[str, str]) -> tuple[list[str], list[str]]:
    name = f"{number}.host"
    edges = [line for port in segment.inputs for line in _edge(writers, port.name, name)]
    writers.update(dict.fromkeys((port.name for port in segment.outputs), name))
    label = "\n".join((*segment.ops[:12], *(("...",) if len(segment.ops) > 12 else ())))
    return [f"{_quoted(name)} [style=dotted, label={_quoted(label)}];"], edges


def _edge(writers: dict[str, str], tensor: str, name: str, *, constant: bool = False) -> Iterator[str]:
    if not constant and tensor in writers:
        yield f"{_quoted(writers[tensor])} -> {_quoted(name)} [label={_quoted(tensor)}];"


def _facts(index: int, plan: Plan) -> Iterator[str]:
    """Label of a task's node, line by line."""
    yield f"{index} {plan.unit} {plan.op}"
    sizes = f"{plan.groups}x{plan.c}x{plan.h}x{plan.w} -> {plan.cout}x{plan.hout}x{plan.wout}"
    yield sizes + (f", window {plan.window.kh}x{plan.window.kw}" if plan.window.taps > 1 else "")
    tiles = ceil_div(plan.hout, plan.tile)
    yield f"{counted(tiles, 'tile')} of {plan.tile} rows, patch {plan.patch[0]}x{plan.patch[1]}"
    if plan.unit == "NE":
        yield f"{1 << plan.cores_log2} cores, {1 << plan.ocg} outputs of a core at once"
    kernel = plan.kernel
    if kernel is not None and kernel.source is None:
        layout = ", ".join(f"{offset:#x}+{size:#x}" for offset, size in zip(kernel.offsets[:4], kernel.sizes[:4]))
        more = f", ... of {len(kernel.offsets)} cores" if len(kernel.offsets) > 4 else ""
        yield f"weights{', sparse' if kernel.sparse else ''}: {kernel.bytes_read:#x} bytes at {layout}{more}"
    elif kernel is not None:
        yield "weights: computed"


def _quoted(text: str) -> str:
    """A string of the DOT language; line ends are its own escape for text that stands left."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join("\\l" if c == "\n" else c if c.isprintable() else "?" for c in escaped) + '"'
