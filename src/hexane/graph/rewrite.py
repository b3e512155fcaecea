"""Tools of passes: replace uses, remove ops, drop dead ones, copy, cut, fold constants."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from hexane.errors import GraphError, HexaneError
from hexane.graph.coding import Coding, Source, codings_of
from hexane.graph.constants import Constant
from hexane.graph.effects import writes
from hexane.graph.evaluate import Evaluation
from hexane.graph.parts import Block, Function, Names, Op, Value
from hexane.graph.registry import is_known, spec_of, values_of
from hexane.graph.types import TensorType

FOLD_LIMIT = 1 << 24
"""Largest constant, in elements, that folding makes."""


def function_of(op: Op) -> Function:
    """The function in which an op stands."""
    block = op.block
    while block is not None and not isinstance(block, Function):
        block = block.owner.block if block.owner is not None else None
    if block is None:
        raise GraphError(f"{op.describe()} stands in no function")
    return block


def names_of(function: Function) -> Names:
    """The source of names that are new in the function."""
    return function.names


def replace_uses(old: Value, new: Value) -> None:
    """Every user of ``old`` takes ``new`` instead.

    Where ``old`` is a function's output, ``new`` takes over its name, since an output's name is part of the interface;
    when ``new`` cannot be renamed (an input, a constant, an output already), an ``identity`` carries the name.
    """
    if old is new:
        return
    for user in list(old._uses):
        if isinstance(user, Op):
            user.replace_operand(old, new)
    for user in list(old._uses):
        assert isinstance(user, Block)
        returned = new
        if isinstance(user, Function):
            name = old.name
            old.name = _spare_name(name)
            if new.op is None or new.op.block is not user or new.is_output:
                carrier = Op("identity", {"x": new}, name=name)
                returned = Value(name, old.type, op=carrier)
                carrier.outputs = (returned,)
                user.add(carrier)
            else:
                new.name = name
        user.set_outputs(returned if value is old else value for value in user.outputs)


_spare_count = 0


def _spare_name(name: str) -> str:
    """A name for a value that lost its own; counted, so that it meets no other."""
    global _spare_count
    _spare_count += 1
    return f"{name}__was{_spare_count}"


def replace_op(op: Op, results: Value | Iterable[Value]) -> None:
    """Put other values in place of an op's results and remove the op."""
    new = values_of(results) if isinstance(results, (Value, tuple)) else tuple(results)
    if len(new) != len(op.outputs):
        raise GraphError(f"{op.describe()} has {len(op.outputs)} results, {len(new)} were given")
    for old, value in zip(op.outputs, new):
        replace_uses(old, value)
    assert op.block is not None
    op.block.remove(op)


_USES = attrgetter("_uses")


def remove_dead(block: Block) -> int:
    """Drop ops whose results nobody uses (state writes stay); how many went."""
    count = 0
    for op in reversed(block.ops):
        for inner in op.blocks:
            count += remove_dead(inner)
        if any(map(_USES, op.outputs)) or writes(op):
            continue
        _release(op)
        block.remove(op)
        count += 1
    return count


def live_ops(block: Block) -> list[Op]:
    """Ops on which a result of the block or a state depends: those that `remove_dead` keeps, the block as it is."""
    needed: set[Value] = set(block.outputs)
    live = []
    for op in reversed(block.ops):
        if needed.isdisjoint(op.outputs) and not writes(op):
            continue
        for part in (op, *(inner for inside in op.blocks for inner in inside.walk())):
            needed.update(part.operands())
        for inside in op.blocks:
            needed.update(inside.outputs)
        live.append(op)
    return live[::-1]


def _release(op: Op) -> None:
    """Let go of everything that an op's inner blocks use."""
    for block in op.blocks:
        block.set_outputs(())
        for inner in reversed(block.ops):
            _release(inner)
            for param in list(inner.inputs):
                inner.remove_input(param)


def fold_constants(block: Block, *, limit: int = FOLD_LIMIT, keep: Callable[[Op], bool] | None = None) -> int:
    """Evaluate ops whose operands are all constant; how many went.

    ``keep`` says which ops stay as they are (constexpr ops, say, whose packed form is worth keeping). Results of more
    than ``limit`` elements, random ops, control flow and ops that fail to evaluate stay.
    """
    function = block
    while not isinstance(function, Function):
        assert function.owner is not None and function.owner.block is not None
        function = function.owner.block
    names = names_of(function)
    count = 0
    for op in block.ops:
        for inner in op.blocks:
            count += fold_constants(inner, limit=limit, keep=keep)
        if op.blocks or not is_known(op.type) or (keep is not None and keep(op)):
            continue
        if not op.outputs or not all(value.is_constant for value in op.operands()):
            continue
        if op.type == "identity" and op.output.is_output:  # it carries a constant to an output, as the result would be
            continue
        spec = spec_of(op)
        if spec.special or spec.family == "random" or spec.evaluate is None:
            continue
        most = None if op.type.startswith("constexpr_") else limit  # what a file packs is as large as it says
        if any(not isinstance(v.type, TensorType) or _exceeds(v.type, most) for v in op.outputs):
            continue
        try:
            with np.errstate(all="ignore"):
                results = Evaluation().op(op)
        except HexaneError:
            continue
        folded = []
        for value, array, coding in zip(op.outputs, results, _codings(op)):
            assert isinstance(value.type, TensorType)
            array = np.asarray(array)
            with np.errstate(all="ignore"):
                data = array.astype(value.type.carrier, copy=False)
            constant = Constant(TensorType(value.dtype, data.shape), data, coding=coding)
            folded.append(Value(names.unique(value.name + "_folded"), constant.type, constant=constant))
        replace_op(op, tuple(folded))
        count += 1
    return count


def _exceeds(type_: TensorType, limit: int | None) -> bool:
    return limit is not None and type_.is_static and type_.count > limit


def _codings(op: Op) -> tuple[Coding | None, ...]:
    """Storage of the results of an op on constants."""

    def constant(name: str) -> Constant | None:
        operand = op.inputs.get(name)
        return operand.constant if isinstance(operand, Value) else None

    def array(name: str) -> np.ndarray | None:
        data = constant(name)
        return None if data is None else data.array

    def coding(name: str) -> Coding | None:
        data = constant(name)
        return None if data is None else data.coding

    return codings_of(Source(op.type, array, coding, tuple(value.shape for value in op.outputs)))


def clone_function(function: Function, name: str | None = None) -> Function:
    """A copy of a function; constant data are shared."""
    copy = function_from(function.ops, function.inputs, function.outputs, name or function.name, function.opset)
    copy.attributes = dict(function.attributes)
    return copy


def function_from(
    ops: Iterable[Op], inputs: Iterable[Value], outputs: Iterable[Value], name: str, opset: str
) -> Function:
    """A new function with copies of the ops, with these inputs and outputs; constant data are shared."""
    copy = Function(name, opset=opset)
    copies: dict[Value, Value] = {}
    for value in inputs:
        copy.add_input(_copied(value, copies))
    _copy_ops(ops, copy, copies)
    copy.set_outputs(_copied(value, copies) for value in outputs)
    return copy


def inline_function(target: Function, source: Function, arguments: Mapping[str, Value]) -> list[Value]:
    """Copies of the ops of ``source`` at the end of ``target``, with names that are new there; ``source``'s outputs.

    ``arguments`` has a value of ``target`` for every input of ``source``, of the same type. Constant data are shared.
    """
    copies: dict[Value, Value] = {value: arguments[value.name] for value in source.inputs}
    theirs = set(copies.values())
    first = len(target.ops)
    _copy_ops(source.ops, target, copies)
    outputs = [_copied(value, copies) for value in source.outputs]
    for copy in copies.values():
        if copy not in theirs:
            copy.name = target.names.unique(copy.name)
    for op in target.ops[first:]:
        op.name = op.outputs[0].name if op.outputs else op.name
    return outputs


def _copied(value: Value, copies: dict[Value, Value]) -> Value:
    if value not in copies:
        copies[value] = copy = Value(value.name, value.type, constant=value.constant, label=value.label)
        copy.attributes = dict(value.attributes) if value.attributes else None
    return copies[value]


def _copy_ops(ops: Iterable[Op], target: Block, copies: dict[Value, Value]) -> None:
    for op in ops:
        blocks = []
        for inner in op.blocks:
            block = Block(_copied(value, copies) for value in inner.inputs)
            _copy_ops(inner.ops, block, copies)
            block.set_outputs(_copied(value, copies) for value in inner.outputs)
            blocks.append(block)
        inputs: dict[str, Any] = {
            param: tuple(_copied(v, copies) for v in operand)
            if isinstance(operand, tuple)
            else _copied(operand, copies)
            for param, operand in op.inputs.items()
        }
        copy = Op(op.type, inputs, name=op.name, opset=op.opset, blocks=blocks, attributes=dict(op.attributes),
                  inside=op.inside)  # fmt: skip
        copy.doubt = op.doubt
        results = []
        for value in op.outputs:
            result = _copied(value, copies)
            result.op = copy
            results.append(result)
        copy.outputs = tuple(results)
        target.add(copy)


def cut_function(function: Function, outputs: Iterable[str]) -> None:
    """See ``Graph.cut``: the function itself is cut."""
    pending = list(outputs)
    if not pending:
        raise GraphError("a cut needs at least one output")
    by_name = {value.name: value for value in function.values()}
    needed = []
    for name in pending:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=3)
            raise GraphError(f"there is no value {name!r}", hint=f"did you mean {', '.join(near)}?" if near else None)
        needed.append(by_name[name])
    inner = [value.name for value in needed if value.op is not None and value.op.block is not function]
    if inner:
        raise GraphError(f"{inner[0]!r} lies inside a block of control flow")
    function.set_outputs(dict.fromkeys(needed))
    remove_dead(function)
    for value in function.inputs:
        if not value.is_used:
            function.remove_input(value)
