"""All fields of a task at once: word, shift and mask of every field of a layout, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A field: its dotted name, the place of its word, its lowest bit, its largest value, whether a 0 is listed."""

    name: str
    at: int
    shift: int
    limit: int
    always: bool


def field_plan(rows: Sequence[Row], size: int) -> Callable[[Any], dict[str, int]]:
    """What gives name to value of all fields for a task's words (a list of ints, or a memoryview of 32-bit words).

    Bits that are listed only where they are set rarely are: a task with such bits is read field by field.
    """
    import numpy as np

    listed = [row for row in rows if row.always]
    names = [row.name for row in listed]
    at = np.array([row.at for row in listed], np.intp)
    shifts, limits = (np.array(numbers, np.uint32) for numbers in zip(*((row.shift, row.limit) for row in listed)))
    rare = np.zeros(size, np.uint32)
    for row in rows:
        if not row.always:
            rare[row.at] |= row.limit << row.shift

    def values(words: Any) -> dict[str, int]:
        array = np.array(words, np.uint32)
        if (array & rare).any():
            found = ((row.name, words[row.at] >> row.shift & row.limit, row.always) for row in rows)
            return {name: value for name, value, always in found if value or always}
        return dict(zip(names, (array[at] >> shifts & limits).tolist()))

    return values
