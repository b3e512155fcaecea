"""All rules: importing the files below declares them."""

from hexane.restrictions import compiling, forms, numbers, operations, ranges, runtime, shapes, speed, text, weights
from hexane.restrictions.rule import RULES

PLACES = (text, weights, operations, ranges, numbers, forms, shapes, speed, compiling, runtime)
"""The files that rules stand in, in the order of docs/restrictions.md."""
TEXT_ALONE = frozenset((text.__name__, weights.__name__))
"""Files whose rules look at the letters of a text or the bytes of a weight file."""

__all__ = ["PLACES", "RULES", "TEXT_ALONE"]
