"""Shapes and element types of tinygrad's nodes in the graph's words."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph.types import DTYPES as GRAPH_DTYPES

DTYPES = {
    "float": "fp32", "half": "fp16", "double": "fp64", "int": "int32", "uint": "uint32", "bool": "bool",
    "weakfloat": "fp32", "weakint": "int32", "char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16",
    "long": "int64", "ulong": "uint64",
}  # fmt: skip


def shape_of(u: Any, what: str) -> tuple[int, ...]:
    """The shape; UnsupportedError for a symbolic one."""
    shape = tuple(u.shape)
    if not all(isinstance(extent, int) for extent in shape):
        raise UnsupportedError(f"{what} has the shape {shape}; the graph is static")
    return shape


def dtype_of(u: Any) -> str:
    """The graph's name of the element type."""
    name = str(u.dtype).removeprefix("dtypes.")
    if name not in DTYPES:
        raise UnsupportedError(f"{u.op.name} of {name}: the graph has no such element type")
    return DTYPES[name]


def carrier_of(u: Any) -> np.dtype:
    """NumPy's dtype for it."""
    return np.dtype(GRAPH_DTYPES[dtype_of(u)].carrier)


def is_weak(u: Any) -> bool:
    """True where it is a number of Python, which takes the type of what it meets."""
    return str(u.dtype).startswith("dtypes.weak")
