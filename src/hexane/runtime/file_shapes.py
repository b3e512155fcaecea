"""Shapes that arrays on disk have, for networks that leave theirs open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hexane.errors import HexaneError
from hexane.runtime.arrays import stored_shapes

Shape = tuple[int, ...]


def file_shapes(options: Iterable[str], inputs: Mapping[str, Sequence[object]]) -> dict[str, Shape]:
    """Of the arrays (``.npy``, ``.npz``) among ``NAME=FILE`` options, by input; ``inputs``: extents, open ones no int.

    Only headers are read. A file that is no array, or whose shape does not fit the extents that are known, is left out:
    who reads it later says what is wrong.
    """
    shapes_read: dict[str, Shape] = {}
    for option in options:
        name = next((name for name in inputs if option.startswith(f"{name}=")), None)
        path = Path(option if name is None else option[len(name) + 1 :])
        if name is None and len(inputs) == 1:
            name = next(iter(inputs))
        if path.suffix.lower() not in (".npy", ".npz"):
            continue
        try:
            shapes = stored_shapes(path)
        except HexaneError:
            continue
        if "" in shapes and name is not None:
            shapes[name] = shapes.pop("")
        shapes_read.update(shapes)
    return {name: shape for name, shape in shapes_read.items() if name in inputs and _fits(shape, inputs[name])}


def _fits(shape: Shape, extents: Sequence[object]) -> bool:
    pairs = zip(shape, extents)
    return len(shape) == len(extents) and all(not isinstance(extent, int) or n == extent for n, extent in pairs)
