"""Shapes that follow from results.

Where inference stops at a value that is computed, the file's own declarations of what comes after often say the rest.

A reduction over axes that arrive at run time has no shape of its own; if its square root is an output of shape [3, 1],
it has that shape. An op that takes such a shape checks it when it runs.
"""

from __future__ import annotations

from typing import Any

from hexane.formats.onnx.file import import_onnx
from hexane.formats.onnx.same import BINARY, UNARY
from hexane.graph.types import TensorType, dtype_name

SAME = frozenset(UNARY) | frozenset(
    """Cast CastLike Celu Clip Elu HardSigmoid HardSwish Identity IsInf LeakyRelu LogSoftmax Mish Neg Reciprocal Selu
    Softmax Log ThresholdedRelu""".split()
)
"""Ops whose first input has the shape of the result."""

BROADCAST = frozenset(BINARY) | {"Mod", "Pow"}
"""Ops of two operands that broadcast."""


def extend_backward(model: Any, declared: dict[str, TensorType]) -> None:
    """Add to ``declared`` the static types of values of the main graph that follow from results.

    One symbol stands for one extent: where a result tells it, every value that has the symbol is told.
    """
    values = _declared_shapes(model)
    elements = _elements(model)
    shapes: dict[str, tuple[int, ...]] = {name: type_.shape for name, type_ in declared.items()}
    for name, extents in values.items():
        whole = tuple(extent for extent in extents if isinstance(extent, int))
        if len(whole) == len(extents):
            shapes.setdefault(name, whole)
    for tensor in model.graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
    symbols: dict[str, int] = {}

    def learn(name: str, shape: tuple[int, ...]) -> None:
        if name not in elements or name in shapes:
            return
        shapes[name] = shape
        declared[name] = TensorType(elements[name], shape)
        for symbol, extent in zip(values.get(name, ()), shape):
            if isinstance(symbol, str):
                symbols.setdefault(symbol, extent)

    for node in reversed(model.graph.node):
        for name in node.output:
            extents = values.get(name, (None,))
            numbers = tuple(number for e in extents if isinstance(number := symbols.get(e, e), int))  # type: ignore[arg-type]
            if len(numbers) == len(extents):
                learn(name, numbers)
        result = shapes.get(node.output[0]) if node.output else None
        if result is not None and node.domain in ("", "ai.onnx"):
            for name in _of_shape(node, result, shapes):
                learn(name, result)


def _declared_shapes(model: Any) -> dict[str, tuple[int | str | None, ...]]:
    """Extents of values of the main graph: numbers, symbols, or None."""
    declared_shapes: dict[str, tuple[int | str | None, ...]] = {}
    for value in [*model.graph.input, *model.graph.value_info]:
        tensor = value.type.tensor_type
        if value.type.WhichOneof("value") == "tensor_type" and tensor.HasField("shape"):
            declared_shapes[value.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
                for dim in tensor.shape.dim
            )
    return declared_shapes


def _of_shape(node: Any, result: tuple[int, ...], shapes: dict[str, tuple[int, ...]]) -> list[str]:
    """The inputs of a node that must have its result's shape."""
    if node.op_type in SAME and node.input:
        return [node.input[0]]
    if node.op_type in BROADCAST and len(node.input) == 2:
        a, b = node.input
        if a == b:
            return [a]
        return [x for x, other in ((a, b), (b, a)) if _is_neutral(shapes.get(other), result)]
    return []


def _is_neutral(other: tuple[int, ...] | None, result: tuple[int, ...]) -> bool:
    """True where broadcasting with ``other`` leaves any shape but the result's impossible."""
    if other is None or any(extent != 1 for extent in other):
        return False
    return len(other) < len(result) or not other or result[0] != 1


def _elements(model: Any) -> dict[str, str]:
    """Element types of values whose shapes are not known."""
    onnx = import_onnx()
    elements = {}
    for value in model.graph.value_info:
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        except (KeyError, TypeError, ValueError):
            continue
        if dtype.kind in "fiub" and not dtype.name.startswith("bfloat"):
            elements[value.name] = dtype_name(dtype)
    return elements
