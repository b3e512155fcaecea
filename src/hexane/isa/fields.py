"""All fields of a task at once: word, shift and mask of every field of a layout, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import itemgetter, or_
from typing import Any, NamedTuple


class FieldRow(NamedTuple):
    """A field: its dotted name, the place of its word, its lowest bit, its largest value, whether a 0 is listed."""

    name: str
    at: int
    shift: int
    limit: int
    always: bool


class Numbers(Mapping[str, int]):
    """Name to value, 0 of a name that is missing; ``more`` are those that the plan does not list."""

    __slots__ = ("more", "plan", "row")

    def __init__(self, plan: FieldPlan, row: list[int], more: dict[str, int]) -> None:
        self.plan, self.row, self.more = plan, row, more

    def __getitem__(self, name: str) -> int:
        at = self.plan.index.get(name)
        return self.more.get(name, 0) if at is None else self.row[at]

    def __iter__(self) -> Iterator[str]:
        """The names of the plan, where there are more in the order of the words."""
        if not self.more:
            return iter(self.plan.index)
        return (name for name in self.plan.order if name in self.plan.index or name in self.more)

    def __len__(self) -> int:
        return len(self.plan.index) + len(self.more)


class FieldPlan:
    """Name to value of all fields, from the words of a task (a list of ints, or a memoryview of 32-bit words).

    Bits that are listed only where they are set rarely are: they are looked for in the words that have some. ``fixed``
    are values of fields that have no word.
    """

    def __init__(self, rows: Sequence[FieldRow], size: int, fixed: Mapping[str, int] | None = None) -> None:
        import numpy as np

        listed = [row for row in rows if row.always]
        names = {row.name for row in listed}
        fixed = {name: value for name, value in (fixed or {}).items() if name not in names}
        self.order = [*(row.name for row in rows), *fixed]
        self.listed = {row.name: row for row in listed}
        self.index = {name: at for at, name in enumerate([*(row.name for row in listed), *fixed])}
        self._known = [*fixed.values(), 0]  # the last one stands for all names that are missing
        self._array = np.array
        self._at = np.array([row.at for row in listed], np.intp)
        numbers = zip(*((row.shift, row.limit) for row in listed))
        self._shifts, self._limits = (np.array(each, np.uint32) for each in numbers)
        self._rows: dict[int, list[FieldRow]] = {}
        self._rare = np.zeros(size, np.uint32)
        self._pickers: dict[tuple[str, ...], Callable[[list[int]], tuple[int, ...]]] = {}
        for row in rows:
            if not row.always:
                self._rare[row.at] |= row.limit << row.shift
                self._rows.setdefault(row.at, []).append(row)

    def __call__(self, words: Any) -> Numbers:
        array = self._array(words, "u4")
        row = (array[self._at] >> self._shifts & self._limits).tolist() + self._known
        places = (array & self._rare).nonzero()[0].tolist()
        if not places:
            return Numbers(self, row, {})
        rows = [row for at in places for row in self._rows[at]]
        return Numbers(self, row, {f.name: value for f in rows if (value := words[f.at] >> f.shift & f.limit)})

    def mask(self, names: Iterable[str]) -> int:
        """Bits of these listed fields in the words of a task as one number (``Task.number``)."""
        return reduce(or_, (row.limit << 32 * row.at + row.shift for row in map(self.listed.__getitem__, names)), 0)

    def picker(self, names: tuple[str, ...]) -> Callable[[list[int]], tuple[int, ...]]:
        """Reader of the values of these names from a task's row."""
        picker = self._pickers.get(names)
        if picker is None:
            picker = self._pickers[names] = itemgetter(*(self.index.get(name, -1) for name in names))
        return picker
