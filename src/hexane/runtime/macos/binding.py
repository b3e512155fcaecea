"""Surfaces by symbol: by the names that a loaded model gives, else in the byte order of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hexane.formats.netplist.writer import OUTPUT
from hexane.graph.types import TensorType
from hexane.restrictions.shapes import LEAST_SURFACE_BYTES, OWN_SIZE, UNIFORM, binding_order
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.foundation import Objects, items_of, text_of

DESCRIPTION = "ANEFModelDescription"
INPUTS, OUTPUTS = "kANEFModelInputSymbolsArrayKey", "kANEFModelOutputSymbolsArrayKey"

Tensors = Mapping[str, TensorType]


@dataclass(frozen=True)
class SurfaceOrder:
    """Inputs and outputs as the runtime numbers them; ``known``: told by the model, not inferred from names."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    known: bool


def order_of(border: SystemBorder, model: int, inputs: Tensors, outputs: Tensors) -> SurfaceOrder:
    """The order in which a loaded model takes its surfaces.

    Bound by declared order, two inputs of one size were silently exchanged (restriction S7); byte order is what the
    reports have in common, and what counts where the model says nothing.
    """
    inferred = SurfaceOrder(
        tuple(binding_order(list(inputs))), tuple(binding_order(list(outputs), results=True)), known=False
    )
    if not border.responds(model, "modelAttributes"):
        return inferred
    attributes = border.send(model, "modelAttributes")
    symbols = tuple(_symbols(border, attributes, key) for key in (INPUTS, OUTPUTS)) if attributes else ((), ())
    order = SurfaceOrder(symbols[0], tuple(name.removesuffix(OUTPUT) for name in symbols[1]), known=True)
    good = sorted(order.inputs) == sorted(inputs) and sorted(order.outputs) == sorted(outputs)
    return order if good else inferred


def _symbols(border: SystemBorder, attributes: int, key: str) -> tuple[str, ...]:
    with Objects(border) as objects:
        description = border.call("CFDictionaryGetValue", attributes, objects.text(DESCRIPTION))
        array = border.call("CFDictionaryGetValue", description, objects.text(key)) if description else 0
        return tuple(text_of(border, item) for item in items_of(border, array)) if array else ()


def sizes(names: Sequence[str], tensors: Tensors, how: str) -> list[int]:
    """Bytes to allocate for the surfaces of one side.

    ``how``: "uniform_largest" makes all as large as the largest and at least 49,152 bytes (restrictions S1, S3, S6);
    "own_size" gives each its own (S13: one M5 Max wants outputs so).
    """
    own = [nbytes(tensors[name]) for name in names]
    if how == OWN_SIZE:
        return own
    return [max([*own, LEAST_SURFACE_BYTES])] * len(own)


def nbytes(type_: TensorType) -> int:
    """Bytes of a packed tensor."""
    return type_.count * type_.carrier.itemsize


__all__ = [
    "DESCRIPTION",
    "INPUTS",
    "OUTPUT",
    "OUTPUTS",
    "OWN_SIZE",
    "UNIFORM",
    "SurfaceOrder",
    "nbytes",
    "order_of",
    "sizes",
]
