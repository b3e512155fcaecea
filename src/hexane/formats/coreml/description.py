"""Description inside a Core ML model: inputs and outputs as features, images, metadata."""

from __future__ import annotations

from typing import Any

from hexane.graph.ir import Function, Graph
from hexane.graph.types import StateType, tensor_of

COLORS = {10: "GRAYSCALE", 20: "RGB", 30: "BGR", 40: "GRAYSCALE_FLOAT16"}
ARRAY_DTYPES = {65568: "fp32", 65600: "fp64", 131104: "int32", 65552: "fp16", 131080: "int8"}
"""``ArrayFeatureType.ArrayDataType``."""
_ARRAY_CODES = {name: code for code, name in ARRAY_DTYPES.items()}


def read_description(model: Any, metadata: dict[str, Any], function: str | None = None) -> None:
    """Metadata, image features and feature texts of a model into ``graph.metadata``."""
    description = model.description
    metadata["specification_version"] = model.specificationVersion
    said = description.metadata
    for key, text in (
        ("author", said.author),
        ("license", said.license),
        ("description", said.shortDescription),
        ("model_version", said.versionString),
    ):
        if text:
            metadata[key] = text
    if said.userDefined:
        metadata["user"] = dict(sorted(said.userDefined.items()))
    if description.predictedFeatureName:
        metadata["predicted_feature"] = description.predictedFeatureName
    images, texts, flexible, defaults = {}, {}, {}, {}
    for feature in [*features(description, "input", function), *features(description, "output", function)]:
        if feature.type.WhichOneof("Type") == "imageType":
            image = feature.type.imageType
            images[feature.name] = {
                "width": image.width,
                "height": image.height,
                "color": COLORS.get(image.colorSpace, str(image.colorSpace)),
            }
        default = default_of(feature)
        if default is not None:
            defaults[feature.name] = default
        allowed = allowed_shapes(feature)
        if allowed is not None:
            flexible[feature.name] = allowed
        if feature.shortDescription:
            texts[feature.name] = feature.shortDescription
    if flexible:
        metadata["shapes"] = flexible
    if images:
        metadata["images"] = images
    if texts:
        metadata["features"] = texts
    if defaults:
        metadata["defaults"] = defaults


def default_of(feature: Any) -> float | None:
    """The number that fills an optional array where it is not given; None where there is none."""
    if feature.type.WhichOneof("Type") != "multiArrayType" or not feature.type.isOptional:
        return None
    field = feature.type.multiArrayType.WhichOneof("defaultOptionalValue")
    return None if field is None else float(getattr(feature.type.multiArrayType, field))


def features(description: Any, kind: str, function: str | None = None) -> list[Any]:
    """Input, output or state features; those of one function where the model has several."""
    if description.functions:
        name = function or description.defaultFunctionName
        for entry in description.functions:
            if entry.name == name:
                return list(getattr(entry, kind))
        return []
    return list(getattr(description, kind))


def predicted_features(model: Any) -> tuple[str, str]:
    """Names of a classifier's label and probabilities; empty where it does not say."""
    return model.description.predictedFeatureName, model.description.predictedProbabilitiesName


def feature_shape(feature: Any) -> tuple[int, ...] | None:
    """The default shape that a feature declares: of an array, or of an image as [1, channels, height, width]."""
    kind = feature.type.WhichOneof("Type")
    if kind == "multiArrayType":
        array = feature.type.multiArrayType
        if array.shape:
            return tuple(int(extent) for extent in array.shape)
        return None
    if kind == "imageType":
        image = feature.type.imageType
        return (1, 1 if image.colorSpace in (10, 40) else 3, image.height, image.width)
    return None


def allowed_shapes(feature: Any) -> dict[str, Any] | None:
    """The shapes that a feature allows besides its default: ``enumerated``, or a ``range`` (low, high) per axis.

    ``high`` is None where there is no bound. None for a feature of one shape.
    """
    kind = feature.type.WhichOneof("Type")
    if kind == "multiArrayType":
        array = feature.type.multiArrayType
        which = array.WhichOneof("ShapeFlexibility")
        if which == "enumeratedShapes":
            return {"enumerated": [[int(extent) for extent in one.shape] for one in array.enumeratedShapes.shapes]}
        if which == "shapeRange":
            return {"range": [_bounds(size) for size in array.shapeRange.sizeRanges]}
    if kind == "imageType":
        image = feature.type.imageType
        which = image.WhichOneof("SizeFlexibility")
        channels = 1 if image.colorSpace in (10, 40) else 3
        if which == "enumeratedSizes":
            sizes = [[1, channels, int(size.height), int(size.width)] for size in image.enumeratedSizes.sizes]
            return {"enumerated": sizes}
        if which == "imageSizeRange":
            both = (image.imageSizeRange.heightRange, image.imageSizeRange.widthRange)
            return {"range": [[1, 1], [channels, channels], *(_bounds(size) for size in both)]}
    return None


def _bounds(size: Any) -> list[int | None]:
    """(low, high) of a ``SizeRange``; an upper bound below zero, or of all ones, is none."""
    high = int(size.upperBound)
    return [int(size.lowerBound), None if high < 0 or high >= 1 << 31 else high]


def write_description(model: Any, graph: Graph, spelled: Any, dtype_of: Any) -> None:
    """Features and metadata of a graph into an empty model. ``spelled`` gives names as the program has them."""
    metadata = graph.metadata
    description = model.description
    said = description.metadata
    said.author = str(metadata.get("author", ""))
    said.license = str(metadata.get("license", ""))
    said.shortDescription = str(metadata.get("description", ""))
    said.versionString = str(metadata.get("model_version", ""))
    for key, text in metadata.get("user", {}).items():
        said.userDefined[str(key)] = str(text)
    if len(graph.functions) == 1:
        _write_features(description, graph.main, graph, spelled, dtype_of)
        return
    for function in graph.functions.values():
        entry = description.functions.add()
        entry.name = spelled(function.name)
        _write_features(entry, function, graph, spelled, dtype_of)
    description.defaultFunctionName = spelled(graph.main.name)


def _write_features(owner: Any, function: Function, graph: Graph, spelled: Any, dtype_of: Any) -> None:
    for values, plain in ((function.inputs, owner.input), (function.outputs, owner.output)):
        for value in values:
            state = isinstance(value.type, StateType)
            feature = (owner.state if state else plain).add()
            feature.name = spelled(value.name)
            feature.shortDescription = graph.metadata.get("features", {}).get(value.name, "")
            image = graph.metadata.get("images", {}).get(value.name)
            if image is not None and not state:
                feature.type.imageType.width = int(image["width"])
                feature.type.imageType.height = int(image["height"])
                codes = {name: code for code, name in COLORS.items()}
                feature.type.imageType.colorSpace = codes.get(image["color"], 20)
                continue
            array = feature.type.stateType.arrayType if state else feature.type.multiArrayType
            type_ = tensor_of(value.type)
            array.dataType = _ARRAY_CODES[dtype_of(type_.dtype)]
            array.shape.extend(extent for extent in type_.shape if extent is not None)
