"""Comparisons as a difference and a step table, as graph level and tasks both do them.

Transformation ``planar-comparisons``. The planar engine's difference of two fp16 numbers is zero only where they are
equal: subnormal results stay, and infinity less infinity is +0 (docs/reference/engine-h13.md 11). Apple's form sums
+x and -y in the neural engine instead, whose products are multiples of 2^-16 and whose sums end at 2^15: there numbers
closer than 2^-17 are equal, and a number from 32768 on is not equal to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def sided(op: Op) -> tuple[str, Value, Value]:
    """(comparison, x, y) with a constant as y: 3 < x is x > 3."""
    x, y = op.arg("x"), op.arg("y")
    return (MIRRORED.get(op.type, op.type), y, x) if x.is_constant and not y.is_constant else (op.type, x, y)
