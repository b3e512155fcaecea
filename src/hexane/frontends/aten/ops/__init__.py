"""Translations of ATen operators, one file per kind."""

from hexane.frontends.aten.ops import (
    activation,
    binary,
    indexing,
    normalization,
    pooling,
    products,
    reduction,
    shape,
    unary,
)

__all__ = ["activation", "binary", "indexing", "normalization", "pooling", "products", "reduction", "shape", "unary"]
