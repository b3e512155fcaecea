"""Nodes that hexane cannot translate, kept as they stand: host ops that onnxruntime runs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UnsupportedError
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.file import import_onnx
from hexane.formats.onnx.order import outer_names
from hexane.formats.onnx.registry import domain_of
from hexane.formats.operands import type_of
from hexane.graph.ops.onnx_foreign import RUNTIME_DTYPES, run_node, session_of, types_text
from hexane.graph.types import TensorType, dtype_name

NARROW = frozenset(range(17, 27))
"""ONNX's codes of float8, float4 and whole numbers below a byte, which the graph carries wider."""
MAX_BYTES = 1 << 20
"""Largest node (attributes and inner graphs) that is kept so."""
_INPUT = "input of the node "
"""What the inputs of a node by itself are called, before their number; nothing in its inner graphs is."""
RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
_ELEMENTS = {dtype: name[len("tensor(") : -1].upper() for name, dtype in RUNTIME_DTYPES.items()}


def keep_foreign(c: NodeContext, declared: dict[str, TensorType], *, must_run: bool) -> tuple[Any, ...]:
    """The results of a node as a host op.

    ``must_run``: an op that hexane knows in other forms, kept only where onnxruntime takes the node and says the shapes
    of its results. UnsupportedError where the types of its results are not known, where their shapes depend on values,
    and for random ops, whose results nobody could compare.
    """
    if c.node.op_type in RANDOM:
        raise UnsupportedError("its results are random")
    node, names = c.node, [name for name in c.node.output if name]
    graph = c.importer.model.graph
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.name in (*names, *node.input) and value.type.tensor_type.elem_type in NARROW:
            raise UnsupportedError(f"{value.name!r} has 8 bits or less, which onnxruntime would get as another type")
    operands = [c.need(index) for index in range(len(node.input)) if node.input[index]]
    captured = [name for name in dict.fromkeys(outer_names(node)) if name]
    operands += [c.scope.get(name, c) for name in captured]
    kind = f"{node.domain}.{node.op_type}" if domain_of(node.domain) else str(node.op_type)
    text = _single(c, operands, captured)
    if must_run:
        for entry in session_of(text, kind).get_outputs():
            if entry.type not in RUNTIME_DTYPES:
                raise UnsupportedError(f"its result {entry.name!r} is a {entry.type}, which onnxruntime gives as bits")
    types = _types(names, declared, text, kind, () if must_run else operands)
    results = c.ops.op("onnx.Foreign", values=tuple(operands), kind=kind, model=text, types=types_text(types))
    remaining = iter(results if isinstance(results, tuple) else (results,))
    return tuple(next(remaining) if name else None for name in node.output)


def _single(c: NodeContext, operands: list[Any], captured: list[str]) -> str:
    """The node as a model of its own, in text: inputs are the node's, then what its inner graphs take from outside."""
    onnx = import_onnx()
    helper = onnx.helper
    node = onnx.NodeProto()
    node.CopyFrom(c.node)
    names = [name for name in c.node.input if name]
    places = [f"{_INPUT}{place}" for place in range(len(names))]
    node.input[:] = [places.pop(0) if name else "" for name in c.node.input]
    infos = []
    for name, inner, operand in zip((*names, *captured), (*filter(None, node.input), *captured), operands):
        type_ = type_of(operand)
        if type_.dtype not in _ELEMENTS or not type_.is_static:
            raise UnsupportedError(f"its input {name!r} is a {type_}")
        element = getattr(onnx.TensorProto, _ELEMENTS[type_.dtype])
        infos.append(helper.make_tensor_value_info(inner, element, type_.shape))
    outputs = [onnx.ValueInfoProto(name=name) for name in c.node.output if name]
    versions = [helper.make_opsetid(domain, version) for domain, version in c.importer.versions.items()]
    graph = helper.make_graph([node], "node", infos, outputs)
    model = helper.make_model(graph, opset_imports=versions, ir_version=min(c.importer.model.ir_version or 8, 10))
    data = model.SerializeToString()
    if len(data) > MAX_BYTES:
        raise UnsupportedError(f"it has {len(data)} bytes of attributes")
    return base64.b64encode(data).decode()


def _types(
    names: list[str], declared: dict[str, TensorType], text: str, kind: str, operands: Sequence[Any]
) -> list[TensorType]:
    """The types of the results: as the file declares them, as onnxruntime infers them, else as a trial shows them."""
    if names and all(name in declared for name in names):
        return [declared[name] for name in names]
    session = session_of(text, kind)
    types = []
    for entry in session.get_outputs():
        if entry.type not in RUNTIME_DTYPES:
            raise UnsupportedError(f"its result {entry.name!r} is a {entry.type}, not a tensor")
        if not all(isinstance(extent, int) for extent in entry.shape or [None]):
            return _probed(text, kind, operands)
        types.append(TensorType(RUNTIME_DTYPES[entry.type], tuple(entry.shape)))
    return types


def _probed(text: str, kind: str, operands: Sequence[Any]) -> list[TensorType]:
    """The types that the node gives for ones and for twos and threes, where both agree."""
    if not operands:
        raise UnsupportedError("the shapes of its results depend on values that are not constant")
    tried = []
    for value_of in (_ones, _twos_and_threes):
        values = tuple(value if isinstance(value, np.ndarray) else value_of(type_of(value)) for value in operands)
        try:
            arrays = run_node(text, kind, values)
        except HexaneError as error:
            raise UnsupportedError(f"the types of its results are not known ({error.message})") from None
        tried.append([TensorType("string" if a.dtype.kind in "UO" else dtype_name(a.dtype), a.shape) for a in arrays])
    if tried[0] != tried[1]:
        raise UnsupportedError("the shapes of its results depend on values that are not constant")
    return tried[0]


def _ones(type_: TensorType) -> np.ndarray:
    return np.ones(type_.shape, type_.carrier)


def _twos_and_threes(type_: TensorType) -> np.ndarray:
    return (2 + np.arange(type_.count) % 2).reshape(type_.shape).astype(type_.carrier)
