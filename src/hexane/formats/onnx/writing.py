"""Parts that the rules that write ONNX share: a model under construction, and the table of rules by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.errors import Reason, UnsupportedError
from hexane.formats.onnx.file import import_onnx
from hexane.graph import Op, Value
from hexane.graph.parts import Names
from hexane.graph.types import DTYPES, TensorType

OPSET = 21
"""The first op set with integers of 4 bits and scales by block."""
IR_VERSION = 10

_TYPES = {
    "fp16": "FLOAT16", "fp32": "FLOAT", "fp64": "DOUBLE", "bool": "BOOL", "int8": "INT8", "uint8": "UINT8",
    "int16": "INT16", "uint16": "UINT16", "int32": "INT32", "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64",
    "int4": "INT4", "uint4": "UINT4", "bf16": "BFLOAT16",
}  # fmt: skip

Rule = Callable[["Writing", Op], None]
RULES: dict[str, Rule] = {}
"""How each op of a graph is written; a function writes nodes that end in the op's results."""


def writes(*types: str) -> Callable[[Rule], Rule]:
    """Declare how ops of these types are written."""

    def declare(rule: Rule) -> Rule:
        for type_ in types:
            RULES[type_] = rule
        return rule

    return declare


def refused(op: Op, why: str) -> UnsupportedError:
    """Error for an op that ONNX does not say, with the op's name."""
    return UnsupportedError(
        f"is not written to ONNX: {why}", where=op.describe(), hint="write .mlpackage or .mil", code=Reason.OPERATION
    )


class Writing:
    """Nodes and initializers of one model, in the order in which they are written.

    ``notes`` says what ONNX holds otherwise than the graph does.
    """

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.notes: dict[str, int] = {}
        self._constants: dict[int, str] = {}
        self.unique = Names(first=2).unique
        self._names: dict[int, str] = {}
        self._kept: list[Value] = []

    def note(self, text: str) -> None:
        """Count something that is worth a sentence."""
        self.notes[text] = self.notes.get(text, 0) + 1

    def name(self, value: Value) -> str:
        """The name of a value; a constant becomes an initializer at the first call."""
        if value.is_constant:
            if id(value) not in self._constants:
                self._constants[id(value)] = self.constant(np.asarray(value.data), value.dtype, value.name)
                self._kept.append(value)
            return self._constants[id(value)]
        if id(value) not in self._names:
            self._names[id(value)] = self.unique(value.name)
            self._kept.append(value)
        return self._names[id(value)]

    def type_of(self, dtype: str) -> int:
        """ONNX's number of a dtype; UnsupportedError where it has none."""
        if dtype not in _TYPES:
            raise UnsupportedError(f"values of dtype {dtype} are not written to ONNX", hint="write .mlpackage or .mil")
        return int(getattr(self.onnx.TensorProto, _TYPES[dtype]))

    def constant(self, array: np.ndarray, dtype: str, name: str = "constant") -> str:
        """An initializer."""
        name = self.unique(name)
        tensor = self.onnx.TensorProto(name=name, data_type=self.type_of(dtype), dims=array.shape)
        if DTYPES[dtype].bits == 4:
            flat = array.reshape(-1).astype(np.uint8) & 15
            flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
            tensor.raw_data = (flat[::2] | flat[1::2] << 4).tobytes()
        else:
            carrier = np.dtype(DTYPES[dtype].carrier).newbyteorder("<")
            tensor.raw_data = np.ascontiguousarray(array).astype(carrier, copy=False).tobytes()
        self.initializers.append(tensor)
        return name

    def cast(self, value: Value, dtype: str) -> str:
        """The name of a value in a dtype, behind a Cast where it has another."""
        return (
            self.name(value) if value.dtype == dtype else self.node("Cast", [self.name(value)], to=self.type_of(dtype))
        )

    def integers(self, numbers: Sequence[int]) -> str:
        """A vector of int64, as shapes and axes are given."""
        return self.constant(np.array(numbers, np.int64), "int64", "numbers")

    def number(self, value: float, dtype: str) -> str:
        """A scalar; UnsupportedError where the dtype does not hold it."""
        kind = np.dtype(DTYPES[dtype].carrier)
        if kind.kind in "iu" and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            raise UnsupportedError(
                f"ONNX wants {value:g} as a number of dtype {dtype}", hint="write .mlpackage or .mil"
            )
        return self.constant(np.asarray(value, DTYPES[dtype].carrier), dtype, "number")

    def node(
        self, kind: str, inputs: Sequence[str], output: str | Value | Sequence[str] | None = None, **more: Any
    ) -> str:
        """One node; its result's name. ``output``: a value or name to write, a new name where it is None."""
        if isinstance(output, Value):
            output = self.name(output)
        names = (
            [self.unique(f"{kind.lower()}_out")] if output is None else [output] if isinstance(output, str) else output
        )
        attributes = {key: value for key, value in more.items() if value is not None}
        none = [key for key, value in attributes.items() if isinstance(value, (list, tuple)) and not value]
        node = self.onnx.helper.make_node(
            kind, list(inputs), list(names), **{key: value for key, value in attributes.items() if key not in none}
        )
        for key in none:  # such as the order of the axes of a scalar
            node.attribute.add(name=key, type=self.onnx.AttributeProto.INTS)
        self.nodes.append(node)
        return str(names[0])

    def tensor(self, value: Value) -> Any:
        """An input or output of the model; UnsupportedError for anything but a tensor."""
        if not isinstance(value.type, TensorType):
            raise UnsupportedError(
                f"{value.name!r} is a {value.type}: ONNX has no states", hint="write .mlpackage or .mil"
            )
        return self.onnx.helper.make_tensor_value_info(self.name(value), self.type_of(value.dtype), list(value.shape))
