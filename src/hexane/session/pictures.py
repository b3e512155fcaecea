"""Pictures as inputs: the one place where pixels become numbers, as the model itself describes its image inputs.

A Core ML model that declares an image input takes the pixels 0 to 255 in the colour layout that it names, and applies
its own scale and bias, ``y = scale * pixel + bias`` per channel (coremltools, ``ImageType``; the format's
``NeuralNetworkImageScaler``): they are ops of the network, so nothing is to be normalised in front of it. Every other
input knows no pixels; how they are normalised is the user's choice.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError
from hexane.files import plain_errors
from hexane.formats.quiet import first_line
from hexane.session.arrays import described

if TYPE_CHECKING:
    from hexane.program import Port

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "unit": ((0.0,), (1.0,)),
    "raw": ((0.0,), (1 / 255,)),
    "signed": ((0.5,), (0.5,)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Name -> (mean, standard deviation) per channel, of pixels scaled to 0..1."""

MOST_PIXELS = 1 << 26
"""Of a picture, before it is resized: four bytes for each are set aside."""

_MODES = {"RGB": "RGB", "BGR": "RGB", "GRAYSCALE": "L", "GRAYSCALE_FLOAT16": "F"}
"""Colour layout of a Core ML image -> how Pillow calls pictures that coremltools takes for it."""


def picture(path: Path, port: Port, normalize: str | None = None) -> tuple[np.ndarray, str]:
    """A picture as an input of the port's shape, and what was done to it.

    The layout follows the shape: three axes behind the batch with 1, 3 or 4 first is channels-first, with them last
    channels-last; two axes are grey. Resized with a bilinear filter when the size differs. UsageError for a
    normalisation on top of the model's own.
    """
    axes, channels, height, width = layout_of(port)
    own = port.image
    if own and normalize not in (None, "raw"):
        raise UsageError(
            f"--normalize {normalize!r}: the model normalises the image {port.name!r} itself", hint="leave it out"
        )
    pixels, resized = _pixels(path, _MODES.get(own) or {1: "L", 3: "RGB", 4: "RGBA"}[channels], (width, height))
    pixels = pixels.reshape(height, width, channels)
    if own:
        values = pixels[..., ::-1] if own == "BGR" else pixels
        how = f"{own}, pixels 0 to 255 as the model declares them"
    elif port.dtype in ("uint8", "int8", "int32"):
        values, how = pixels, "normalised '0..255'"
    else:
        mean, deviation = normalization(normalize or "unit")
        values = (pixels / 255 - np.array(mean, np.float32)) / np.array(deviation, np.float32)
        how = f"normalised {normalize or 'unit'!r}"
    values = values.transpose(2, 0, 1) if axes == "CHW" else values
    note = f"{port.name}: {path.name} as {axes} {channels}x{height}x{width}{resized}, {how}"
    return np.ascontiguousarray(values).reshape(port.shape), note


def _pixels(path: Path, mode: str, size: tuple[int, int]) -> tuple[np.ndarray, str]:
    """Pixels in float32, row by row, and a remark where the picture was resized to (width, height)."""
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError("pictures need pillow", hint="pip install 'hexane[run]'") from None
    with plain_errors(path, "cannot be read"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of very large pictures, which are refused here, and of odd metadata
        try:
            with Image.open(path) as file:
                before = file.size
                if before[0] * before[1] > MOST_PIXELS:
                    raise FormatError(f"has {before[0]}x{before[1]} pixels", where=str(path), hint="make it smaller")
                image = file.convert(mode)
        except HexaneError:
            raise
        except OSError as error:
            if error.errno is not None:  # of the file system; Pillow's own have no number
                raise
            raise FormatError(f"is no picture: {first_line(error)}", where=str(path)) from None
        except Exception as error:  # Pillow's readers meet damage in every type: zlib.error, struct.error, KeyError ...
            raise FormatError(f"is no picture: {first_line(error)}", where=str(path)) from None
    if before == size:
        return np.asarray(image, np.float32), ""
    image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image, np.float32), f", resized from {before[0]}x{before[1]}"


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
    raise UsageError(f"input {port.name!r} takes no picture", hint=f"it is {described(port)}; give an .npy file")


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
