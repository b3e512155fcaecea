"""Shapes that arrays on disk have, for networks that leave theirs open."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

Shape = tuple[int, ...]


def file_shapes(options: Iterable[str], inputs: Mapping[str, Sequence[object]]) -> dict[str, Shape]:
    """Of the arrays (``.npy``, ``.npz``) among ``NAME=FILE`` options, by input; ``inputs``: extents, open ones no int.

    Only headers are read. A file that is no array, or whose shape does not fit the extents that are known, is left out:
    who reads it later says what is wrong.
    """
    found: dict[str, Shape] = {}
    for option in options:
        name = next((name for name in inputs if option.startswith(f"{name}=")), None)
        path = Path(option if name is None else option[len(name) + 1 :])
        if name is None and len(inputs) == 1:
            name = next(iter(inputs))
        try:
            if path.suffix.lower() == ".npz":
                found.update(_members(path))
            elif path.suffix.lower() == ".npy" and name is not None:
                found[name] = tuple(np.load(path, mmap_mode="r").shape)
        except (OSError, ValueError, zipfile.BadZipFile):
            continue
    return {name: shape for name, shape in found.items() if name in inputs and _fits(shape, inputs[name])}


def _members(path: Path) -> dict[str, Shape]:
    """The shapes of an archive's arrays, by name."""
    shapes: dict[str, Shape] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shapes[member.removesuffix(".npy")] = tuple(read(stream)[0])
    return shapes


def _fits(shape: Shape, extents: Sequence[object]) -> bool:
    known = zip(shape, extents)
    return len(shape) == len(extents) and all(not isinstance(extent, int) or n == extent for n, extent in known)
