"""Check a graph: single assignment, operands before users, names, types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hexane.errors import GraphError, HexaneError, UnsupportedError
from hexane.graph.parts import Block, Function, Op, Value
from hexane.graph.registry import is_known, opset_number, opset_of, result_types, spec_of
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.ir import Graph


def verify(graph: Graph) -> None:
    """GraphError for the first thing that is wrong; every op's types are inferred again and compared."""
    if not graph.functions:
        raise GraphError("the graph has no function")
    for function in graph.functions.values():
        _verify_function(function)


def _verify_function(function: Function) -> None:
    opset_number(function.opset)
    names: dict[str, Value] = {}

    def claim(value: Value) -> None:
        other = names.setdefault(value.name, value)
        if other is not value:
            raise GraphError(f"two values are called {value.name!r}", where=f"function {function.name!r}")

    defined: set[Value] = set()
    for value in function.inputs:
        claim(value)
        defined.add(value)
    _verify_block(function, defined, claim)
    if len({value.name for value in function.outputs}) != len(function.outputs):
        raise GraphError("one value is returned twice", where=f"function {function.name!r}")


def _verify_block(block: Block, defined: set[Value], claim) -> None:
    for op in block.ops:
        if op.block is not block:
            raise GraphError(f"{op.describe()} stands in a block that it does not know")
        for value in op.operands():
            if value.is_constant:
                claim(value)
            elif value not in defined:
                raise GraphError(f"{op.describe()} uses {value.name!r} before it is computed")
        for inner in op.blocks:
            for value in inner.inputs:
                claim(value)
            _verify_block(inner, defined | set(inner.inputs), claim)
        check_types(op)
        for value in op.outputs:
            if value.op is not op:
                raise GraphError(f"{value.name!r} does not know that {op.describe()} computes it")
            claim(value)
            defined.add(value)
    for value in block.outputs:
        if value.is_constant:
            claim(value)
        elif value not in defined:
            raise GraphError(f"{value.name!r} is returned and never computed")


@contextmanager
def placed_errors(op: Op) -> Iterator[None]:
    """Errors of the rules of an op name it."""
    try:
        yield
    except HexaneError as error:
        if error.where:
            raise
        raise type(error)(error.message, where=op.describe(), hint=error.hint) from None


def check_types(op: Op) -> None:
    """GraphError when an op's declared types are not what its operands give, UnsupportedError when it is unknown."""
    spec = spec_of(op)
    if spec.special and op.blocks:
        return
    with placed_errors(op):
        types = result_types(spec, op.inputs, opset_number(opset_of(op)))
    if len(types) != len(op.outputs):
        raise GraphError(f"{op.describe()} has {len(op.outputs)} results, {len(types)} are computed")
    for value, type_ in zip(op.outputs, types):
        if isinstance(type_, TensorType) and not (isinstance(value.type, TensorType) and value.type.accepts(type_)):
            raise GraphError(f"{value.name!r} is declared {value.type} and computed as {type_}", where=op.describe())


def refuse_broken(graph: Graph) -> None:
    """GraphError for the first op whose operands break its rules, in a graph that was read with remarks.

    Such a graph can be printed and looked at; nothing can be computed of it. What it declares of types may stand.
    """
    if not graph.problems:
        return
    for function in graph.functions.values():
        for op in function.walk():
            if is_known(op.type) and not spec_of(op).special:
                with suppress(UnsupportedError), placed_errors(op):  # an extent of the data: passes may fold it
                    result_types(spec_of(op), op.inputs, opset_number(opset_of(op)))
