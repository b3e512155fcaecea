"""A network's inputs from files, pictures or a seed: every choice that is made on the way is stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.emulator.files import drawn_inputs as drawn_surfaces
from hexane.errors import UsageError
from hexane.graph.types import DTYPES, dtype_name, misfit
from hexane.program.segment import Port, as_surface
from hexane.session.arrays import SOUNDS, TEXTS, described, npy, npz, require_fit, sound, text
from hexane.session.drawing import drawn_inputs
from hexane.session.pictures import NORMALIZATIONS, PICTURES, layout_of, normalization, picture

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.image import Image

__all__ = ["NORMALIZATIONS", "PICTURES", "GatheredInputs", "fitted", "gather", "layout_of", "normalization", "picture"]


@dataclass(frozen=True)
class GatheredInputs:
    """Arrays by input name, and one sentence per choice that was made."""

    arrays: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()


def gather(
    ports: Sequence[Port],
    options: Iterable[str] = (),
    *,
    normalize: str | None = None,
    seed: int | None = None,
    graph: Graph | None = None,
) -> GatheredInputs:
    """Every input of ``ports``, from ``NAME=FILE`` options (``FILE`` alone for a single input) or from a seed.

    Pictures go through ``hexane.session.pictures``: an input that its model declares as an image takes the pixels as
    the model says, every other one is normalised as ``normalize`` says ("unit" when None).

    ``.npy``, ``.txt`` and ``.csv`` hold one input, ``.npz`` inputs by name; a picture is fitted to the input's shape, a
    sound (``.wav``) to its length. Inputs without a file are drawn from ``seed`` (``hexane.session.drawing``; ``graph``
    says what whole numbers mean). UsageError where neither is given, and for arrays that do not fit or hold NaN.
    """
    arrays, notes = _read(ports, options, normalize)
    defaults = graph.metadata.get("defaults", {}) if graph is not None else {}
    for port in ports:
        if port.name in defaults and port.name not in arrays:
            arrays[port.name] = np.full(port.shape, defaults[port.name], DTYPES[port.dtype].carrier)
            notes.append(f"{port.name}: {defaults[port.name]:g}, as the model fills it where it is not given")
    missing = [port for port in ports if port.name not in arrays]
    if missing and seed is None:
        raise UsageError(
            f"input {missing[0].name!r} is missing",
            hint=f"give --input {missing[0].name}=FILE or --random SEED; it is {described(missing[0])}",
        )
    if missing:
        assert seed is not None
        arrays_drawn, notes_drawn = drawn_inputs(missing, seed, graph)
        arrays.update(arrays_drawn)
        notes += notes_drawn
    return GatheredInputs({port.name: fitted(arrays[port.name], port) for port in ports}, tuple(notes))


def for_surfaces(
    image: Image, options: Iterable[str], *, normalize: str | None = None, seed: int | None = None
) -> GatheredInputs:
    """Inputs of an engine program from the same files as a network's, in its surfaces' types.

    Those without a file are drawn from ``seed`` (``hexane.emulator.files``) or missing. NaN stays: the engine's answer
    to it is a question to the emulator.
    """
    ports = [Port(surface.label, tuple(surface.shape), dtype_name(surface.dtype)) for surface in image.inputs]
    of_files, notes = _read(ports, options, normalize)
    arrays = {} if seed is None else drawn_surfaces(image, seed)
    arrays |= {
        port.name: as_surface(_shaped(of_files[port.name], port), port) for port in ports if port.name in of_files
    }
    return GatheredInputs(arrays, tuple(notes))


def _read(
    ports: Sequence[Port], options: Iterable[str], normalize: str | None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays of the inputs that have a file, and one sentence per choice. UsageError for one with two files."""
    by_name = {port.name: port for port in ports}
    arrays: dict[str, np.ndarray] = {}
    notes: list[str] = []
    for option in options:
        name, path = _split(option, by_name)
        kind = path.suffix.lower()
        if kind == ".npz":
            arrays_of_option = npz(path, by_name)
        elif name is None:
            raise UsageError(
                f"{option!r} does not say which input it is for",
                hint=f"write NAME={path}; the inputs are {', '.join(by_name)}",
            )
        elif kind in PICTURES or kind in SOUNDS:
            port = by_name[name]
            array, note = picture(path, port, normalize) if kind in PICTURES else sound(path, port)
            arrays_of_option = {name: array}
            notes.append(note)
        else:
            arrays_of_option = {name: (text if kind in TEXTS else npy)(path, by_name[name])}
        for twice in arrays.keys() & arrays_of_option.keys():
            raise UsageError(f"input {twice!r} is given twice", where="--input")
        arrays |= arrays_of_option
    return arrays, notes


def _shaped(array: np.ndarray, port: Port) -> np.ndarray:
    require_fit(array.shape, array.dtype, port)
    if reason := misfit(array, port.dtype):
        raise UsageError(reason, where=f"input {port.name!r}", hint=f"it is {described(port)}")
    return array.reshape(port.shape)


def fitted(array: np.ndarray, port: Port) -> np.ndarray:
    """An array in the input's shape (axes of size 1 may be missing); UsageError for another shape, NaN, fractions of
    whole numbers."""
    where = f"input {port.name!r}"
    array = _shaped(array, port)
    if array.dtype.kind == "f" and np.isnan(array).any():
        first = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise UsageError(
            f"NaN at {first}", where=where, hint="replace it; the engine would compute with infinity in its place"
        )
    return array


def _split(option: str, ports_by_name: dict[str, Any]) -> tuple[str | None, Path]:
    """``NAME=FILE``; ``FILE`` alone where there is one input."""
    for name in ports_by_name:
        if option.startswith(f"{name}="):
            return name, Path(option[len(name) + 1 :])
    left, equals, right = option.partition("=")
    if equals and right and not Path(option).exists():
        raise UsageError(f"there is no input {left!r}", hint=f"the inputs are {', '.join(ports_by_name)}")
    return (next(iter(ports_by_name)) if len(ports_by_name) == 1 else None), Path(option)
