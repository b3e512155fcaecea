"""The table of translations, and what several families of layers need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hexane.errors import GraphError
from hexane.formats.coreml.layers.context import LayerContext

LAYERS: dict[str, Callable[[LayerContext], Any]] = {}


def layer(*kinds: str) -> Callable[[Callable[[LayerContext], Any]], Callable[[LayerContext], Any]]:
    """Declare the translation of one or more kinds of layers."""

    def declare(translate: Callable[[LayerContext], Any]) -> Callable[[LayerContext], Any]:
        for kind in kinds:
            LAYERS[kind] = translate
        return translate

    return declare


def borders(amounts: Any) -> list[tuple[int, int]]:
    """(start, end) of rows and columns; zeros where a layer names none."""
    pairs = [(int(pair.startEdgeSize), int(pair.endEdgeSize)) for pair in amounts.borderAmounts] or [(0, 0), (0, 0)]
    if len(pairs) != 2:
        raise GraphError(f"{len(pairs)} borders, rows and columns are two")
    return pairs
