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
from hexane.formats.operands import Folder, Operand, type_of
from hexane.graph import Graph, GraphBuilder


class LayerContext:
    """One layer: its parameters, its operands, and the ops that it may add."""

    def __init__(self, network: NetworkReader, layer: Any, kind: str) -> None:
        self.network = network
        self.layer = layer
        self.kind = kind
        self.params = getattr(layer, kind)
        self.ops: Folder = network.folder
        self.exact = network.exact

    @property
    def title(self) -> str:
        return f"layer {self.layer.name!r} ({self.kind})"

    def __len__(self) -> int:
        return len(self.layer.input)

    def __getitem__(self, index: int) -> Operand:
        if index >= len(self.layer.input):
            raise FormatError(f"{self.title} lacks input {index}")
        name = self.layer.input[index]
        if name not in self.network.values:
            raise FormatError(f"{self.title} takes {name!r}, which nothing before it makes")
        return self.network.values[name]

    def inputs(self) -> list[Operand]:
        return [self[index] for index in range(len(self))]

    def rank(self, operand: Operand) -> int:
        return type_of(operand).rank

    def channel_axis(self, operand: Operand) -> int:
        """The axis of channels: third from behind."""
        rank = self.rank(operand)
        if rank < 3:
            raise GraphError(f"an input of rank {rank} has no channels, height and width")
        return rank - 3

    def scalar(self, value: float, operand: Operand) -> np.ndarray:
        return np.array(value, type_of(operand).carrier)

    def weight(self, params: Any, shape: tuple[int, ...]) -> np.ndarray:
        """A ``WeightParams`` as float32 values."""
        return read_weight(params, shape, self.title)


def read_weight(params: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Values of a ``WeightParams`` message: float32, float16, or quantised to 1 to 8 bits (linear, or by a table)."""
    count = prod(shape)
    if params.floatValue:
        values = np.array(params.floatValue, np.float32)
    elif params.float16Value:
        if len(params.float16Value) % 2:
            raise FormatError("an odd number of bytes of float16 weights", where=where)
        values = np.frombuffer(params.float16Value, "<f2").astype(np.float32)
    elif params.rawValue:
        values = _quantised(params, count, shape, where)
    elif params.int8RawValue:
        raise UnsupportedError("weights for dynamic quantisation", where=where)
    else:
        values = np.zeros(0, np.float32)
    if values.size != count:
        raise FormatError(f"{values.size} weights where {list(shape)} needs {count}", where=where)
    return values.reshape(shape)


def _quantised(params: Any, count: int, shape: tuple[int, ...], where: str) -> np.ndarray:
    bits = params.quantization.numberOfBits
    if not 1 <= bits <= 8 or len(params.rawValue) != (count * bits + 7) // 8:
        raise FormatError(f"{len(params.rawValue)} bytes of {bits}-bit weights for {count} values", where=where)
    raw = np.frombuffer(params.rawValue, np.uint8)
    stream = np.unpackbits(raw)[: count * bits].reshape(count, bits)
    indices = stream @ (1 << np.arange(bits - 1, -1, -1))
    if params.quantization.WhichOneof("QuantizationType") == "lookupTableQuantization":
        table = np.array(params.quantization.lookupTableQuantization.floatValue, np.float32)
        if len(table) != 1 << bits:
            raise FormatError(f"a table of {len(table)} for {bits} bits", where=where)
        return table[indices]
    linear = params.quantization.linearQuantization
    scale, bias = np.array(linear.scale, np.float32), np.array(linear.bias, np.float32)
    bias = bias if bias.size else np.zeros(1, np.float32)
    rows = indices.reshape(shape[0] if scale.size > 1 else 1, -1).astype(np.float32)
    if scale.size not in (1, rows.shape[0]) or bias.size not in (1, rows.shape[0]):
        raise FormatError(f"{scale.size} scales for {shape[0]} outputs", where=where)
    return (rows * scale[:, None] + bias[:, None]).reshape(-1)


class NetworkReader:
    """One run over one network."""

    def __init__(self, model: Any, where: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.model = model
        self.where = where
        self.shapes = shapes
        self.network = getattr(model, model.WhichOneof("Type"))
        self.exact = self.network.arrayInputShapeMapping == 1
        self.builder = GraphBuilder(opset="ios15")
        self.folder = Folder(self.builder)
        self.values: dict[str, Operand] = {}

    def run(self) -> Graph:
        """The whole graph."""
        from hexane.formats.coreml.layers import LAYERS

        outputs = [feature.name for feature in self.model.description.output if self.is_array(feature)]
        for name in outputs:
            self.builder.names.take(name)
        for feature in self.model.description.input:
            self.values[feature.name] = self.input(feature)
        refused = []
        for layer in self.network.layers:
            kind = layer.WhichOneof("layer")
            if kind is None or kind not in LAYERS:
                refused.append(f"layer {layer.name!r} is a {kind or 'layer of no kind'}")
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
        if not self.builder.function.outputs:
            raise FormatError("no output of the model is made by a layer", where=self.where)
        return self.builder.graph

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
            plain = shape[1:] if shape[0] == 1 else shape
            wanted = declared if declared is not None and prod(declared) == prod(shape) else plain
            if tuple(wanted) != shape:
                value = self.builder.reshape(x=value, shape=np.array(wanted, np.int32))
        if value.op is None or value.is_output:
            value = self.builder.identity(x=value)
        value.name = feature.name
        self.builder.output(value)


def read_network(model: Any, where: str, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """A classic neural network (or a classifier's network) as a graph."""
    return NetworkReader(model, where, shapes).run()
