"""Elements of a view by their places in its source, and what that says: strides along the source's axes.

tinygrad has no convolution, product of matrices or pooling: it has views (reshapes, permutations, windows made of
repeated copies) whose products are summed. A view whose coordinates are affine in its own axes tells what was meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

MOST_ELEMENTS = 1 << 26
"""Elements of an index map that is written out; beyond, a view stays what it is, step by step."""

MOVES = frozenset({"RESHAPE", "PERMUTE", "EXPAND", "SHRINK", "FLIP"})
"""Movements that are views of what is there; PAD adds something and ends the chain."""


class TooLarge(Exception):
    """The index map of a view would not fit."""


def numbers(u: Any) -> tuple[int, ...]:
    """The whole numbers of a STACK or CONST that says extents."""
    if u.op.name == "CONST":
        return (int(u.arg),)
    return tuple(int(source.arg) for source in u.src)


def move(u: Any, array: np.ndarray) -> np.ndarray:
    """A movement on an array; NumPy's views wherever they can be."""
    name = u.op.name
    if name == "RESHAPE":
        return _reshape(array, tuple(u.shape))
    if name == "PERMUTE":
        return array.transpose(u.arg)
    if name == "EXPAND":
        return np.broadcast_to(array, u.shape)
    if name == "SHRINK":
        return array[tuple(slice(first, first + extent) for first, extent in zip(numbers(u.src[1]), u.shape))]
    if name == "FLIP":
        return array[tuple(slice(None, None, -1) if flip else slice(None) for flip in flips(u))]
    raise ValueError(name)


def _reshape(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Reshape; axes along which nothing changes stay unwritten where they can, since their product may be large."""
    if array.size <= MOST_ELEMENTS:
        return array.reshape(shape)
    view = array.view()
    try:
        view.shape = shape  # only where no copy is needed
    except AttributeError:
        raise TooLarge from None
    return view


def flips(u: Any) -> tuple[bool, ...]:
    """Axes that a FLIP turns."""
    if u.arg is not None and all(isinstance(entry, bool) for entry in u.arg):
        return tuple(u.arg)
    axes = set(u.arg if u.arg is not None else numbers(u.src[1]))
    return tuple(axis in axes for axis in range(len(u.shape)))


@dataclass(frozen=True)
class View:
    """A view as an affine map: source coordinate j is ``offsets[j]`` and the sum of ``steps[j][a] * i[a]``."""

    source: Any
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]


def view_of(
    u: Any,
    shape: tuple[int, ...] | None = None,
    after: tuple[Any, ...] = (),
    ends: Any = frozenset(),
    reshaped: bool = False,
) -> View | None:
    """The affine map of a tensor's movements back to their source; None where it is not affine.

    Parameters
    ----------
    shape : what the tensor is broadcast to.
    after : movements of that, the last one first.
    ends : nodes that are sources, whatever they are.
    reshaped : take the source in the shape that it has before the first spreading, not as it is computed: the heads of
        an attention are axes then, though the product that made them had one.
    """
    chain = []
    source = u
    while source.op.name in MOVES and source not in ends:
        chain.append(source)
        source = source.src[0]
    if reshaped:
        spreading = next((i for i, one in enumerate(reversed(chain)) if one.op.name == "EXPAND"), len(chain))
        shaped = [i for i, one in enumerate(reversed(chain)) if one.op.name == "RESHAPE" and i < spreading]
        if shaped:
            keep = len(chain) - 1 - shaped[-1]
            source, chain = chain[keep], chain[:keep]
    count = prod(source.shape)
    if count == 0 or count > MOST_ELEMENTS:
        return None
    index = np.arange(count, dtype=np.int32).reshape(source.shape)
    try:
        for one in reversed(chain):
            index = move(one, index)
        index = np.broadcast_to(index, index.shape if shape is None else shape)
        for one in reversed(after):
            index = move(one, index)
    except TooLarge:
        return None
    if index.size == 0:
        return None
    return _affine(source, index)


def _affine(source: Any, index: np.ndarray) -> View | None:
    # Axes along which nothing changes are looked at once.
    squeezed = index[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in index.strides)]
    offsets: list[int] = []
    steps: list[tuple[int, ...]] = []
    rest = squeezed
    for extent in reversed(source.shape):
        coordinate = rest % extent
        rest = rest // extent
        first = int(coordinate.reshape(-1)[0])
        coefficients = [0] * squeezed.ndim
        expected: Any = first
        for axis, count in enumerate(squeezed.shape):
            if count > 1:
                coefficients[axis] = int(np.take(coordinate, 1, axis).reshape(-1)[0]) - first
                along = np.arange(count, dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(squeezed.ndim)])
                expected = expected + coefficients[axis] * along
        if not np.array_equal(np.broadcast_to(expected, coordinate.shape), coordinate):
            return None
        offsets.insert(0, first)
        steps.insert(0, tuple(coefficients))
    return View(source, index.shape, tuple(offsets), tuple(steps))
