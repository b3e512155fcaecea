"""Functions that the engine looks up: which table, what stands in front of it.

Source: docs/reference/engine-h13.md 8.2, 10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    scaled_table,
    sign_table,
    step_table,
)

ONE, LOG2_E, LN_2 = 0x3C00, 0x3DC5, 0x398C
"""fp16 bits of 1, log2 e and ln 2: exp(x) = 2^(x log2 e), log(x) = log2(x) ln 2."""


@dataclass(frozen=True)
class TableFunction:
    """A table function: its table, the fp16 factor in front of it, whether an epsilon is added first."""

    table: str
    scale: int = ONE
    epsilon: bool = False


FUNCTIONS = {
    "sigmoid": TableFunction("sigmoid"),
    "tanh": TableFunction("tanh"),
    "silu": TableFunction("silu"),
    "gelu": TableFunction("gelu"),
    "sqrt": TableFunction("sqrt"),
    "exp": TableFunction("exp2", LOG2_E),
    "exp2": TableFunction("exp2"),
    "rsqrt": TableFunction("rsqrt", epsilon=True),
    "inverse": TableFunction("reciprocal", epsilon=True),
    "log": TableFunction("log2", epsilon=True),
}

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
"""Apple's nine tables, by the name used here."""

DERIVED: dict[str, Callable[..., LookupTable]] = {
    "maximum": lambda v: clip_table(low=v),
    "minimum": lambda v: clip_table(high=v),
    "clip": clip_table,
    "leaky_relu": leaky_relu_table,
    "sigmoid_hard": limited_line_table,
    "equals_zero": is_zero_table,
    "not_zero": not_zero_table,
    "below_zero": less_than_zero_table,
    "above_zero": lambda: step_table(0.0, 0.0, 1.0),
    "up_to_zero": lambda: step_table(1.0, 1.0, 0.0),
    "from_zero": lambda: step_table(0.0, 1.0, 1.0),
    "sign": sign_table,
    "fraction": fraction_table,
    "integer": integer_table,
}
"""Tables that follow from numbers; each entry takes them."""


SCALED = ("hard_swish", "mish", "silu", "gelu", "gelu_sigmoid", "sigmoid", "softplus")
"""Tables that also take a scale and a shift of their results: their nodes and lines are scaled and shifted."""

POWERS = ("exp2", "rsqrt", "reciprocal")
"""Tables whose results take a power of two as their scale, exactly."""

FITTED = ("erf", "softplus", "softsign", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")
LIMITED = {"sin": 3.1416, "cos": 3.1416, "tan": 1.25, "sinh": 4.0, "cosh": 4.0}
"""Functions whose table is good on a part of the inputs only: left to the host."""


@lru_cache(maxsize=256)
def lookup_table(name: str, *args: float) -> bytes:
    """The 128 bytes of a table: one of Apple's nine, one derived from numbers, or one fitted to a function.

    Numbers are those of a derived table, or scale and shift of the results (``SCALED``).
    """
    if name in DERIVED:
        return DERIVED[name](*args).to_bytes()
    table = known_table(KNOWN[name]) if name in KNOWN else fitted_table(name).table
    if args:
        if len(args) != 2 or (name not in SCALED and (name not in POWERS or args[1]) and args != (1.0, 0.0)):
            raise UnsupportedError(f"the table {name!r} takes no number")
        table = scaled_table(table, *args)
    return table.to_bytes()
