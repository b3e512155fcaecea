"""Nodes in an order in which each stands behind what it takes; converters leave them out of order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any


def in_order(nodes: Sequence[Any]) -> list[Any]:
    """The nodes, as far as possible in the order of the file; those on a cycle, and behind one, last as they stand."""
    nodes = list(nodes)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in names_taken(node) if name in maker} if node.op_type else set() for node in nodes]
    if all(max(before, default=-1) < index for index, before in enumerate(needs)):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    for index, before in enumerate(needs):
        for other in before:
            users[other].append(index)
    ready = [index for index, before in enumerate(needs) if not before]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for user in users[index]:
            needs[user].discard(index)
            if not needs[user]:
                heappush(ready, user)
    placed = set(order)
    return [nodes[index] for index in (*order, *(i for i in range(len(nodes)) if i not in placed))]


def names_taken(node: Any) -> Iterator[str]:
    """The values that a node takes: its inputs, and what its inner graphs see of the graphs around them."""
    yield from filter(None, node.input)
    yield from outer_names(node)


def outer_names(node: Any) -> Iterator[str]:
    """Names that the inner graphs of a node take from outside, each once for each graph."""
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            own.update(name for inner in graph.node for name in inner.output)
            outer = dict.fromkeys(name for inner in graph.node for name in names_taken(inner))
            outer.update(dict.fromkeys(value.name for value in graph.output))
            yield from (name for name in outer if name not in own)
