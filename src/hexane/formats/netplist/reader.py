"""A ``net.plist`` to a graph."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexane.errors import FormatError, GraphError, UnsupportedError
from hexane.formats.netplist.fields import DTYPES, Fields, NetplistWeights
from hexane.formats.netplist.layers import LAYERS, NetplistLayer
from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Graph, Value

SIZE_LIMIT = 64 << 20

_LAYOUT = tuple(
    side + field
    for side in ("Input", "Output")
    for field in ("BatchStride", "DepthStride", "PlaneStride", "RowStride", "Interleave")
)
"""Where a surface lies in memory: kept in the metadata, no part of what the network computes."""


def load(path: str | Path, *, weights: Mapping[str, Any] | None = None) -> Graph:
    """The network of a ``net.plist``; see ``parse_netplist``."""
    path = Path(path)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise FormatError(f"{path.stat().st_size} bytes", where=str(path), hint=f"the limit is {SIZE_LIMIT}")
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return parse_netplist(data, weights, name=path.name, folder=path.parent)


def parse_netplist(
    data: bytes, weights: Mapping[str, Any] | None = None, *, name: str = "net.plist", folder: Path | None = None
) -> Graph:
    """A graph from the bytes of a plist (XML or binary).

    Inputs and outputs keep their names and order (``probs@output`` is an output's name); an op's ``name`` is its
    layer's. The whole network stands in ``graph.metadata["network"]`` for whoever needs its strides, order or types.
    Weight files: see ``WeightFiles``. FormatError for a broken file (a cycle, a missing layer, data outside a file),
    UnsupportedError for units and parameters that hexane does not read, with the unit's name.
    """
    try:
        content = plistlib.loads(data)
    except RecursionError:
        raise FormatError("nests too deeply", where=name) from None
    except MemoryError:
        raise FormatError("asks for more memory than there is", where=name) from None
    except Exception as error:  # plistlib lets errors of expat, struct, datetime and others through
        raise FormatError(f"is no property list: {str(error) or type(error).__name__}", where=name) from None
    top = Fields(content, name)
    networks = top.names("Networks")
    if len(networks) != 1:
        raise UnsupportedError(f"{len(networks)} networks in one file", where=name, hint="one is read")
    if not isinstance(content.get(networks[0]), Mapping):
        raise FormatError(f"the network {networks[0]!r} is missing", where=name)
    net = Fields(content[networks[0]], name)
    return _Network(net, networks[0], str(content.get("Version", "")), weights, folder).read()


class _Network:
    def __init__(self, net: Fields, name: str, version: str, weights: Any, folder: Path | None) -> None:
        self.net = net
        self.name = name
        self.version = version
        self.inputs = self._distinct("Inputs")
        self.units = self._distinct("Units")
        self.outputs = self._distinct("Outputs")
        paths = net.names("Weights") if "Weights" in net else []
        self.weights = NetplistWeights(paths, weights, folder)
        self.builder = GraphBuilder()
        self.values: dict[str, Value] = {}

    def _distinct(self, key: str) -> list[str]:
        names = self.net.names(key)
        if len(set(names)) != len(names):
            raise FormatError(f"{key} names something twice", where=self.net.where)
        return names

    def entry(self, name: str) -> Fields:
        if name not in self.net.content:
            raise FormatError(f"{name!r} is named and not described", where=self.net.where)
        return Fields(self.net.content[name], f"{self.net.where}, {name}")

    def read(self) -> Graph:
        self.rank = self._rank()
        for name in self.inputs:
            self._input(name)
        for name in self._ordered():
            try:
                self._unit(name)
            except GraphError as error:
                raise FormatError(error.message, where=f"{self.net.where}, {name}", hint=error.hint) from None
        returned = [self._output(name) for name in self.outputs]
        self.builder.output(*returned)
        graph = self.builder.graph
        graph.metadata.update(
            format="netplist",
            name=self.name,
            version=self.version,
            inputs=list(self.inputs),
            outputs=list(self.outputs),
            units=list(self.units),
            weights=list(self.weights.paths),
            network=dict(self.net.content),
        )
        return graph

    def _rank(self) -> int:
        """5 where any depth above 1 occurs, else 4."""
        for name in self.inputs:
            if self.entry(name).count("InputDepth", 1) > 1:
                return 5
        for name in self.units:
            params = self.entry(name).inner("Params")
            if params.count("ReshapedDepth", 1) > 1 or params.count("KernelDepth", 1) > 1:
                return 5
            for info in params.get("BroadcastInfo", list, []):
                if isinstance(info, Mapping) and info.get("Dimension") == "Depth" and info.get("Size") != 1:
                    return 5
        return 4

    def _input(self, name: str) -> None:
        fields = self.entry(name)
        extents = [
            fields.count("BatchSize", 1),
            fields.count("InputChannels"),
            fields.count("InputDepth", 1),
            fields.count("InputHeight", 1),
            fields.count("InputWidth", 1),
        ]
        if self.rank == 4:
            del extents[2]
        kind = fields.get("InputType", str, "Float16")
        if kind not in DTYPES:
            raise UnsupportedError(f"InputType {kind!r}", where=fields.where, hint=", ".join(DTYPES))
        fields.ignore(*_LAYOUT, "Name", "UnescapedName").done()
        try:
            value = self.builder.input(name, tuple(extents), DTYPES[kind])
        except GraphError as error:
            raise FormatError(error.message, where=fields.where, hint=error.hint) from None
        self.values[name] = self._widened(value)

    def _widened(self, value: Value) -> Value:
        """Every unit computes in float16; bytes count as whole numbers."""
        if value.dtype in ("uint8", "int8"):
            return self.builder.dequantize(input=value, scale=self.builder.const(1.0, "fp16", name="one"))
        if value.dtype == "fp32":
            return self.builder.cast(x=value, dtype="fp16")
        return value

    def _ordered(self) -> list[str]:
        """Units in an order in which operands come first; FormatError for a cycle."""
        inputs = set(self.inputs)
        needs: dict[str, list[str]] = {}
        for name in self.units:
            if name in inputs:
                raise FormatError(f"{name!r} is an input and a unit", where=self.net.where)
            needs[name] = self.entry(name).names("Bottom")
        order: list[str] = []
        state: dict[str, int] = {}
        for root in self.units:
            stack = [(root, iter(needs[root]))] if root not in state else []
            state.setdefault(root, 1)
            while stack:
                name, rest = stack[-1]
                for operand in rest:
                    if operand in inputs or state.get(operand) == 2:
                        continue
                    if operand not in needs:
                        raise FormatError(f"Bottom {operand!r} is nothing known", where=f"{self.net.where}, {name}")
                    if state.get(operand) == 1:
                        raise FormatError(f"{operand!r} depends on itself", where=self.net.where)
                    state[operand] = 1
                    stack.append((operand, iter(needs[operand])))
                    break
                else:
                    state[name] = 2
                    order.append(name)
                    stack.pop()
        return order

    def _unit(self, name: str) -> None:
        fields = self.entry(name)
        kind = fields.get("Type", str)
        rule = LAYERS.get(kind)
        if rule is None:
            raise UnsupportedError(f"a unit of type {kind!r}", where=fields.where, hint=f"read are {', '.join(LAYERS)}")
        operands = [self.values[operand] for operand in fields.names("Bottom")]
        layer = NetplistLayer(fields, operands, self.builder, self.weights, self.rank)
        value = rule(layer)
        layer.params.done()
        channels = fields.count("OutputChannels", value.shape[1])
        if channels != value.shape[1]:
            raise FormatError(f"OutputChannels is {channels}, the unit gives {value.shape[1]}", where=fields.where)
        out = fields.get("OutputType", str, "Float16")
        fields.ignore(*_LAYOUT, "Name", "UnescapedName", "UnescapedBottom", "Attributes").done()
        self.values[name] = self._narrowed(self._named(value, name), out, fields.where)

    def _named(self, value: Value, name: str) -> Value:
        """The unit's last op and its result carry the unit's name."""
        assert value.op is not None
        value.op.name = name
        if name not in self.builder.names:
            self.builder.names.take(name)
            value.name = name
        return value

    def _narrowed(self, value: Value, kind: str, where: str) -> Value:
        """Result of a unit with a narrow OutputType: rounded and clipped to whole numbers."""
        if kind == "Float16":
            return value
        if kind in ("UInt8", "Int8"):
            one = self.builder.const(1.0, "fp16", name="one")
            narrow = self.builder.quantize(input=value, scale=one, output_dtype=DTYPES[kind])
            return self._widened(narrow)
        raise UnsupportedError(f"OutputType {kind!r}", where=where, hint="Float16, UInt8 and Int8 are read")

    def _output(self, name: str) -> Value:
        fields = self.entry(name)
        (bottom,) = fields.names("Bottom") if len(fields.names("Bottom")) == 1 else [""]
        if bottom not in self.values:
            raise FormatError(f"Bottom {bottom!r} is nothing known", where=fields.where)
        value = self.values[bottom]
        if value.op is not None and value.op.type == "dequantize":  # what leaves the network is the narrow value
            value = value.op.inputs["input"]
        kind = fields.get("OutputType", str, "")
        if kind and DTYPES.get(kind) != value.dtype:
            if kind == "Float32":
                value = self.builder.cast(x=value, dtype="fp32")
            else:
                raise UnsupportedError(f"OutputType {kind!r} of a {value.dtype} value", where=fields.where)
        fields.ignore(*_LAYOUT, "Name", "UnescapedName", "UnescapedBottom").done()
        shared = any(name != other and self.values.get("\0" + other) is value for other in self.outputs)
        if value.op is None or shared:
            value = self.builder.identity(x=value)
        value.name = name
        self.builder.names.take(name)
        self.values["\0" + name] = value
        return value
