"""States are ordered effects: a read sees the last write before it, a write waits for every read before it.

Nothing in the operands of an op says so (``read_state`` and ``write_state`` share only the state itself), so whoever
moves ops asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.types import DTYPES, StateType, eval_dtype

if TYPE_CHECKING:
    from hexane.graph.parts import Op, Value

READS = frozenset({"read_state"})
WRITES = frozenset({"write_state", "coreml_update_state"})


def writes(op: Op) -> bool:
    """True where the op, or one in its blocks, changes a state; such an op stays though nobody takes a result."""
    if not op.blocks:
        return op.type in WRITES
    return op.type in WRITES or any(inner.type in WRITES for block in op.blocks for inner in block.walk())


def written(op: Op) -> Value:
    """The value that an op of ``WRITES`` stores in its state."""
    return op.inputs["data" if op.type == "write_state" else "value"]


def touched(op: Op) -> dict[Value, bool]:
    """The states that an op uses, itself or in its blocks, and whether it changes them."""
    states: dict[Value, bool] = {}
    parts = (op,) if not op.blocks else (op, *(inner for block in op.blocks for inner in block.walk()))
    for part in parts:
        for value in part.operands():
            if isinstance(value.type, StateType):
                states[value] = states.get(value, False) or part.type not in READS
    return states


def order(groups: Sequence[Iterable[Op]]) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of groups of ops, given in program order, that must stay in this order for their states.

    Reads between two writes may change places with one another.
    """
    writers: dict[Value, int] = {}
    read: dict[Value, list[int]] = {}
    for number, group in enumerate(groups):
        changes: dict[Value, bool] = {}
        for op in group:
            for state, change in touched(op).items():
                changes[state] = changes.get(state, False) or change
        for state, change in changes.items():
            before = [*read.get(state, ()), *([writers[state]] if state in writers else [])]
            if change:
                yield from ((earlier, number) for earlier in before)
                writers[state], read[state] = number, []
            else:
                if state in writers:
                    yield writers[state], number
                read.setdefault(state, []).append(number)


def held(array: np.ndarray, state: Value) -> np.ndarray:
    """Contents of a state after an array: rounded to the state's dtype, in the dtype that the reference computes in."""
    dtype = state.type.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(array).astype(DTYPES[dtype].carrier).astype(eval_dtype(dtype))
