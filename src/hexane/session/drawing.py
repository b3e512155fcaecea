"""Random inputs that a network can make sense of: numbers, pixels, indices within their table, masks, flags.

What an input means is read off the network: an integer that a ``gather`` takes as indices is drawn from 0 to the length
of what it gathers from, one that becomes a mask from zeros and ones. Where nothing says what a whole number means, its
name may; where that says nothing either, the note says that the numbers were drawn blindly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hexane import seeds
from hexane.errors import UsageError
from hexane.graph.registry import has
from hexane.graph.traits import GATHERS, RESHAPES, SAME_VALUES
from hexane.graph.types import DTYPES, STRINGS

if TYPE_CHECKING:
    from hexane.graph import Graph, Op, Value
    from hexane.program import Port

_MASKS = frozenset("equal not_equal greater greater_equal less less_equal logical_not logical_and logical_or".split())
_MASK_NAME = re.compile(r"mask", re.IGNORECASE)
_RATE_NAME = re.compile(r"(^|_)(sr|rate|sample_?rate|sampling_?rate|fs)($|_)", re.IGNORECASE)
_LENGTH_NAME = re.compile(r"len(gth)?s?($|_)", re.IGNORECASE)
_TYPE_NAME = re.compile(r"token_type|segment", re.IGNORECASE)
_IDS_NAME = re.compile(r"ids?($|_)|token|index|indices", re.IGNORECASE)


def drawn_inputs(
    ports: Sequence[Port], seed: int, graph: Graph | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays for ``ports`` from a seed, and one sentence for each kind of them.

    UsageError for an input of which no random value makes sense: a sampling rate.
    """
    generator = seeds.generator(seed)
    arrays, how = {}, {}
    for port in ports:
        value = next((v for v in graph.main.inputs if v.name == port.name), None) if graph is not None else None
        arrays[port.name], how[port.name] = _drawn(port, generator, value)
    names = {text: ", ".join(name for name, reason in how.items() if reason == text) for text in how.values()}
    return arrays, [f"{those} {text} with seed {seed}" for text, those in names.items()]


def _drawn(port: Port, generator: np.random.Generator, value: Value | None) -> tuple[np.ndarray, str]:
    if port.image:
        pixels = generator.integers(0, 256, port.shape).astype(np.float32)
        return pixels, "drawn as pixels 0 to 255"
    if port.dtype in STRINGS:
        raise UsageError(
            f"input {port.name!r} is text, of which nothing is drawn", hint=f"--input {port.name}=FILE.npy"
        )
    if port.dtype == "bool":
        return generator.integers(0, 2, port.shape).astype(bool), "drawn as true and false"
    if _RATE_NAME.search(port.name) and int(np.prod(port.shape)) == 1:
        raise UsageError(
            f"input {port.name!r} looks like a sampling rate, of which no random number makes sense",
            hint=f"give it a value: --bind {port.name}=16000",
        )
    if port.dtype.startswith(("fp", "bf")):
        if _MASK_NAME.search(port.name):
            return np.ones(port.shape, np.float32), "is a mask: all ones,"
        return generator.standard_normal(port.shape, dtype=np.float32), "drawn from a normal distribution"
    return _whole(port, generator, value)


def _whole(port: Port, generator: np.random.Generator, value: Value | None) -> tuple[np.ndarray, str]:
    carrier = DTYPES[port.dtype].carrier
    rows = _table_rows(value) if value is not None else None
    if rows is not None:
        return generator.integers(0, rows, port.shape).astype(carrier), f"drawn as indices 0 to {rows - 1}"
    if _MASK_NAME.search(port.name) or (value is not None and any(op.type in _MASKS for op in value.users)):
        return np.ones(port.shape, carrier), "is a mask: all ones,"
    if _TYPE_NAME.search(port.name):
        return np.zeros(port.shape, carrier), "is a type of token: all zeros,"
    if _LENGTH_NAME.search(port.name):
        return np.ones(port.shape, carrier), "is a length: ones,"
    if port.dtype == "uint8":
        return generator.integers(0, 256, port.shape).astype(carrier), "drawn as bytes 0 to 255"
    kind = "indices" if _IDS_NAME.search(port.name) else "whole numbers of unknown meaning"
    return generator.integers(0, 2, port.shape).astype(carrier), f"drawn as {kind} 0 and 1 (blindly)"


def _table_rows(value: Value) -> int | None:
    """The number of rows of the smallest table that an input's values are looked up in; None where there is none."""
    row_counts: list[int] = []
    waiting, visited = [value], {value}
    while waiting:
        current = waiting.pop()
        for op in current.users:
            if (has(op, GATHERS) or op.type == "one_hot") and op.inputs.get("indices") is current:
                rows = _rows_of(op)
                if rows:
                    row_counts.append(rows)
            elif has(op, SAME_VALUES | RESHAPES) or op.type in ("slice_by_index", "select"):
                for result in op.outputs:
                    if result not in visited:
                        visited.add(result)
                        waiting.append(result)
    return min(row_counts, default=None)


def _rows_of(op: Op) -> int | None:
    x = op.inputs.get("x")
    if op.type == "one_hot":
        size = op.inputs.get("one_hot_vector_size")
        return int(size.data) if size is not None and size.is_constant else None
    if x is None or not x.shape:
        return None
    axis = op.arg("axis") if op.type != "gather_nd" else 0
    return x.shape[int(axis) if axis is not None else 0]
