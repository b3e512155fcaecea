"""Translations of classic Core ML layers, by the name of the layer's protobuf field; one file per family."""

from __future__ import annotations

from hexane.formats.coreml.layers import (  # noqa: F401 (they fill the table)
    elementwise,
    indexing,
    matrices,
    sampling,
    shape,
)
from hexane.formats.coreml.layers.registry import LAYERS

__all__ = ["LAYERS"]
