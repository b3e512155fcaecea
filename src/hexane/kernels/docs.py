"""The page on look-up tables, from the tables themselves: what each computes and how wrong it is."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hexane.isa.numbers import LARGEST_HALF
from hexane.kernels.fit import Function, measure_table
from hexane.kernels.functions import RECIPES, fitted_table
from hexane.kernels.tables import LookupMode, LookupTable, known_table

PAGE = "lookup-tables.md"

_erf = np.vectorize(math.erf, otypes=[float])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -x))


_APPLE: dict[str, tuple[str, Function, float, float, str]] = {
    "sigmoid": ("1 / (1 + exp(-x))", _sigmoid, -np.inf, np.inf, "absolute"),
    "tanh": ("tanh(x)", np.tanh, -np.inf, np.inf, "absolute"),
    "gelu": ("gelu(x)", lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), -np.inf, np.inf, "absolute"),
    "silu": ("x * sigmoid(x)", lambda x: x * _sigmoid(x), -np.inf, np.inf, "absolute"),
    "exp2": ("2^x; exp(x) behind a post-scale of log2 e", np.exp2, -14.0, 15.99, "relative"),
    "log2": ("log2(x); log(x) before a factor of ln 2", np.log2, 2.0**-14, LARGEST_HALF, "absolute"),
    "sqrt": ("sqrt(x)", np.sqrt, 2.0**-14, LARGEST_HALF, "relative"),
    "rsqrt": ("1 / sqrt(x)", lambda x: 1 / np.sqrt(x), 2.0**-14, LARGEST_HALF, "relative"),
    "recip": ("1 / x", lambda x: 1 / x, 2.0**-14, 16384.0, "relative"),
}

_HEAD = """# Look-up tables

A neural core applies a function of one variable by a table of 33 nodes: limits, nodes at even spacing, a straight line
between the nodes and each limit. The errors below are the largest ones over every fp16 input of the domain, with the
engine's own rounding, against the exact function (`hexane.kernels.measure_table`).

## Apple's tables

The same bytes serve H13, H14 and H16. The largest errors of sigmoid, tanh, gelu and silu are those that an M6 returned
(docs/reference/numerics.md 8).

"""

_FITTED = """
## Tables fitted here

Apple's tables of these functions are not public, or do not exist. `hexane.kernels.fitted_table(name)` gives the table,
`hexane.kernels.fit_table(function, low, high)` makes one for any other function. Beyond a finite domain a table holds
the end's value.

"""

_EXACT = """
## Tables without error

Clips, two straight pieces (leaky ReLU, hard sigmoid), comparisons with zero, sign, fractional and integer part are
exact up to one rounding: `clip_table`, `two_line_table`, `leaky_relu_table`, `step_table`, `less_than_zero_table`,
`not_zero_table`, `is_zero_table`, `sign_table`, `fraction_table`, `integer_table`.
"""


def lookup_page() -> str:
    """The page in Markdown."""
    return _HEAD + _rows(_apple_rows()) + _FITTED + _rows(_fitted_rows()) + _EXACT


def write_page(folder: Path) -> Path:
    """Write the page into a folder, whole or not at all."""
    path = folder / PAGE
    part = path.with_suffix(".part")
    part.write_text(lookup_page())
    os.replace(part, path)
    return path


def _rows(rows: Iterator[tuple[str, ...]]) -> str:
    head = ("table", "function", "form", "node spacing", "domain", "largest error", "at")
    return "".join("| " + " | ".join(row) + " |\n" for row in (head, ("---",) * len(head), *rows))


def _row(name: str, text: str, table: LookupTable, low: float, high: float, error: str, at: float) -> tuple[str, ...]:
    mode = table.mode
    form = mode.name.lower() if isinstance(mode, LookupMode) else hex(mode)
    domain = "all" if low == -np.inf and high == np.inf else f"{low:.6g} .. {high:.6g}"
    return name, text, form, f"2^-{table.spacing_log2}", domain, error, f"{at:.6g}"


def _apple_rows() -> Iterator[tuple[str, ...]]:
    for name, (text, function, low, high, measure) in _APPLE.items():
        error, at = measure_table(known_table(name), function, low, high, measure=measure)
        yield _row(name, text, known_table(name), low, high, f"{error:.3e} {measure}", at)


def _fitted_rows() -> Iterator[tuple[str, ...]]:
    for name in sorted(RECIPES):
        fit = fitted_table(name)
        yield _row(name, RECIPES[name].text, fit.table, *fit.domain, f"{fit.max_error:.3e} absolute", fit.worst)


if __name__ == "__main__":
    print(write_page(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")))
