"""Inputs and outputs as Core ML describes them: arrays, pictures, numbers, class labels and their probabilities.

A feature turns what a caller hands over into the array that the network takes, and the network's array into what
coremltools' ``predict`` gives back: arrays in the declared type (float16 as float32, coremltools' own habit), ``PIL``
images, a label, a dictionary from label to probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.formats.coreml.description import ARRAY_DTYPES, COLORS, allowed_shapes, default_of, feature_shape, features
from hexane.formats.mil.names import decode
from hexane.formats.open_shapes import allowed_shapes_text
from hexane.graph import Graph, TensorType

ARRAY, IMAGE, DOUBLE, INT64, STRING, DICTIONARY = "multiArray", "image", "double", "int64", "string", "dictionary"
_MODES = {"RGB": "RGB", "BGR": "RGB", "GRAYSCALE": "L", "GRAYSCALE_FLOAT16": "F"}
"""Colour layout -> mode of the Pillow images that coremltools takes for it."""
_NUMPY = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float32, "int32": np.int32, "int8": np.int8}
"""Declared element type -> that of the arrays that ``predict`` gives back."""


@dataclass(frozen=True)
class Feature:
    """One input or output. ``shape`` is its default; ``allowed`` says what else it may be (None: nothing)."""

    name: str
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str = "fp32"
    color: str = ""
    allowed: Mapping[str, Any] | None = field(default=None, compare=False)
    default: float | None = None
    text: str = ""

    def taken(self, value: Any) -> np.ndarray:
        """Inputs of the caller, as the network takes them. UsageError for another kind, mode or size."""
        if self.kind == IMAGE:
            return self._picture(value)
        if self.kind in (STRING, DICTIONARY):
            raise UnsupportedError(f"input {self.name!r} is a {self.kind}", hint="hexane computes with numbers")
        array = _plain(value, self.name)
        if self.kind in (DOUBLE, INT64):
            if array.size != 1:
                raise UsageError(f"input {self.name!r} is one number, not {array.shape}")
            return array.reshape(1)
        if self.shape is not None and array.ndim == 0 and self.shape in ((), (1,)):
            array = array.reshape(self.shape)
        self.require(array.shape)
        return array

    def require(self, shape: tuple[int, ...]) -> None:
        """UsageError for a shape that the model does not allow."""
        if self.shape is None or shape == self.shape:
            return
        if self.allowed is None:
            raise UsageError(f"input {self.name!r} has shape {shape}", hint=f"the model takes {self.shape}")
        allowed = self.allowed
        if "enumerated" in allowed:
            fits = list(shape) in [list(one) for one in allowed["enumerated"]]
        else:
            ranges = allowed["range"]
            fits = len(ranges) == len(shape) and all(
                low <= extent and (high is None or extent <= high) for extent, (low, high) in zip(shape, ranges)
            )
        if not fits:
            hint = f"the model allows {allowed_shapes_text(allowed)}"
            raise UsageError(f"input {self.name!r} has shape {shape}", hint=hint)

    def missing(self) -> np.ndarray:
        """The value of an input that was left out. UsageError where the model names none."""
        if self.default is None or self.shape is None:
            raise UsageError(f"input {self.name!r} is missing", hint=f"it is a {self}")
        return np.full(self.shape, self.default, _NUMPY[self.dtype])

    def _picture(self, picture: Any) -> np.ndarray:
        mode = getattr(picture, "mode", None)
        if mode is None:
            raise UsageError(f"input {self.name!r} is a picture, not a {type(picture).__name__}", hint="a PIL.Image")
        modes = _MODES.get(self.color)
        if modes is None:
            raise UnsupportedError(f"input {self.name!r} is a picture of colours {self.color}")
        if mode != modes:
            hint = f"image.convert({modes!r})"
            raise UsageError(f"input {self.name!r} takes pictures of mode {modes!r}, not {mode!r}", hint=hint)
        channels = 3 if modes == "RGB" else 1
        self.require((1, channels, picture.height, picture.width))
        pixels = np.asarray(picture, np.float32).reshape(picture.height, picture.width, channels)
        if self.color == "BGR":
            pixels = pixels[..., ::-1]
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]

    def given_back(self, array: np.ndarray, classes: list[Any] | None) -> Any:
        """The network's result as ``predict`` gives it."""
        if self.kind == IMAGE:
            return self._image(array)
        if self.kind == DICTIONARY:
            return dict(zip(classes or [], np.asarray(array, np.float64).reshape(-1).tolist()))
        if self.kind == STRING:
            return str(np.asarray(array).reshape(-1)[0])
        if self.kind == INT64:
            return int(np.asarray(array).reshape(-1)[0])
        if self.kind == DOUBLE:
            return float(np.asarray(array).reshape(-1)[0])
        dtype = _NUMPY.get(self.dtype, np.float32)
        return np.atleast_1d(np.asarray(array)).astype(dtype)

    def _image(self, array: np.ndarray) -> Any:
        from PIL import Image

        pixels = np.asarray(array, np.float32).reshape(array.shape[-3:])
        if self.color == "GRAYSCALE_FLOAT16":
            return Image.fromarray(pixels[0].astype(np.float16).astype(np.float32))
        whole = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
        if self.color == "GRAYSCALE":
            return Image.fromarray(whole[0])
        colors = whole[::-1] if self.color == "BGR" else whole
        return Image.fromarray(np.ascontiguousarray(colors.transpose(1, 2, 0)))

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape or ()))
        return f"{self.color or self.dtype} {self.kind} {size}".strip()


def _plain(value: Any, name: str) -> np.ndarray:
    """A list, an array, or a tensor of a framework as an array of numbers."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"input {name!r} is no array ({error})") from None
    if array.dtype.kind not in "biuf":
        raise UsageError(f"input {name!r} is an array of {array.dtype}", hint="give numbers")
    return array


def described(description: Any, kind: str, function: str | None) -> dict[str, Feature]:
    """The input or output features of a ``ModelDescription``, by name, in order."""
    return {feature.name: _feature(feature) for feature in features(description, kind, function)}


def _feature(feature: Any) -> Feature:
    which = feature.type.WhichOneof("Type")
    kind = (which or "").removesuffix("Type")
    name, text = decode(feature.name), feature.shortDescription
    if kind == ARRAY:
        array = feature.type.multiArrayType
        dtype = ARRAY_DTYPES.get(array.dataType, "fp32")
        default = default_of(feature)
        return Feature(name, kind, feature_shape(feature), dtype, "", allowed_shapes(feature), default, text)
    if kind == IMAGE:
        color = COLORS.get(feature.type.imageType.colorSpace, "unknown")
        return Feature(name, kind, feature_shape(feature), "fp32", color, allowed_shapes(feature), None, text)
    return Feature(name, kind, text=text)


class Descriptions(dict[str, str]):
    """Feature name -> what the model says of it; a text that is set stands in the model's message, too."""

    def __init__(self, description: Any, kind: str, function: str | None) -> None:
        self._features = {decode(feature.name): feature for feature in features(description, kind, function)}
        super().__init__({name: feature.shortDescription for name, feature in self._features.items()})

    def __setitem__(self, name: str, text: str) -> None:
        if name not in self._features:
            raise UsageError(f"there is no feature {name!r}", hint=f"there are {', '.join(self)}")
        self._features[name].shortDescription = text
        super().__setitem__(name, text)


def of_graph(graph: Graph, kind: str) -> dict[str, Feature]:
    """The same for a compiled model, which has no description: arrays, and images that its metadata name."""
    features = {}
    for name, type_ in (graph.inputs if kind == "input" else graph.outputs).items():
        if not isinstance(type_, TensorType):
            continue
        image = graph.metadata.get("images", {}).get(name) if kind == "input" else None
        if image is not None:
            features[name] = Feature(name, IMAGE, tuple(type_.shape), "fp32", str(image["color"]))
        elif type_.dtype == "string":
            features[name] = Feature(name, STRING)
        else:
            dtype = type_.dtype if type_.dtype in _NUMPY else "int32"
            features[name] = Feature(name, ARRAY, tuple(type_.shape), dtype)
    return features
