"""Ops of ``ai.onnx.ml`` that have a meaning for tensors; the others are kept for the host as they stand."""

from __future__ import annotations

from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.registry import ML, onnx_op
from hexane.formats.operands import Operand
from hexane.graph.ir import Problem


@onnx_op("ZipMap", domain=ML)
def zip_map(c: NodeContext) -> Operand:
    """Probabilities as dictionaries from class to probability: the tensor itself, classes in their order."""
    graph = c.importer.builder.graph
    labels = c.attr("classlabels_strings", None) or c.attr("classlabels_int64s", None) or []
    graph.metadata["classes"] = [label.decode() if isinstance(label, bytes) else label for label in labels]
    graph.problems.append(Problem(f"{c.title} makes dictionaries; its probabilities stay a tensor"))
    return c.need(0)
