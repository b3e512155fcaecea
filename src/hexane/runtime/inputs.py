"""A network's inputs from files, pictures or a seed: every choice that is made on the way is stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.runtime.files import plain_errors

if TYPE_CHECKING:
    from hexane.program import Port

LARGEST_FILE = 1 << 32
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "unit": ((0.0,), (1.0,)),
    "raw": ((0.0,), (1 / 255,)),
    "signed": ((0.5,), (0.5,)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Name -> (mean, standard deviation) per channel, of pixels scaled to 0..1."""


@dataclass(frozen=True)
class Given:
    """Arrays by input name, and one sentence per choice that was made."""

    arrays: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()


def gather(
    ports: Sequence[Port],
    options: Iterable[str] = (),
    *,
    normalize: str = "unit",
    seed: int | None = None,
) -> Given:
    """Every input of ``ports``, from ``NAME=FILE`` options (``FILE`` alone for a single input) or from a seed.

    ``.npy`` holds one input, ``.npz`` inputs by name, a picture is fitted to the input's shape. Inputs without a file
    are drawn from ``seed``; UsageError where neither is given, and for arrays that do not fit or hold NaN.
    """
    by_name = {port.name: port for port in ports}
    arrays: dict[str, np.ndarray] = {}
    notes: list[str] = []
    for option in options:
        name, path = _split(option, by_name)
        if path.suffix.lower() == ".npz":
            arrays.update(_npz(path, by_name))
            continue
        if name is None:
            raise UsageError(
                f"{option!r} does not say which input it is for",
                hint=f"write NAME={path}; the inputs are {', '.join(by_name)}",
            )
        if path.suffix.lower() in PICTURES:
            arrays[name], note = picture(path, by_name[name], normalize)
            notes.append(note)
        else:
            arrays[name] = _npy(path)
    missing = [port for port in ports if port.name not in arrays]
    if missing and seed is None:
        raise UsageError(
            f"input {missing[0].name!r} is missing",
            hint=f"give --input {missing[0].name}=FILE or --random SEED; it is {_shape(missing[0])}",
        )
    if missing:
        generator = np.random.default_rng(seed)
        for port in missing:
            arrays[port.name] = drawn(port, generator)
        names = ", ".join(port.name for port in missing)
        notes.append(f"{names} drawn from a normal distribution with seed {seed}")
    return Given({port.name: fitted(arrays[port.name], port) for port in ports}, tuple(notes))


def fitted(array: np.ndarray, port: Port) -> np.ndarray:
    """An array in the input's shape (axes of size 1 may be missing); UsageError for another shape, or for NaN."""
    where = f"input {port.name!r}"
    if array.dtype.kind not in "biuf":
        raise UsageError(f"an array of dtype {array.dtype}", where=where, hint=f"it is {_shape(port)}")
    if array.shape != port.shape:
        if tuple(n for n in array.shape if n != 1) != tuple(n for n in port.shape if n != 1):
            raise UsageError(f"an array of shape {array.shape}", where=where, hint=f"it is {_shape(port)}")
        array = array.reshape(port.shape)
    if array.dtype.kind == "f" and np.isnan(array).any():
        first = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise UsageError(
            f"NaN at {first}", where=where, hint="replace it; the engine would compute with infinity in its place"
        )
    return array


def drawn(port: Port, generator: np.random.Generator) -> np.ndarray:
    """Normal numbers for a float input, zeros and ones for any other."""
    if port.dtype.startswith(("fp", "bf")):
        return generator.standard_normal(port.shape, dtype=np.float32)
    return generator.integers(0, 2, port.shape).astype(bool if port.dtype == "bool" else np.int64)


def picture(path: Path, port: Port, normalize: str = "unit") -> tuple[np.ndarray, str]:
    """A picture as an input of the port's shape, and what was done to it.

    The layout follows the shape: three axes behind the batch with 1, 3 or 4 first is channels-first, with them last
    channels-last; two axes are grey. Resized with a bilinear filter when the size differs.
    """
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError("pictures need pillow", hint="pip install 'hexane[run]'") from None
    axes, channels, height, width = layout_of(port)
    mean, deviation = normalization(normalize)
    with plain_errors(path, "cannot be read"):
        try:
            with Image.open(path) as file:
                size = file.size
                image = file.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
        except (Image.UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
            raise FormatError(f"is no picture: {error}", where=str(path)) from None
    resized = "" if size == (width, height) else f", resized from {size[0]}x{size[1]}"
    if resized:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.float32).reshape(height, width, channels) / 255
    if port.dtype in ("uint8", "int8", "int32"):
        values, how = np.round(pixels * 255), "0..255"
    else:
        values = (pixels - np.array(mean, np.float32)) / np.array(deviation, np.float32)
        how = normalize
    values = values.transpose(2, 0, 1) if axes == "CHW" else values
    note = f"{port.name}: {path.name} as {axes} {channels}x{height}x{width}{resized}, normalised {how!r}"
    return values.reshape(port.shape), note


def layout_of(port: Port) -> tuple[str, int, int, int]:
    """("CHW" or "HWC", channels, height, width) of an input that takes a picture; UsageError for any other."""
    shape = port.shape[1:] if len(port.shape) == 4 and port.shape[0] == 1 else port.shape
    if len(shape) == 2:
        return "HWC", 1, shape[0], shape[1]
    if len(shape) == 3:
        for channels in (3, 1, 4):
            if shape[0] == channels:
                return "CHW", shape[0], shape[1], shape[2]
            if shape[2] == channels:
                return "HWC", shape[2], shape[0], shape[1]
    raise UsageError(f"input {port.name!r} takes no picture", hint=f"it is {_shape(port)}; give an .npy file")


def normalization(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, deviation) of a named normalisation or of ``M1,M2,M3/S1,S2,S3`` (pixels are scaled to 0..1 first)."""
    if text in NORMALIZATIONS:
        return NORMALIZATIONS[text]
    try:
        mean, deviation = (tuple(float(v) for v in part.split(",")) for part in text.split("/"))
    except ValueError:
        raise UsageError(
            f"--normalize {text!r} is no normalisation", hint=f"{', '.join(NORMALIZATIONS)}, or MEANS/DEVIATIONS"
        ) from None
    if len(mean) not in (1, 3, 4) or len(deviation) not in (1, 3, 4) or 0.0 in deviation:
        raise UsageError(f"--normalize {text!r}: one or three numbers on either side of /, no deviation of 0")
    return mean, deviation


def _split(option: str, known: dict[str, Any]) -> tuple[str | None, Path]:
    """``NAME=FILE``; ``FILE`` alone where there is one input."""
    for name in known:
        if option.startswith(f"{name}="):
            return name, Path(option[len(name) + 1 :])
    left, equals, right = option.partition("=")
    if equals and right and not Path(option).exists():
        raise UsageError(f"there is no input {left!r}", hint=f"the inputs are {', '.join(known)}")
    return (next(iter(known)) if len(known) == 1 else None), Path(option)


def _npy(path: Path) -> np.ndarray:
    with plain_errors(path, "cannot be read"):
        if path.stat().st_size > LARGEST_FILE:
            raise UsageError(f"has more than {LARGEST_FILE} bytes", where=str(path))
        try:
            found = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, SyntaxError) as error:
            raise FormatError(f"is no .npy file: {error}", where=str(path)) from None
    if not isinstance(found, np.ndarray):
        raise FormatError("is no .npy file", where=str(path), hint="name it .npz")
    return found


def _npz(path: Path, known: dict[str, Any]) -> dict[str, np.ndarray]:
    import zipfile

    with plain_errors(path, "cannot be read"):
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
            raise FormatError(f"is no .npz file: {error}", where=str(path)) from None
    renamed = {name.replace("/", "_"): name for name in known}
    unknown = [name for name in arrays if name not in known and name not in renamed]
    if unknown:
        raise UsageError(
            f"there is no input {unknown[0]!r}", where=str(path), hint=f"the inputs are {', '.join(known)}"
        )
    return {name if name in known else renamed[name]: array for name, array in arrays.items()}


def _shape(port: Port) -> str:
    return f"{'x'.join(map(str, port.shape)) or 'a scalar'} {port.dtype}"
