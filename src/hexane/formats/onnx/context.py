"""A node as its translator sees it: operands, attributes, the op set, what the file declares of the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.compositions import Composer, Refused
from hexane.formats.operands import Operand, type_of
from hexane.graph import Value
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.formats.onnx.importer import Importer, Scope

REQUIRED: Any = object()


class Endless(UnsupportedError):
    """A node that nobody shall run."""


class NodeContext(Composer):
    """One node on its way into the graph.

    ``c[i]`` is input i (a Value, an array, or None where it is left out), ``c.attr(name, default)`` an attribute,
    ``c.ops.<op>(...)`` adds a MIL or host op (or computes it, when all its operands are constant).
    """

    def __init__(self, importer: Importer, scope: Scope, node: Any, version: int) -> None:
        self.importer = importer
        self.scope = scope
        self.node = node
        self.version = version
        self.ops = importer.folder
        self._attributes = {attribute.name: attribute for attribute in node.attribute}

    @property
    def title(self) -> str:
        """The node as messages name it."""
        name = self.node.name or next((output for output in self.node.output if output), "")
        return f"{self.node.op_type} {name!r}"

    # ------------------------------------------------------------------------------------------------- operands

    def __len__(self) -> int:
        return len(self.node.input)

    def __getitem__(self, index: int) -> Any:
        """Input ``index``, or None where the node leaves it out."""
        if index >= len(self.node.input) or not self.node.input[index]:
            return None
        return self.scope.get(self.node.input[index], self)

    def need(self, index: int) -> Operand:
        """Input ``index``, which must be a tensor."""
        operand = self[index]
        if operand is None:
            raise GraphError(f"{self.title} lacks input {index}")
        if isinstance(operand, list):
            raise Refused("its input is a sequence")
        return operand

    def inputs(self) -> list[Operand]:
        """All inputs, none of which may be left out."""
        return [self.need(index) for index in range(len(self.node.input))]

    @property
    def takes_text(self) -> bool:
        """True where an input is text; one that is not known, or a sequence, is none."""
        tensors = (self.scope.seen(name) for name in self.node.input if name)
        return any(isinstance(t, (Value, np.ndarray)) and type_of(t).dtype == "string" for t in tensors)

    def has(self, index: int) -> bool:
        return index < len(self.node.input) and bool(self.node.input[index])

    def constant(self, index: int) -> np.ndarray | None:
        """Input ``index`` as an array; None where it is left out; Refused where it is computed at run time."""
        operand = self[index]
        if operand is None or isinstance(operand, np.ndarray):
            return operand
        if isinstance(operand, Value) and operand.is_constant:
            return operand.data
        raise Refused(f"input {index} ({self.input_name(index)}) is computed at run time, and must be a constant")

    def need_constant(self, index: int) -> np.ndarray:
        """Input ``index`` as an array; it must be there, and known now."""
        array = self.constant(index)
        if array is None:
            raise GraphError(f"{self.title} lacks input {index}")
        return array

    def is_constant(self, index: int) -> bool:
        """True where input ``index`` is left out or known now."""
        operand = self[index]
        return (
            operand is None or isinstance(operand, np.ndarray) or (isinstance(operand, Value) and operand.is_constant)
        )

    def ints(self, index: int) -> list[int] | None:
        """A constant input as Python ints."""
        array = self.constant(index)
        return None if array is None else [int(item) for item in array.reshape(-1).tolist()]

    def input_name(self, index: int) -> str:
        return self.node.input[index]

    # ----------------------------------------------------------------------------------------------- attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as int, float, str, list, array or graph; ``default`` where it is absent."""
        attribute = self._attributes.get(name)
        if attribute is None:
            if default is REQUIRED:
                raise GraphError(f"{self.title} lacks the attribute {name}")
            return default
        if attribute.ref_attr_name:
            raise Refused(f"the attribute {name} refers to a function's parameter")
        kind = attribute.type
        if kind == attribute.FLOAT:
            return float(attribute.f)
        if kind == attribute.INT:
            return int(attribute.i)
        if kind == attribute.STRING:
            return attribute.s.decode("utf-8", "replace")
        if kind == attribute.TENSOR:
            return self.importer.tensor(attribute.t)
        if kind == attribute.GRAPH:
            return attribute.g
        if kind == attribute.FLOATS:
            return [float(item) for item in attribute.floats]
        if kind == attribute.INTS:
            return [int(item) for item in attribute.ints]
        if kind == attribute.STRINGS:
            return [item.decode("utf-8", "replace") for item in attribute.strings]
        raise Refused(f"the attribute {name} has a type that hexane does not read")

    def has_attr(self, name: str) -> bool:
        return name in self._attributes

    def axes_input(self, index: int, name: str = "axes") -> list[int] | None:
        """Axes that older op sets give as an attribute and newer ones as a constant input."""
        if self.has_attr(name):
            return self.attr(name)
        return self.ints(index)

    # -------------------------------------------------------------------------------------------------- results

    def wants(self, index: int) -> bool:
        """True where the node names (and so may use) result ``index``."""
        return index < len(self.node.output) and bool(self.node.output[index])

    def declared(self, index: int = 0) -> TensorType | None:
        """Type of result ``index`` by the file or ONNX's inference: None unless type and shape are known."""
        if index >= len(self.node.output):
            return None
        return self.importer.declared.get(self.node.output[index])

    def declared_shape(self, what: str, index: int = 0) -> tuple[int, ...]:
        """The declared shape of a result; Refused where it depends on the run-time value of ``what``."""
        type_ = self.declared(index)
        if type_ is None:
            raise Refused(f"the result's shape depends on {what}, which is computed at run time; the graph is static")
        return type_.shape

    def at_run_time(self, op: str, what: str, **operands: Any) -> Any:
        """A host op whose parameters arrive when it runs: its result has the shape that the file declares.

        Refused where the file declares none, since it depends on the run-time value of ``what``.
        """
        return self.ops.op(f"onnx.{op}", output_shape=self.declared_shape(what), **operands)
