"""A graph as an ONNX model of op set 21; compressed weights stay as small as ONNX can hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hexane.errors import GraphError, UnsupportedError
from hexane.files import write_whole
from hexane.formats.onnx import write_elements, write_layers, write_weights  # noqa: F401  (their rules)
from hexane.formats.onnx.writing import IR_VERSION, OPSET, RULES, Writing, refused
from hexane.graph import Graph

LARGEST = (1 << 31) - 1
"""Bytes of the largest protobuf."""


def to_model(graph: Graph) -> tuple[Any, list[str]]:
    """The model (``onnx.ModelProto``), and in sentences what it holds otherwise than the graph does.

    Raises UnsupportedError, naming the op, where ONNX does not say what the graph does (control flow, states, lists,
    recurrent ops, some samplings), and for networks of more than 2 GiB.
    """
    writing = Writing()
    function = graph.main
    inputs = [writing.tensor(value) for value in function.inputs]
    for op in function.ops:
        rule = RULES.get(op.type)
        if rule is None or op.blocks:
            raise refused(op, f"there is no rule for {op.type}")
        try:
            rule(writing, op)
        except GraphError as error:
            raise refused(op, error.message) from None
    outputs = []
    for value in function.outputs:
        if value.is_constant or value in function.inputs:  # ONNX wants a node's result
            name = writing.node("Identity", [writing.name(value)])
            outputs.append(writing.onnx.helper.make_tensor_value_info(name, writing.type_of(value.dtype), value.shape))
        else:
            outputs.append(writing.tensor(value))
    if sum(len(tensor.raw_data) for tensor in writing.initializers) > LARGEST:
        raise UnsupportedError(
            "the weights take more than 2 GiB, which an ONNX file does not hold", hint="write .mlpackage"
        )
    helper = writing.onnx.helper
    onnx_graph = helper.make_graph(writing.nodes, function.name, inputs, outputs, initializer=writing.initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(onnx_graph, producer_name="hexane", ir_version=IR_VERSION, opset_imports=opsets)
    return model, [f"{count} x {text}" if count > 1 else text for text, count in writing.notes.items()]


def save(graph: Graph, path: str | Path) -> list[str]:
    """Write a graph to an ``.onnx`` file; what `to_model` says of it."""
    model, notes = to_model(graph)
    write_whole(path, model.SerializeToString())
    return notes
