"""All rules: importing the files below declares them."""

from hexane.restrictions import operations, runtime, shapes, speed, text, weights
from hexane.restrictions.rule import RULES

PLACES = (text, weights, operations, shapes, speed, runtime)
"""The files that rules stand in, in the order of docs/restrictions.md."""

__all__ = ["PLACES", "RULES"]
