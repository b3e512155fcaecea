"""Look-up tables by name (spec/engine-h13 §10, appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from hexane.errors import UnsupportedError
from hexane.kernels import (
    LookupTable,
    clip_table,
    fitted_table,
    fraction_table,
    integer_table,
    is_zero_table,
    known_table,
    leaky_relu_table,
    less_than_zero_table,
    limited_line_table,
    not_zero_table,
    sign_table,
)

KNOWN = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "gelu": "gelu",
    "silu": "silu",
    "exp2": "exp2",
    "log2": "log2",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "recip",
}
"""Apple's nine tables, by the name that recipes use."""

DERIVED: dict[str, Callable[..., LookupTable]] = {
    "maximum": lambda v: clip_table(low=v),
    "minimum": lambda v: clip_table(high=v),
    "clip": clip_table,
    "leaky_relu": leaky_relu_table,
    "sigmoid_hard": limited_line_table,
    "equals_zero": is_zero_table,
    "not_zero": not_zero_table,
    "below_zero": less_than_zero_table,
    "sign": sign_table,
    "fraction": fraction_table,
    "integer": integer_table,
}
"""Tables that follow from numbers; each entry takes them."""


@lru_cache(maxsize=256)
def lookup_table(name: str, *args: float) -> bytes:
    """The 128 bytes of a table: one of Apple's nine, one derived from numbers, or one fitted to a function."""
    if name in KNOWN:
        return known_table(KNOWN[name]).to_bytes()
    if name in DERIVED:
        return DERIVED[name](*args).to_bytes()
    if args:
        raise UnsupportedError(f"the table {name!r} takes no number")
    return fitted_table(name).table.to_bytes()
