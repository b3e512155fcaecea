"""All rules: importing the files below declares them."""

from __future__ import annotations

from collections.abc import Iterator

from hexane.restrictions import compiling, forms, numbers, operations, ranges, runtime, shapes, speed, text, weights
from hexane.restrictions.rule import RULES, Hit, Rule
from hexane.restrictions.subject import Subject

PLACES = (text, weights, operations, ranges, numbers, forms, shapes, speed, compiling, runtime)
"""The files that rules stand in, in the order of docs/restrictions.md."""
TEXT_ALONE = frozenset((text.__name__, weights.__name__))
"""Files whose rules look at the letters of a text or the bytes of a weight file."""


def hits(subject: Subject) -> Iterator[tuple[Rule, Hit]]:
    """Every place of a program that breaks a rule, limits apart; a network without a text has no letters to look at."""
    for rule in RULES.values():
        has_letters = subject.text or rule.module not in TEXT_ALONE
        if rule.test is not None and has_letters and subject.interface in rule.interfaces:
            yield from ((rule, hit) for hit in rule.test(subject))


__all__ = ["PLACES", "RULES", "TEXT_ALONE", "hits"]
