"""Shapes that arrays have, for networks that leave theirs open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexane.errors import HexaneError
from hexane.formats.npy import stored_shapes
from hexane.formats.open_shapes import OpenShapes

if TYPE_CHECKING:
    from hexane.graph import Graph

Shape = tuple[int, ...]
Extents = Mapping[str, Sequence[object]]
"""Of inputs by name; an open one is no int."""


def fitted(load: Callable[[Mapping[str, Shape]], Graph], shapes: Callable[[Extents], Mapping[str, Shape]]) -> Graph:
    """A network in the shapes of what it is given, where its own are open or its batch was assumed.

    ``load`` gives the network with some inputs' shapes bound; ``shapes`` those that fit the extents it is called with.
    """
    try:
        graph = load({})
    except OpenShapes as error:
        options = shapes(error.inputs)
        if not options:
            raise
        return load(options)
    if not graph.metadata.get("assumed"):
        return graph
    declared = {value.name: tuple(value.type.shape) for value in graph.main.inputs}
    options = shapes({name: (None, *shape[1:]) for name, shape in declared.items() if shape})
    return graph if all(declared[name] == shape for name, shape in options.items()) else load(options)


def file_shapes(options: Iterable[str], inputs: Extents) -> dict[str, Shape]:
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
    return {name: shape for name, shape in shapes_read.items() if name in inputs and fits(shape, inputs[name])}


def fits(shape: Shape, extents: Sequence[object]) -> bool:
    """True where a shape has the extents that are known."""
    pairs = zip(shape, extents)
    return len(shape) == len(extents) and all(not isinstance(extent, int) or n == extent for n, extent in pairs)
