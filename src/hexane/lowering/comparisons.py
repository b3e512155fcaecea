"""Comparisons as a difference and a step table, as graph level and tasks both do them.

Transformation ``planar-comparisons``. The planar engine's difference of two fp16 numbers is zero only where they are
equal: subnormal results stay, and infinity less infinity is +0 (docs/reference/engine-h13.md 11). Apple's form sums
+x and -y in the neural engine instead, whose products are multiples of 2^-16 and whose sums end at 2^15: there numbers
closer than 2^-17 are equal, and a number from 32768 on is not equal to itself.
"""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph.registry import has
from hexane.graph.traits import MOVES, PICKS, SAME_VALUES
from hexane.isa.numbers import LARGEST_HALF

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

STEPS = {
    "less": "below_zero",
    "less_equal": "up_to_zero",
    "greater": "above_zero",
    "greater_equal": "from_zero",
    "equal": "equals_zero",
    "not_equal": "not_zero",
}
"""The table (``hexane.lowering.functions``) that a comparison is of x - y."""

MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


_INFINITE = {
    ("less", 1): ("less_equal", LARGEST_HALF),
    ("less_equal", -1): ("less", -LARGEST_HALF),
    ("greater", -1): ("greater_equal", -LARGEST_HALF),
    ("greater_equal", 1): ("greater", LARGEST_HALF),
    ("equal", 1): ("greater", LARGEST_HALF),
    ("equal", -1): ("less", -LARGEST_HALF),
    ("not_equal", 1): ("less_equal", LARGEST_HALF),
    ("not_equal", -1): ("greater_equal", -LARGEST_HALF),
}


def with_number(word: str, number: float) -> tuple[str, float]:
    """A comparison of fp16 with a number as one with a finite number: equal to inf is greater than 65504.

    UnsupportedError for NaN, and where the answer is always the same (x <= inf).
    """
    if isfinite(number):
        return word, number
    answer = None if isnan(number) else _INFINITE.get((word, 1 if number > 0 else -1))
    if answer is None:
        raise UnsupportedError(f"{word} {number:g}: the answer does not depend on x, or there is none")
    return answer


def sided(op: Op) -> tuple[str, Value, Value]:
    """(comparison, x, y) with a constant as y: 3 < x is x > 3.

    UnsupportedError where NaN decides: x == x, a constant that holds NaN, or infinity beside what the caller gives, who
    may give NaN. What the engine computes never is NaN.
    """
    x, y = op.arg("x"), op.arg("y")
    if x is y and op.type in ("equal", "not_equal"):
        raise UnsupportedError("x compared with itself asks for NaN, which the engine does not have")
    if any(v.is_constant and np.isnan(v.data).any() for v in (x, y)):
        raise UnsupportedError("a comparison with NaN")
    if any(v.is_constant and np.isinf(v.data).any() for v in (x, y)) and (_is_given(x) or _is_given(y)):
        raise UnsupportedError("an input compared with infinity: the engine reads NaN as infinity")
    return (MIRRORED.get(op.type, op.type), y, x) if x.is_constant and not y.is_constant else (op.type, x, y)


def _is_given(value: Value) -> bool:
    """True where a value is the caller's, through moves and abs."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        op = value.op
        if op is None and not value.is_constant:
            return True
        if op is not None and (has(op, MOVES | PICKS | SAME_VALUES) or op.type == "abs"):
            waiting += op.operands()
    return False
