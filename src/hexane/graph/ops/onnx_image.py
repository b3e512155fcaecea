"""The host op that opens a picture inside a network: ``onnx.ImageDecoder``, by Pillow."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import numpy as np

from hexane.errors import FormatError, UnsupportedError
from hexane.graph.registry import op
from hexane.graph.types import TensorType

FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""What ONNX asks a decoder to know; no other of Pillow's readers is tried."""


def _picture_type(x: TensorType, output_shape: Sequence[int]) -> TensorType:
    return x.with_shape(output_shape)


@op(
    "onnx.ImageDecoder",
    "x:I pixel_format:str output_shape:ints",
    infer=_picture_type,
    pixel_format=("RGB", "BGR", "Grayscale"),
)
def image_decoder(x, pixel_format, output_shape):
    """The bytes of a picture to height x width x channels of uint8; "RGB", "BGR" or "Grayscale"."""
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError("ImageDecoder needs pillow", hint="pip install 'hexane[run]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(x.astype(np.uint8).tobytes()), formats=FORMATS) as picture:
                size = (picture.height, picture.width, 1 if pixel_format == "Grayscale" else 3)
                if size != tuple(output_shape):  # before the pixels are unpacked: a header may claim any size
                    raise FormatError(f"the picture is {size} where the file declares {tuple(output_shape)}")
                pixels = np.asarray(picture.convert("L" if pixel_format == "Grayscale" else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"the picture cannot be decoded ({error})") from None
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
