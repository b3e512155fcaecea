"""A network as rows and lanes: one row per op in order, one lane per result from its maker to its last user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexane.graph import Graph


@dataclass(frozen=True)
class Node:
    """One row: an input or an op, its lane, and the rows that it reads from (each in its own lane)."""

    name: str
    op: str
    lane: int
    sources: tuple[int, ...]
    last_use: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for report.json."""
        return dict(vars(self))


def rows_of(graph: Graph) -> list[Node]:
    """Lanes are taken lowest first and given back after the last use, so that a chain stays in one lane."""
    maker: dict[Any, int] = {}
    entries: list[tuple[str, str, list[int]]] = []
    for value in graph.main.inputs:
        maker[value] = len(entries)
        entries.append((value.name, "input", []))
    for op in graph.main.ops:
        if not op.outputs:
            continue
        sources = list(dict.fromkeys(maker[v] for v in op.operands() if v in maker))
        for inner in op.blocks:
            for part in inner.walk():
                sources += [maker[v] for v in part.operands() if v in maker and maker[v] not in sources]
        for value in op.outputs:
            maker[value] = len(entries)
        entries.append((op.outputs[0].name, op.type, sources))
    last = list(range(len(entries)))
    for row, (_, _, sources) in enumerate(entries):
        for source in sources:
            last[source] = row
    for value in graph.main.outputs:
        if value in maker:
            last[maker[value]] = max(last[maker[value]], maker[value])
    lanes: list[int] = []
    occupied: dict[int, int] = {}  # lane -> row that holds it
    for row, (_, _, sources) in enumerate(entries):
        freed = [lanes[s] for s in sources if last[s] <= row]
        for lane in [lane for lane, owner in occupied.items() if last[owner] <= row]:
            del occupied[lane]
        lane = min(freed, default=-1)
        if lane < 0 or lane in occupied:
            lane = next(i for i in range(len(occupied) + 1) if i not in occupied)
        occupied[lane] = row
        lanes.append(lane)
    return [Node(name, op, lanes[i], tuple(sources), last[i]) for i, (name, op, sources) in enumerate(entries)]
