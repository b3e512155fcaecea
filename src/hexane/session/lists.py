"""Outputs that are lists sorted by score, as boxes behind a ``topk`` or a suppression: compared as a reader would.

Which of two candidates comes first, and which just made it into the list, hangs on the last bit of scores that nobody
looks at. So rows of float32 are paired with the engine's rows that say the same, and only those count whose score
matters: at least a tenth of the best one, and 0.05 where scores are probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.registry import has
from hexane.graph.traits import ELEMENTWISE, GATHERS, MOVES, PICKS, SAME_VALUES
from hexane.graph.types import TensorType
from hexane.session.answers import Answer

if TYPE_CHECKING:
    from hexane.graph import Graph, Op, Value

ROW = "row"
"""The kind of an answer that is a list."""
SHARE_OF_BEST, LEAST_PROBABILITY = 0.1, 0.05
SAME_ROW = 0.05
"""Of the root mean square of a column: how far the entries of two rows that say the same are apart, at most."""
MOST_ROWS = 2048
"""Longer lists are compared as they stand: pairs are looked for among all rows."""
_SORTERS = frozenset(("topk", "non_maximum_suppression"))
_PASSED = ELEMENTWISE | GATHERS | MOVES | PICKS | SAME_VALUES


@dataclass(frozen=True)
class SortedList:
    """An output whose rows along ``axis`` stand in the order of the value called ``sorter``."""

    sorter: str
    axis: int


@dataclass(frozen=True)
class Paired:
    """Rows of one output, the engine's and float32's, that say the same; and how many have no counterpart."""

    got: np.ndarray
    expected: np.ndarray
    answer: Answer


def lists_of(graph: Graph) -> dict[str, SortedList]:
    """For every output of the function that runs that is a sorted list of rows of numbers."""
    lists = {}
    for value in graph.main.outputs:
        type_ = value.type
        if not isinstance(type_, TensorType) or not type_.dtype.startswith(("fp", "bf")) or not type_.is_static:
            continue
        sorter = _sorter(value)
        rows = _rows(sorter) if sorter is not None else None
        axes = [axis for axis, extent in enumerate(type_.shape) if extent == rows]
        if sorter is not None and len(axes) == 1 and 1 < (rows or 0) <= MOST_ROWS:
            lists[value.name] = SortedList(sorter.outputs[0].name, axes[0])
    return lists


def _rows(sorter: Op) -> int | None:
    """Length of a sorting op's list."""
    axis = 1 if sorter.type == "non_maximum_suppression" else int(sorter.arg("axis"))
    return sorter.outputs[0].shape[axis]


def _sorter(value: Value) -> Op | None:
    """The op that sorts, behind those that gather, cut, join and scale rows."""
    waiting, visited = [value], set()
    while waiting:
        op = waiting.pop().op
        if op is None or op in visited:
            continue
        visited.add(op)
        if op.type in _SORTERS:
            return op
        if has(op, _PASSED):
            waiting += op.operands()
    return None


def paired(
    outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], lists: Mapping[str, SortedList]
) -> dict[str, Paired]:
    """For every output that is a list: its rows paired, with those of the other outputs of the same sorting."""
    pairs: dict[str, Paired] = {}
    for sorter in dict.fromkeys(place.sorter for place in lists.values()):
        names = [name for name, place in lists.items() if place.sorter == sorter and name in outputs]
        tables = {name: [_table(side[name], lists[name].axis) for side in (outputs, expected)] for name in names}
        leads = {table[0].shape[0] for table in tables.values()}
        for group in [names] if len(leads) == 1 else [[name] for name in names]:
            pairs.update(_group(group, tables))
    return pairs


def _table(array: np.ndarray, axis: int) -> np.ndarray:
    """(lists, rows, columns) in float64: the axes before the rows are lists, those behind are columns."""
    shape = array.shape
    lists = int(np.prod(shape[:axis], dtype=np.int64))
    return np.asarray(array, np.float64).reshape(lists, shape[axis], -1)


def _group(names: list[str], tables: Mapping[str, list[np.ndarray]]) -> dict[str, Paired]:
    got, expected = (np.concatenate([tables[name][side] for name in names], axis=2) for side in (0, 1))
    pairs = [_pair(ours, theirs) for ours, theirs in zip(got, expected)]
    if not pairs:
        return {}
    missing = sum(pair[2] for pair in pairs)
    answer = Answer(ROW, missing + sum(len(pair[0]) for pair in pairs), missing)
    groups = {}
    for name in names:
        ours, theirs = tables[name]
        groups[name] = Paired(
            np.concatenate([ours[n][i] for n, (i, _, _) in enumerate(pairs)]),
            np.concatenate([theirs[n][j] for n, (_, j, _) in enumerate(pairs)]),
            answer,
        )
    return groups


def _pair(got: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows (got, expected) that say the same and matter, and how many on either side have no counterpart."""
    column = _score_column(expected)
    scores = [np.full(len(expected), np.inf)] * 2 if column is None else [got[:, column], expected[:, column]]
    least = 0.0 if column is None else _least(scores[1])
    rest = np.arange(expected.shape[1]) if column is None else np.delete(np.arange(expected.shape[1]), column)
    if not rest.size:  # nothing but scores: they are in order on either side
        rows = np.flatnonzero(scores[1] >= least)
        return rows, rows, 0
    size = np.sqrt(np.nanmean(np.square(expected[:, rest]), axis=0, where=np.isfinite(expected[:, rest])))
    size = np.where(np.isfinite(size) & (size > 0), size, 1.0)
    ours, theirs = got[:, rest] / size, expected[:, rest] / size
    free = np.ones(len(got), bool)
    mine: list[int] = []
    positions: list[int] = []
    missing = 0
    for row in np.flatnonzero(scores[1] >= least):
        with np.errstate(invalid="ignore"):
            away = np.nan_to_num(np.abs(ours - theirs[row]).max(axis=1), nan=np.inf)
        away[~free] = np.inf
        nearest = int(away.argmin())
        if away[nearest] <= SAME_ROW:
            free[nearest] = False
            mine.append(nearest)
            positions.append(int(row))
        else:
            missing += 1
    if column is not None:  # what the engine alone found, unless float32 had it just below the limit
        below = theirs[(scores[1] >= least / 2) & (scores[1] < least)]
        for row in np.flatnonzero(free & (scores[0] >= 2 * least)):
            missing += not (np.abs(below - ours[row]).max(axis=1) <= SAME_ROW).any() if len(below) else 1
    return np.array(mine, np.int64), np.array(positions, np.int64), missing


def _score_column(rows: np.ndarray) -> int | None:
    """The column that the list is sorted by, the largest first."""
    steps = np.diff(rows, axis=0)
    with np.errstate(invalid="ignore"):
        falls = (steps <= 0).all(axis=0) & (rows[0] > rows[-1])
    return int(falls.argmax()) if falls.any() else None


def _least(scores: np.ndarray) -> float:
    """The score from which a row matters."""
    best = float(scores[0])
    if best <= 0:
        return -np.inf  # logarithms or distances: all matter
    is_probability = best <= 1 and scores[-1] >= 0
    return max(SHARE_OF_BEST * best, LEAST_PROBABILITY if is_probability else 0.0)
