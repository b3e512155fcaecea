"""Core ML pipelines: several models, each fed by name from the inputs and from the models before it, as one graph.

Networks are read as they are anywhere else and joined; the small models around them (scalers, linear models ...) become
ops (``hexane.formats.coreml.small_models``). A model that is neither is refused with its kind and its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from hexane.errors import FormatError, UnsupportedError
from hexane.formats.coreml.description import ARRAY_DTYPES, feature_shape, predicted_features
from hexane.formats.coreml.small_models import SMALL_MODELS, SmallModel
from hexane.graph import Graph, GraphBuilder, TensorType, Value
from hexane.graph.rewrite import inline_function

PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")
MOST_MODELS = 1000
MOST_LEVELS = 8

ReadModel = Callable[[Any, str, Mapping[str, tuple[int, ...]]], Graph]
"""Reads one network of a pipeline: the model, its place, shapes of its inputs."""


class PipelineReader:
    """One run over one pipeline, or over one small model by itself."""

    def __init__(self, read_model: ReadModel, where: str) -> None:
        self.read_model = read_model
        self.where = where
        self.builder = GraphBuilder(opset="ios18")
        self.values: dict[str, Value] = {}
        self.count = 0

    def run(self, model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """The whole graph."""
        needed = _wanted(model)
        for feature in model.description.input:
            self.values[feature.name] = self.input(feature, shapes)
        for name in needed:
            if name in self.values:
                raise FormatError(f"{name!r} is an input and an output", where=self.where)
            self.builder.names.take(name)
        self.stage(model, self.where, 0)
        for name in needed:
            if name not in self.values:
                raise FormatError(f"no model of the pipeline makes the output {name!r}", where=self.where)
            self.output(name)
        return self.builder.graph

    def input(self, feature: Any, shapes: Mapping[str, tuple[int, ...]]) -> Value:
        """An array, a picture [1, channels, height, width], or a number as an array of one."""
        kind = feature.type.WhichOneof("Type")
        dtype = "fp32"
        shape: tuple[int, ...] | None
        if kind in ("doubleType", "int64Type"):
            shape = (1,)
            dtype = "fp32" if kind == "doubleType" else "int32"
        else:
            shape = tuple(shapes.get(feature.name, ())) or feature_shape(feature)
            if kind == "multiArrayType":
                dtype = ARRAY_DTYPES.get(feature.type.multiArrayType.dataType, "fp32")
        if shape is None:
            raise UnsupportedError(f"input {feature.name!r} is a {kind} without a shape", where=self.where)
        return self.builder.input(feature.name, shape, "fp32" if dtype == "fp64" else dtype)

    def stage(self, model: Any, where: str, level: int) -> None:
        """One model: what it makes stands in ``values`` by the names of its outputs."""
        kind = model.WhichOneof("Type")
        self.count += 1
        if self.count > MOST_MODELS or level > MOST_LEVELS:
            raise FormatError(f"more than {MOST_MODELS} models or {MOST_LEVELS} levels", where=where)
        if kind in PIPELINES:
            inner = getattr(model, kind)
            models = (inner if kind == "pipeline" else inner.pipeline).models
            if not models:
                raise FormatError("a pipeline without models", where=where)
            for number, one in enumerate(models):
                self.stage(one, f"{where}: model {number} ({one.WhichOneof('Type')})", level + 1)
        elif kind in SMALL_MODELS:
            results = SMALL_MODELS[kind](SmallModel(model, kind, self.builder, self.given(model, where), where))
            self.values.update(results)
        elif kind in ("mlProgram", "neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor"):
            self.network(model, where)
        else:
            raise UnsupportedError(
                f"a {kind or 'model of no kind'} is no network, and hexane does not compute it", where=where,
                hint="take the networks out of the pipeline and load them one by one",
            )  # fmt: skip

    def given(self, model: Any, where: str) -> dict[str, Value]:
        """The values of a model's inputs."""
        missing = [f.name for f in model.description.input if f.name not in self.values and not f.type.isOptional]
        if missing:
            raise FormatError(f"takes {missing[0]!r}, which nothing before it makes", where=where)
        return {f.name: self.values[f.name] for f in model.description.input if f.name in self.values}

    def network(self, model: Any, where: str) -> None:
        operands = self.given(model, where)
        shapes = {
            feature.name: operands[feature.name].shape
            for feature in model.description.input
            if feature.name in operands and feature_shape(feature) != operands[feature.name].shape
            and len(feature_shape(feature) or operands[feature.name].shape) == operands[feature.name].rank
        }  # fmt: skip
        graph = self.read_model(model, where, shapes)
        bound = {}
        for value in graph.main.inputs:
            if value.name not in operands:
                raise FormatError(f"takes {value.name!r}, which nothing before it makes", where=where)
            bound[value.name] = self.fitted(operands[value.name], value, where)
        results = inline_function(self.builder.function, graph.main, bound)
        self.values.update({value.name: copy for value, copy in zip(graph.main.outputs, results)})
        if "classes" in graph.metadata:
            self.builder.graph.metadata["classes"] = graph.metadata["classes"]

    def fitted(self, value: Value, target: Value, where: str) -> Value:
        """A value as an input asks for it: another element type, or axes of one more or less."""
        type_ = target.type
        if not isinstance(type_, TensorType):
            raise UnsupportedError(f"input {target.name!r} is a {type_}", where=where, hint="states of parts")
        if value.dtype != type_.dtype:
            value = self.builder.cast(x=value, dtype=type_.dtype)
        if value.shape != type_.shape:
            if prod(value.shape) != prod(type_.shape):
                raise FormatError(f"{target.name!r} is {value.type} and is taken as {type_}", where=where)
            value = self.builder.reshape(x=value, shape=np.array(type_.shape, np.int32))
        return value

    def output(self, name: str) -> None:
        """An output of the whole; its name was set aside before any model was joined."""
        value = self.values[name]
        if value.op is None or value.is_output:
            value = self.builder.identity(x=value)
        value.name = name
        self.builder.output(value)


def _wanted(model: Any) -> list[str]:
    """The outputs of the whole: those of the description, the prediction and its probabilities among them."""
    names = [feature.name for feature in model.description.output]
    return names or [name for name in predicted_features(model) if name]
