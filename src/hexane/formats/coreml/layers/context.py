"""One layer of a classic network while it is translated, and its weights."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import FormatError, GraphError, UnsupportedError
from hexane.formats.compositions import Composer
from hexane.formats.operands import Operand

if TYPE_CHECKING:
    from hexane.formats.coreml.network import NetworkReader


class LayerContext(Composer):
    """One layer: its parameters, its operands, and the ops that it may add."""

    def __init__(self, network: NetworkReader, layer: Any, kind: str) -> None:
        self.network = network
        self.layer = layer
        self.kind = kind
        self.params = getattr(layer, kind)
        self.ops = network.folder
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

    def channel_axis(self, operand: Operand) -> int:
        """The axis of channels: third from behind."""
        rank = self.rank(operand)
        if rank < 3:
            raise GraphError(f"an input of rank {rank} has no channels, height and width")
        return rank - 3

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
