"""The arguments that every reader takes, checked once: a path, shapes by name, weight files by name."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import UsageError


def path_of(path: Any) -> Path:
    """The ``path`` argument: text or anything path-like; UsageError for anything else."""
    try:
        return Path(os.fsdecode(path))
    except TypeError:
        raise UsageError(f"a file's name is text or a path, not {type(path).__name__}") from None


def checked_shapes(shapes: Any) -> dict[str, tuple[int, ...]]:
    """The ``shapes`` argument: names to tuples of whole numbers (a lone number is a tuple of one)."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        raise UsageError(f"shapes is a {type(shapes).__name__}", hint='give a dict: {"x": (1, 3, 224, 224)}')
    checked = {}
    for name, shape in shapes.items():
        if not isinstance(name, str):
            raise UsageError(f"shapes has the name {name!r}", hint="names are strings")
        try:
            extents = (shape,) if hasattr(shape, "__index__") and not isinstance(shape, np.ndarray) else tuple(shape)
            checked[name] = tuple(operator.index(extent) for extent in extents)
        except TypeError:
            raise UsageError(f"shapes[{name!r}] is {shape!r}", hint="give a tuple of whole numbers") from None
        if any(isinstance(extent, bool) for extent in extents) or min(checked[name], default=0) < 0:
            raise UsageError(f"shapes[{name!r}] is {shape!r}", hint="extents are whole numbers from 0 on")
    return checked


def given_files(weights: Any) -> dict[str, Any]:
    """The ``weights`` argument of the readers: names as written to bytes or paths; UsageError for anything else."""
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        raise UsageError(
            f"weights is a {type(weights).__name__}",
            hint="give a dict: name as written in the network to bytes or a path",
        )
    for name, source in weights.items():
        if not isinstance(name, str):
            raise UsageError(f"weights has the name {name!r}", hint="names are strings, as written in the network")
        if not isinstance(source, bytes | bytearray | memoryview | str | Path):
            raise UsageError(f"weights[{name!r}] is a {type(source).__name__}", hint="give bytes or a path")
    return dict(weights)
