"""Functions whose table Apple has not published or that are not its own: what they are, and our fitted tables.

The tables are data (``fitted.json``, written by ``tools/fit_tables.py``): fitting takes a second, reading does not.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from hexane.errors import UnsupportedError
from hexane.kernels.fit import FittedTable, Function
from hexane.kernels.tables import HALFWORDS, LookupTable

_erf = np.vectorize(math.erf, otypes=[float])


@dataclass(frozen=True)
class TableRecipe:
    """A function, how it is written, and the inputs on which its table has to be good."""

    text: str
    function: Function
    low: float = -np.inf
    high: float = np.inf


RECIPES: dict[str, TableRecipe] = {
    "acos": TableRecipe("acos(x)", np.arccos, -1.0, 1.0),
    "asin": TableRecipe("asin(x)", np.arcsin, -1.0, 1.0),
    "atan": TableRecipe("atan(x)", np.arctan),
    "cos": TableRecipe("cos(x)", np.cos, -math.pi, math.pi),
    "cosh": TableRecipe("cosh(x)", np.cosh, -4.0, 4.0),
    "elu": TableRecipe("x, below 0 exp(x) - 1", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))),
    "erf": TableRecipe("erf(x)", _erf),
    "gelu_sigmoid": TableRecipe("x * sigmoid(1.702 x)", lambda x: x * np.exp(-np.logaddexp(0.0, -1.702 * x))),
    "hard_swish": TableRecipe("x * min(max(x + 3, 0), 6) / 6", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "mish": TableRecipe("x * tanh(softplus(x))", lambda x: x * np.tanh(np.logaddexp(0.0, x))),
    "sin": TableRecipe("sin(x)", np.sin, -math.pi, math.pi),
    "sinh": TableRecipe("sinh(x)", np.sinh, -4.0, 4.0),
    "softplus": TableRecipe("log(1 + exp(x))", lambda x: np.logaddexp(0.0, x)),
    "softsign": TableRecipe("x / (1 + abs(x))", lambda x: x / (1 + np.abs(x))),
    "tan": TableRecipe("tan(x)", np.tan, -1.25, 1.25),
}


def fitted_table(name: str) -> FittedTable:
    """Our table of a function, with the largest absolute error that it makes on its domain (all of fp16 unless stated).

    `UnsupportedError` for a function that has none; `hexane.kernels.fit_table` makes one.
    """
    rows = _rows()
    if name not in rows:
        raise UnsupportedError(f"there is no fitted table of {name!r}", hint=f"there are {', '.join(sorted(rows))}")
    row, recipe = rows[name], RECIPES[name]
    words = [int(word, 16) for word in row["halfwords"].split()]
    table = LookupTable((*words, *[0] * (HALFWORDS - len(words))))
    return FittedTable(table, row["max_error"], row["worst"], (recipe.low, recipe.high), "absolute")


@cache
def _rows() -> dict[str, dict]:
    return json.loads(files("hexane.kernels").joinpath("fitted.json").read_text())
