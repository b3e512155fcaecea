"""Constants computed at compile time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.graph import rewrite

if TYPE_CHECKING:
    from hexane.graph.ir import Function


def fold_constants(function: Function) -> int:
    """Evaluate what depends on constants only: the engine has no arithmetic on shapes, and weights must be data."""
    return rewrite.fold_constants(function)
