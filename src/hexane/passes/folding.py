"""Constants computed at compile time."""

from __future__ import annotations

from math import prod

from hexane.graph import rewrite
from hexane.graph.ir import Function, Op
from hexane.passes.rewriting import is_static

EXPANSION = 1 << 15
"""A tile to at least this many elements stays: repeating is cheaper than reading."""


def fold_constants(function: Function) -> int:
    """Evaluate what depends on constants only: the engine has no arithmetic on shapes, and weights must be data."""
    return rewrite.fold_constants(function, keep=_expands)


def _expands(op: Op) -> bool:
    return op.type == "tile" and is_static(op.output) and prod(op.output.shape) >= EXPANSION
