"""Evidence of a claim: the three marks, in the order in which they are trusted."""

from __future__ import annotations

from enum import StrEnum


class Evidence(StrEnum):
    """Source of a claim about the hardware (docs/reference/engine-h13.md 0).

    ``SILICON``: observed on an engine, by the public project that the source names.
    ``APPLE``: read from what Apple's compiler or its tables contain.
    ``INFERRED``: follows from register semantics, names or a neighbouring generation; never seen.
    ``rank`` is 0 for the most trusted.
    """

    SILICON = "SILICON"
    APPLE = "APPLE"
    INFERRED = "INFERRED"

    rank: int

    def __init__(self, _: str) -> None:
        self.rank = len(type(self).__members__)


def weakest(*marks: Evidence) -> Evidence:
    """The mark of a claim that rests on all of the given ones; SILICON for none."""
    return max(marks, key=lambda mark: mark.rank, default=Evidence.SILICON)
