"""A differentiated network as the programs of a step: forward, backward, and the products that give weights' gradients.

Values that the backward pass needs of the forward pass (taps) are outputs of the one and inputs of the other, so that
the loss can be computed in between on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hexane.codegen.host import subgraph
from hexane.graph.ir import Graph, Op, Value
from hexane.graph.registry import has
from hexane.graph.traits import MOVES, PICKS, SAME_VALUES
from hexane.lowering.fusion import SUMS


@dataclass(frozen=True)
class Split:
    """``forward`` gives the network's outputs and ``taps``; ``backward`` takes taps and the seed; ``products`` takes
    what both give, and its outputs are gradients of weights that the host computes (None: the engine does).
    """

    forward: Graph
    backward: Graph
    products: Graph | None
    taps: tuple[str, ...]


def split(graph: Graph, outputs: Sequence[str], gradients: Sequence[str], *, host_products: bool) -> Split:
    """The parts of a network that ``hexane.grad`` gave: names of its outputs and gradients."""
    main = graph.main
    values = {value.name: value for value in main.outputs}
    ops = list(main.ops)
    forward = _behind([values[name] for name in outputs])
    backward = [op for op in _behind_in_order(ops, [values[name] for name in gradients]) if op not in forward]
    ends = [values[name] for name in gradients]
    last = _products(backward, ends) if host_products else set()
    inner = [op for op in backward if op not in last]
    products = [op for op in backward if op in last]
    results = [values[name] for name in outputs]
    into_products = _needed(products)
    taps = [v for v in dict.fromkeys((*_needed(inner), *into_products)) if v.op is not None and v.op in forward]
    taps = [value for value in taps if value not in results]
    inner_ends = [v for v in into_products if v.op is not None and v.op in set(inner)]
    inner_ends += [v for v in ends if v.op is None or v.op not in last]
    opset = main.opset
    first = subgraph([op for op in ops if op in forward], _inputs(main.inputs, [op for op in ops if op in forward]),
                     (*results, *taps), opset)  # fmt: skip
    second = subgraph(inner, _needed(inner, inner_ends), tuple(dict.fromkeys(inner_ends)), opset)
    third = None
    if products:
        third = subgraph(products, into_products, [v for v in ends if v.op in last], opset)
    return Split(first, second, third, tuple(value.name for value in taps))


def _behind(values: Iterable[Value]) -> set[Op]:
    """The ops that values are computed by, all the way up."""
    waiting = [value.op for value in values if value.op is not None]
    reached: set[Op] = set()
    while waiting:
        op = waiting.pop()
        if op not in reached:
            reached.add(op)
            waiting += [operand.op for operand in op.operands() if operand.op is not None]
    return reached


def _behind_in_order(ops: Iterable[Op], values: Iterable[Value]) -> list[Op]:
    reached = _behind(values)
    return [op for op in ops if op in reached]


def _needed(ops: Sequence[Op], also: Iterable[Value] = ()) -> list[Value]:
    """Values that ops take and do not compute themselves, constants left out; ``also`` those that pass through."""
    inside = set(ops)
    operands = [operand for op in ops for operand in op.operands()]
    operands += [value for value in also if value.op is None or value.op not in inside]
    return [v for v in dict.fromkeys(operands) if not v.is_constant and (v.op is None or v.op not in inside)]


def _inputs(inputs: Iterable[Value], ops: Sequence[Op]) -> list[Value]:
    needed = set(_needed(ops))
    return [value for value in inputs if value in needed]


def _products(backward: Sequence[Op], ends: Sequence[Value]) -> set[Op]:
    """The ops between a gradient and the sum of products that gives it, where nothing else needs them; what only moves
    values in front of them, too.

    A gradient that is no sum of products (a reduction, of a bias) goes up to what something else needs, too.
    """
    chain = _behind_sums(backward, ends)
    last = {op for op in backward if op not in chain}
    needed = {value for value in ends if value.op in chain}
    for op in reversed(backward):
        serves = all(user in last for result in op.outputs for user in result.users if user in chain or user in last)
        if op in chain and serves and not needed.intersection(op.outputs) and has(op, MOVES | PICKS | SAME_VALUES):
            last.add(op)
            chain.discard(op)
    return last


def _behind_sums(backward: Sequence[Op], ends: Sequence[Value]) -> set[Op]:
    """Ops of the backward pass that stand before a last sum of products, or are needed by such."""
    members = set(backward)
    before: list[Value] = []
    for end in ends:
        waiting, met = [end.op], set()
        while waiting:
            op = waiting.pop()
            if op is None or op in met or op not in members:
                continue
            met.add(op)
            operands = [v for v in op.operands() if v.op in members]
            if op.type in SUMS:
                before += operands
            else:
                waiting += [v.op for v in operands]
    return _behind(before) & members
