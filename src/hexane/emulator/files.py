"""Arrays from and to files, for the command line; outputs are written whole or not at all."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hexane.emulator.engine import Engine
from hexane.errors import FormatError, UsageError
from hexane.files import whole_file
from hexane.isa.channels import SCRATCH
from hexane.seeds import generator

if TYPE_CHECKING:
    from hexane.image import Image

LARGEST_INPUT = 1 << 32


def read_surfaces(image: Image, options: Iterable[str]) -> dict[str, np.ndarray]:
    """``name=path`` options (``path`` alone for a single input) to surfaces' bytes: any file's, or those of an .npy."""
    inputs = {}
    for option in options:
        if len(image.inputs) == 1 and "=" not in option:
            option = f"{image.inputs[0].label}={option}"
        name, equals, path = option.partition("=")
        if not equals or not name or not path:
            raise UsageError(f"{option!r} is not NAME=FILE", where="--input")
        if name in inputs:
            raise UsageError(f"input {name!r} is given twice", where="--input")
        inputs[name] = _read(Path(path))
    return inputs


def drawn_inputs(image: Image, seed: int) -> dict[str, np.ndarray]:
    """Values for every input of a program: fp16 around 0 with a deviation of 1, whole numbers over their range.

    Raises UsageError for a negative seed.
    """
    rng, arrays = generator(seed), {}
    for surface in image.inputs:
        dtype = np.dtype(surface.dtype)
        if dtype.kind == "f":
            arrays[surface.label] = rng.standard_normal(surface.shape).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            arrays[surface.label] = rng.integers(limits.min, limits.max, surface.shape, dtype, endpoint=True)
    return arrays


def _read(path: Path) -> np.ndarray:
    try:
        if path.stat().st_size > LARGEST_INPUT:
            raise UsageError(f"the file has more than {LARGEST_INPUT} bytes", where=str(path))
        if path.suffix != ".npy":
            return np.frombuffer(path.read_bytes(), np.uint8)
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (
        ValueError, EOFError, MemoryError, SyntaxError, RecursionError, TypeError, LookupError, AttributeError,
        OverflowError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise FormatError(f"not a .npy file: {error}", where=str(path)) from error


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an .npz file, replacing it at once when all is written."""
    target = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    with whole_file(target) as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]


def state(engine: Engine) -> dict[str, np.ndarray]:
    """L2 with its shadow map, and scratch where there is one, as byte arrays."""
    dumps = {"l2": engine.l2.data, "l2_written_by": engine.l2.shadow.map()}
    if SCRATCH in engine.memory.channels:
        dumps["scratch"] = engine.memory.channels[SCRATCH].data
    return dumps
