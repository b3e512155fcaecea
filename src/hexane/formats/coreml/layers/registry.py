"""The table of translations, and what several families of layers need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.operands import Operand, type_of

LAYERS: dict[str, Callable[[LayerContext], Any]] = {}


def layer(*kinds: str) -> Callable[[Callable[[LayerContext], Any]], Callable[[LayerContext], Any]]:
    """Declare the translation of one or more kinds of layers."""

    def declare(translate: Callable[[LayerContext], Any]) -> Callable[[LayerContext], Any]:
        for kind in kinds:
            LAYERS[kind] = translate
        return translate

    return declare


def ints(values: Any) -> np.ndarray:
    return np.array([int(value) for value in values], np.int32)


def shape_of(operand: Operand) -> tuple[int, ...]:
    return type_of(operand).shape


def reshape(c: LayerContext, x: Operand, shape: Any) -> Operand:
    return c.ops.reshape(x=x, shape=ints(shape))


def borders(c: LayerContext, padding: Any, axes: int = 2) -> np.ndarray:
    amounts = padding.paddingAmounts.borderAmounts
    if not amounts:
        return np.zeros(2 * axes, np.int32)
    return ints(edge for pair in amounts for edge in (pair.startEdgeSize, pair.endEdgeSize))
