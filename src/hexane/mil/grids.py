"""A permutation of many elements as a few strided copies.

Kernels are packed row by row: a run of halfwords in the constant section takes elements that lie a fixed step apart,
and the next run those beside them. Such a grid is one strided copy; copying elements one by one takes longer than
compiling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WORTH = 256
"""Elements that a run's grids have at least, on average, for strided copies to pay."""


@dataclass(frozen=True, eq=False)
class Grids:
    """``table`` has a row (target, rows, columns, source, row step, column step) per grid, in elements; ``at`` and
    ``element`` are the rest."""

    table: np.ndarray
    at: np.ndarray
    element: np.ndarray

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        """Put the elements of a vector to their places in another one of the same dtype."""
        size = source.itemsize
        for start, rows, columns, base, row_step, column_step in self.table.tolist():
            view = np.lib.stride_tricks.as_strided(
                source[base:], (rows, columns), (row_step * size, column_step * size), writeable=False
            )
            target[start : start + rows * columns].reshape(rows, columns)[...] = view
        target[self.at] = source[self.element]


def grids_of(at: np.ndarray, element: np.ndarray) -> Grids:
    """Grids for places that rise; every pair of ``at`` and ``element`` is in one of them or in the rest."""
    table: list[tuple[int, ...]] = []
    rest: list[np.ndarray] = []
    if not at.size:
        return Grids(np.zeros((0, 6), np.int64), at, element)
    cuts = np.flatnonzero(np.diff(at.astype(np.int64)) != 1) + 1
    for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), at.size]):
        _grids_of_run(at, element, first, last, table, rest)
    remainder = np.concatenate(rest) if rest else np.zeros(0, np.int64)
    return Grids(np.array(table, np.int64).reshape(-1, 6), at[remainder], element[remainder])


def _grids_of_run(
    at: np.ndarray, element: np.ndarray, first: int, last: int, table: list[tuple[int, ...]], rest: list[np.ndarray]
) -> None:
    """The grids of places that follow one another."""
    source = element[first:last].astype(np.int64)
    steps = np.diff(source)
    broken = np.flatnonzero(steps != steps[0]) if steps.size else steps
    columns = int(broken[0]) + 1 if broken.size else source.size
    rows = source.size // columns
    whole = rows * columns
    grid = source[:whole].reshape(rows, columns)
    step = int(steps[0]) if columns > 1 else 1
    even = (np.diff(grid, axis=1) == step).all(axis=1) if columns > 1 else np.ones(rows, bool)
    starts = grid[:, 0]
    apart = np.diff(starts)
    # a grid ends where a row is not even, or where rows stop lying a fixed step apart
    ends = np.zeros(rows, bool)
    ends[-1] = True
    ends[:-1] |= ~even[:-1] | ~even[1:]
    ends[1:-1] |= apart[1:] != apart[:-1]
    lasts = np.flatnonzero(ends)
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    if lasts.size * WORTH > whole:
        rest.append(np.arange(first, last))
        return
    for begin, end in zip(firsts.tolist(), (lasts + 1).tolist()):
        row_step = int(apart[begin]) if end - begin > 1 else 0
        if even[begin] and row_step >= 0 and step >= 0:
            table.append((int(at[first]) + begin * columns, end - begin, columns, int(starts[begin]), row_step, step))
        else:
            rest.append(np.arange(first + begin * columns, first + end * columns))
    if whole < source.size:
        rest.append(np.arange(first + whole, last))
