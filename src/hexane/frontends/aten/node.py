"""A node as its translator sees it: operands by the schema's names, the results that PyTorch itself declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.formats.compositions import Composer, Refused, axis_in
from hexane.formats.operands import Folder, Operand
from hexane.graph.types import TensorType

DTYPES = {
    "float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "fp32", "bool": "bool", "uint8": "uint8",
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
}  # fmt: skip
"""PyTorch's element types and those of the graph; bfloat16 is carried as fp32."""

Translator = Callable[["AtenNode"], Any]
TRANSLATORS: dict[str, Translator] = {}
"""Name of an operator with its overload (``add.Tensor``) -> its translation."""


def aten(*names: str) -> Callable[[Translator], Translator]:
    """Register a translation under these names."""

    def register(function: Translator) -> Translator:
        for name in names:
            assert name not in TRANSLATORS, name
            TRANSLATORS[name] = function
        return function

    return register


def mil_type(tensor: Any) -> TensorType:
    """The type of a (fake) tensor of PyTorch. Refused for open extents and element types that graphs lack."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise Refused(f"its elements are {name}")
    if any(not isinstance(extent, int) for extent in tensor.shape):
        raise Refused("its shape depends on values that are known at run time only")
    if str(tensor.layout) != "torch.strided":
        raise Refused(f"a tensor of layout {tensor.layout}")
    return TensorType(DTYPES[name], tuple(tensor.shape))


class AtenNode(Composer):
    """One call of an operator.

    ``c["dim"]`` is an argument by its name in the schema (a number, a list, None, or an operand), ``c.x(name)`` an
    operand that must be a tensor, ``c.ops.<op>(...)`` adds an op, or computes it where all operands are constants.
    """

    def __init__(self, node: Any, ops: Folder, operand: Callable[[Any], Any]) -> None:
        self.node = node
        self.ops = ops
        self._operand = operand
        schema = node.target._schema
        self.arguments: dict[str, Any] = {}
        for number, argument in enumerate(schema.arguments):
            if number < len(node.args):
                content = node.args[number]
            elif argument.name in node.kwargs:
                content = node.kwargs[argument.name]
            else:
                content = argument.default_value if argument.has_default_value() else None
            self.arguments[argument.name] = content

    def __getitem__(self, name: str) -> Any:
        return self._operand(self.arguments[name])

    def has(self, name: str) -> bool:
        """True where the operator has an argument of that name, and the call gives it."""
        return self.arguments.get(name) is not None

    def x(self, name: str = "self") -> Operand:
        """A tensor operand."""
        operand = self[name]
        if operand is None or isinstance(operand, int | float | bool | complex | list | tuple):
            raise Refused(f"{name} is no tensor")
        return operand

    def xs(self, name: str) -> list[Operand]:
        """A list of tensor operands."""
        return [self._operand(item) for item in self.arguments[name]]

    def number(self, name: str, default: float | None = None) -> float:
        """A number that is known now."""
        value = self[name]
        if value is None and default is not None:
            return default
        if isinstance(value, np.ndarray) and value.size == 1:
            return float(value.reshape(-1)[0])
        if not isinstance(value, int | float | bool):
            raise Refused(f"{name} is not known before run time")
        return float(value)

    def ints(self, name: str) -> list[int]:
        """A list of integers; Refused where one is known at run time only."""
        numbers = self[name]
        if isinstance(numbers, int):
            numbers = [numbers]
        if numbers is None or any(isinstance(item, bool) or not isinstance(item, int) for item in numbers):
            raise Refused(f"{name} is not known before run time")
        return [int(item) for item in numbers]

    def each(self, name: str, count: int) -> list[int]:
        """A list of integers, one for each of ``count`` axes; one for all may be given."""
        given = self.ints(name)
        return given * count if len(given) == 1 else given

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def results(self) -> tuple[Any, ...]:
        """Types of the results by PyTorch (fake tensors)."""
        value = self.node.meta["val"]
        return tuple(value) if isinstance(value, tuple | list) else (value,)

    def out(self, index: int = 0) -> TensorType:
        """The declared type of a result."""
        return mil_type(self.results[index])

    def used(self, index: int) -> bool:
        """True where anything takes result ``index`` of several."""
        return any(
            user.args[1] == index
            for user in self.node.users
            if getattr(user.target, "__name__", "") == "getitem" and len(user.args) == 2
        )

    # -- small constructs ----------------------------------------------------------------------------------------------

    def axis(self, operand: Operand, name: str = "dim") -> int:
        """An argument as a non-negative axis of an operand; a scalar has one axis."""
        return axis_in(self[name], max(self.rank(operand), 1))

    def axes(self, numbers: Any, rank: int) -> list[int]:
        """Axes, all of them where none is given; not negative, in order."""
        if numbers is None or (isinstance(numbers, list | tuple) and not numbers):
            return list(range(rank))
        numbers = [numbers] if isinstance(numbers, int) else numbers
        return sorted({axis_in(int(axis), max(rank, 1)) for axis in numbers})

    def full(self, value: Any, dtype: str, shape: Sequence[int] = ()) -> np.ndarray:
        """A constant of one number."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.full(tuple(shape), value, TensorType(dtype).carrier)

    def cast(self, operand: Any, dtype: str) -> Operand:
        """Conversion; a Python number becomes a constant, and truth is what is not 0."""
        if isinstance(operand, bool | int | float):
            return self.full(operand, dtype)
        if isinstance(operand, np.ndarray):
            with np.errstate(over="ignore", invalid="ignore"):
                return operand.astype(TensorType(dtype).carrier, copy=False)
        if dtype == "bool" and self.dtype(operand) != dtype:
            return self.ops.not_equal(x=operand, y=self.like(0, operand))
        return super().cast(operand, dtype)

    def index32(self, operand: Operand, extent: int) -> Operand:
        """Indices as the graph takes them: 32 bits, counted from the start."""
        if isinstance(operand, np.ndarray):
            return np.where(operand < 0, operand + extent, operand).astype(np.int32)
        operand = self.cast(operand, "int32")
        wrapped = self.ops.add(x=operand, y=np.int32(extent))
        return self.ops.select(cond=self.ops.less(x=operand, y=np.int32(0)), a=wrapped, b=operand)
