"""Classic Core ML neural networks: a list of layers, translated one by one into MIL ops.

Older networks think of every array as [sequence, batch, channels, height, width]; hexane carries them as
[batch, channels, height, width] inside and gives inputs and outputs the shapes that the model declares. Newer ones
(exact array mapping) have the ranks that they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hexane.errors import FormatError, GraphError, HexaneError, UnsupportedError
from hexane.formats.coreml.description import ARRAY_DTYPES, feature_shape
from hexane.formats.coreml.layers import LAYERS
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.open_shapes import OpenShapes
from hexane.formats.operands import Folder, Operand
from hexane.graph import Graph, GraphBuilder


class NetworkReader:
    """One run over one network."""

    def __init__(self, model: Any, where: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.model = model
        self.where = where
        self.shapes = shapes
        self.network = getattr(model, model.WhichOneof("Type"))
        self.exact = self.network.arrayInputShapeMapping == 1
        self.builder = GraphBuilder(opset="ios16")
        self.folder = Folder(self.builder)
        self.values: dict[str, Operand] = {}

    def run(self) -> Graph:
        """The whole graph."""
        outputs = [feature.name for feature in self.model.description.output if self.is_array(feature)]
        probabilities = self.probabilities()
        if probabilities in outputs:
            outputs.remove(probabilities)
        if probabilities is not None:
            for name in self.classifier_names():
                self.builder.names.take(name)
        for name in outputs:
            self.builder.names.take(name)
        for feature in self.model.description.input:
            self.values[feature.name] = self.input(feature)
        refused = []
        for layer in self.network.layers:
            kind = layer.WhichOneof("layer")
            if kind is None or kind not in LAYERS:
                refused.append(f"layer {layer.name!r} is a {_kind_of(layer, kind)}")
                continue
            if refused:
                continue
            self.layer(LayerContext(self, layer, kind), LAYERS[kind])
        if refused:
            raise UnsupportedError(
                f"{len(refused)} layer(s) that hexane has no translation for: " + "; ".join(refused[:40]),
                where=self.where,
            )
        for feature in self.model.description.output:
            if feature.name in outputs:
                self.output(feature)
        if probabilities is not None:
            self.classifier(probabilities)
        if not self.builder.function.outputs:
            raise FormatError("no output of the model is made by a layer", where=self.where)
        return self.builder.graph

    def probabilities(self) -> str | None:
        """The blob that a classifier takes its classes from: the one it names, else the last one; None otherwise."""
        if self.model.WhichOneof("Type") != "neuralNetworkClassifier":
            return None
        if self.network.labelProbabilityLayerName:
            return str(self.network.labelProbabilityLayerName)
        outputs = [name for layer in self.network.layers for name in layer.output]
        named = self.model.description.predictedProbabilitiesName
        if named in outputs or not outputs:
            return named or None
        return outputs[-1]

    def classifier_names(self) -> tuple[str, str]:
        """Names of the label and the probabilities in the model."""
        description = self.model.description
        return (
            description.predictedFeatureName or "classLabel",
            description.predictedProbabilitiesName or "classLabel_probs",
        )

    def classifier(self, blob: str) -> None:
        """The label and the probabilities, under the names that the description gives them."""
        network = self.network
        kind = network.WhichOneof("ClassLabels")
        if kind is None:
            raise FormatError("a classifier without classes", where=self.where)
        labels = list(getattr(network, kind).vector)
        if blob not in self.values:
            raise FormatError(f"the classifier takes {blob!r}, which no layer makes", where=self.where)
        value = self.folder.value(self.values[blob])
        if prod(value.shape) != len(labels):
            raise FormatError(f"{prod(value.shape)} probabilities for {len(labels)} classes", where=self.where)
        flat = self.builder.reshape(x=value, shape=np.array([len(labels)], np.int32))
        classes = np.array(labels, np.int64 if kind == "int64ClassLabels" else np.str_)
        label, probabilities = self.builder.op("classify", probabilities=flat, classes=classes)
        label.name, probabilities.name = self.classifier_names()
        self.builder.output(label, probabilities)
        self.builder.graph.metadata["classes"] = labels

    def layer(self, c: LayerContext, translate: Any) -> None:
        try:
            results = translate(c)
        except UnsupportedError as error:
            raise UnsupportedError(f"{c.title}: {error.message}", where=self.where, hint=error.hint) from error
        except HexaneError as error:
            raise GraphError(f"{c.title}: {error.message}", where=self.where, hint=error.hint) from error
        except (ValueError, IndexError, TypeError, OverflowError) as error:
            raise FormatError(f"{c.title} is not well-formed ({error})", where=self.where) from error
        results = results if isinstance(results, tuple) else (results,)
        if len(results) < len(c.layer.output):
            raise FormatError(f"{c.title} names {len(c.layer.output)} results, it has {len(results)}", where=self.where)
        for name, value in zip(c.layer.output, results):
            self.values[name] = value

    def is_array(self, feature: Any) -> bool:
        return feature.name in {name for layer in self.network.layers for name in layer.output}

    def input(self, feature: Any) -> Operand:
        """A graph input; as an image it is [1, channels, height, width], with scale and bias applied."""
        kind = feature.type.WhichOneof("Type")
        shape = tuple(self.shapes.get(feature.name, ())) or feature_shape(feature)
        if kind not in ("multiArrayType", "imageType") or shape is None:
            raise UnsupportedError(f"input {feature.name!r} is a {kind} without a shape", where=self.where)
        if 0 in shape:
            raise OpenShapes({feature.name: tuple(extent or None for extent in shape)}, where=self.where)
        dtype = "fp32"
        if kind == "multiArrayType":
            dtype = ARRAY_DTYPES.get(feature.type.multiArrayType.dataType, "fp32")
        value = self.builder.input(feature.name, shape, "fp32" if dtype == "fp64" else dtype)
        if kind == "imageType":
            return self.preprocessed(feature, value)
        if self.exact or len(shape) == 4:
            return value
        if len(shape) not in (1, 3, 5) or (len(shape) == 5 and shape[0] != 1):
            raise UnsupportedError(
                f"input {feature.name!r} of shape {shape} in a network of five axes", where=self.where
            )
        inner = {1: (1, *shape, 1, 1), 3: (1, *shape), 5: shape[1:]}[len(shape)]
        return self.builder.reshape(x=value, shape=np.array(inner, np.int32))

    def preprocessed(self, feature: Any, value: Operand) -> Operand:
        """``channelScale * image + bias``, one bias per colour in the image's own order."""
        for step in self.network.preprocessing:
            if step.featureName not in ("", feature.name):
                continue
            if step.WhichOneof("preprocessor") != "scaler":
                raise UnsupportedError(f"a mean image for {feature.name!r}", where=self.where)
            scaler, color = step.scaler, feature.type.imageType.colorSpace
            gray = [scaler.grayBias]
            colors = [scaler.redBias, scaler.greenBias, scaler.blueBias]
            bias = gray if color in (10, 40) else colors[::-1] if color == 30 else colors
            # A scaler that leaves the scale out means none (the protobuf default would erase the image).
            scale = scaler.channelScale or 1.0
            if scale != 1:
                value = self.builder.mul(x=value, y=np.float32(scale))
            if any(bias):
                value = self.builder.add(x=value, y=np.array(bias, np.float32).reshape(1, -1, 1, 1))
        return value

    def output(self, feature: Any) -> None:
        value = self.folder.value(self.values[feature.name])
        declared = feature_shape(feature)
        if not self.exact:
            shape = value.shape
            plain = shape[1:] if shape[:1] == (1,) else shape
            extents = declared if declared is not None and prod(declared) == prod(shape) else plain
            if tuple(extents) != shape:
                value = self.builder.reshape(x=value, shape=np.array(extents, np.int32))
        if value.op is None or value.is_output:
            value = self.builder.identity(x=value)
        value.name = feature.name
        self.builder.output(value)


def _kind_of(layer: Any, kind: str | None) -> str:
    """A layer's kind; of a custom one the class of the app's own that computes it."""
    if kind == "custom":
        return f"custom layer, which the app's own class {layer.custom.className!r} computes"
    return kind or "layer of no kind"


def read_network(model: Any, where: str, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """A classic neural network (or a classifier's network) as a graph."""
    return NetworkReader(model, where, shapes).run()
