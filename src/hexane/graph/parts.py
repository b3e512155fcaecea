"""The parts of a network: values, ops, blocks and functions.

Single assignment: a value is made once, by an op, as a block's input, or as a constant (which belongs to no block).
Ops stand in a block in an order in which every operand comes first; the order is a linked list, so that inserting and
removing cost nothing, and every value knows who uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.constants import Constant
from hexane.graph.registry import argument, values_of
from hexane.graph.types import StateType, TensorType, Type, tensor_of

FOREIGN = "onnx.Foreign"
"""Type of an op that is a node of the file as it stands; its ``kind`` says of which type."""


class Value:
    """One typed result: of an op (``op``), of a block's entry (``op`` None) or a constant (``constant`` set).

    ``label`` is the ``name`` attribute of a MIL const, where it differs from the result name.
    """

    __slots__ = ("_uses", "attributes", "block", "constant", "label", "name", "op", "type")

    def __init__(
        self,
        name: str,
        type: Type,
        *,
        op: Op | None = None,
        block: Block | None = None,
        constant: Constant | None = None,
        label: str | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.op = op
        self.block = block
        self.constant = constant
        self.label = label
        self.attributes: dict[str, Any] | None = None
        self._uses: dict[Op | Block, int] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape if type(self.type) is TensorType else tensor_of(self.type).shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    @property
    def data(self) -> np.ndarray:
        """A constant's values (read-only, loaded at first use)."""
        if self.constant is None:
            raise GraphError(f"{self.name} is no constant")
        return self.constant.array

    @property
    def users(self) -> list[Op]:
        """The ops that take this value, each once, in the order in which they began to."""
        return [user for user in self._uses if isinstance(user, Op)]

    @property
    def neighbours(self) -> list[Op]:
        """The op that makes this value, if one does, and those that take it."""
        return self.users if self.op is None else [self.op, *self.users]

    @property
    def is_output(self) -> bool:
        """True where some block returns this value."""
        return any(isinstance(user, Block) for user in self._uses)

    @property
    def only_user(self) -> Op | None:
        """The single op that takes this value; None where there are others or some block returns it."""
        if len(self._uses) != 1:
            return None
        (user,) = self._uses
        return user if isinstance(user, Op) else None

    @property
    def is_used(self) -> bool:
        return bool(self._uses)

    def _use(self, user: Op | Block) -> None:
        self._uses[user] = self._uses.get(user, 0) + 1

    def _unuse(self, user: Op | Block) -> None:
        remaining = self._uses[user] - 1
        if remaining:
            self._uses[user] = remaining
        else:
            del self._uses[user]

    def __repr__(self) -> str:
        kind = " const" if self.is_constant else ""
        return f"<{self.name}: {self.type}{kind}>"


class Op:
    """One operation: ``type`` is MIL's op name (or ``onnx.*``), ``inputs`` operands by parameter name.

    ``inputs`` is a read-only view of the operands by parameter name: a Value, or a tuple of Values for a variadic
    parameter. Change operands with ``set_input`` and ``remove_input`` only, so that the users of values stay known.
    ``opset`` is set where the op is written with another op set than its function's. ``inside`` is the function that an
    op of type ``hexane.host`` stands for (``hexane.graph.whole``). ``doubt`` says of an op that a pass wrote why no
    program of Apple's compiler shows that form, so that its tasks are INFERRED whatever they are by themselves.
    """

    __slots__ = (
        "_flat",
        "_inputs",
        "_next",
        "_previous",
        "attributes",
        "block",
        "blocks",
        "doubt",
        "inputs",
        "inside",
        "name",
        "opset",
        "outputs",
        "type",
    )

    def __init__(
        self,
        type: str,
        inputs: Mapping[str, Any],
        *,
        name: str | None = None,
        opset: str | None = None,
        blocks: Iterable[Block] = (),
        attributes: dict[str, Any] | None = None,
        inside: Function | None = None,
    ) -> None:
        self.type = type
        self.inside = inside
        self.doubt = ""
        self.name = name
        self.opset = opset
        self.blocks: tuple[Block, ...] = tuple(blocks)
        self.attributes: dict[str, Any] = attributes or {}
        self.outputs: tuple[Value, ...] = ()
        self.block: Block | None = None
        self._flat: tuple[Value, ...] | None = None
        self._inputs: dict[str, Any] = {}
        self.inputs: Mapping[str, Any] = MappingProxyType(self._inputs)
        self._previous: Op | None = None
        self._next: Op | None = None
        for block in self.blocks:
            block.owner = self
        for param, operand in inputs.items():
            self.set_input(param, operand)

    @property
    def output(self) -> Value:
        """The only result; GraphError when there are none or several."""
        if len(self.outputs) != 1:
            raise GraphError(f"{self.describe()} has {len(self.outputs)} results")
        return self.outputs[0]

    def operands(self) -> Iterator[Value]:
        """Every operand value, in parameter order, tuples flattened."""
        if self._flat is None:
            self._flat = tuple([value for operand in self._inputs.values() for value in values_of(operand)])
        return iter(self._flat)

    def set_input(self, param: str, operand: Any) -> None:
        """Give parameter ``param`` the operand (a Value or a tuple of Values), in place of what it had."""
        new = values_of(operand)
        for value in new:
            if not isinstance(value, Value):
                raise GraphError(
                    f"{self.describe()}: operand {param} is no value", hint="use GraphBuilder to wrap arrays"
                )
        for value in new:
            value._use(self)
        old = self._inputs.get(param)
        self._inputs[param] = operand
        self._flat = None
        if old is not None:
            for value in values_of(old):
                value._unuse(self)

    def remove_input(self, param: str) -> None:
        self._flat = None
        for value in values_of(self._inputs.pop(param)):
            value._unuse(self)

    def replace_operand(self, old: Value, new: Value) -> None:
        """Use ``new`` wherever this op uses ``old``."""
        for param, operand in list(self._inputs.items()):
            if operand is old:
                self.set_input(param, new)
            elif isinstance(operand, tuple) and any(value is old for value in operand):
                self.set_input(param, tuple(new if value is old else value for value in operand))

    def arg(self, param: str) -> Any:
        """A parameter as the op's rules see it: a Value (None when absent) for tensors, a Python value or default else.

        ``op.arg("strides")`` is a tuple of ints, ``op.arg("pad_type")`` a string, ``op.arg("x")`` a Value.
        """
        return argument(self, param)

    @property
    def kind(self) -> str:
        """Type of the op, or of the node that it is."""
        return str(self.arg("kind")) if self.type == FOREIGN and "kind" in self._inputs else self.type

    def describe(self) -> str:
        """The op in an error message: its kind and the name of its first result."""
        name = self.outputs[0].name if self.outputs else self.name
        kind = self.kind if self.inside is None else self.inside.ops[0].kind
        return f"{kind} {name!r}" if name else kind

    def __repr__(self) -> str:
        operands = ", ".join(
            f"{param}=" + (f"({', '.join(v.name for v in o)})" if isinstance(o, tuple) else o.name)
            for param, o in self._inputs.items()
        )
        results = ", ".join(f"{value.name}: {value.type}" for value in self.outputs)
        return f"<{results} = {self.type}({operands})>"


class OpList:
    """The ops of a block, in order: a linked list that may be changed while it is walked.

    A walk meets the ops that were there when it began and still are; what is added meanwhile it does not meet, so that
    every walk ends, whatever a rewriting rule adds.
    """

    __slots__ = ("_count", "_first", "_last")

    def __init__(self) -> None:
        self._first: Op | None = None
        self._last: Op | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Op]:
        return self.some(None)

    def some(self, types: Container[str] | None) -> Iterator[Op]:
        """A walk over the ops of these types, and over those with blocks inside; None for all."""
        present = []
        op = self._first
        while op is not None:
            if types is None or op.type in types or op.blocks:
                present.append(op)
            op = op._next
        for op in present:
            if op.block is not None:  # else it was removed meanwhile
                yield op

    def __reversed__(self) -> Iterator[Op]:
        return self.before(None)

    def before(self, op: Op | None) -> Iterator[Op]:
        """The ops before one, from the nearest on; of the whole list where it is None."""
        op = self._last if op is None else op._previous
        while op is not None:
            preceding = op._previous
            yield op
            op = preceding

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def sort(self, ops: Collection[Op]) -> tuple[Op, ...]:
        """Some ops of the list in its order, in the time that a walk over the stretch takes in which they stand."""
        members = set(ops)
        first = next(iter(ops))
        row, before, behind = deque([first]), first._previous, first._next
        while len(row) < len(members) and (before is not None or behind is not None):
            if before is not None:
                if before in members:
                    row.appendleft(before)
                before = before._previous
            if behind is not None:
                if behind in members:
                    row.append(behind)
                behind = behind._next
        return tuple(row)

    def insert(self, op: Op, before: Op | None = None) -> None:
        """Put ``op`` before another op of the list, or at the end."""
        previous = self._last if before is None else before._previous
        op._previous, op._next = previous, before
        if previous is None:
            self._first = op
        else:
            previous._next = op
        if before is None:
            self._last = op
        else:
            before._previous = op
        self._count += 1

    def remove(self, op: Op) -> None:
        if op._previous is None:
            self._first = op._next
        else:
            op._previous._next = op._next
        if op._next is None:
            self._last = op._previous
        else:
            op._next._previous = op._previous
        self._count -= 1


class Block:
    """A straight run of ops with inputs and outputs; the body of a function, or of a ``cond`` or ``while_loop``."""

    opset: str | None = None
    """That of its ops which have none of their own; None: as the block around it."""

    def __init__(self, inputs: Iterable[Value] = ()) -> None:
        self._inputs: list[Value] = []
        self._outputs: tuple[Value, ...] = ()
        self.ops = OpList()
        self.owner: Op | None = None
        for value in inputs:
            self.add_input(value)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self._outputs

    def add_input(self, value: Value) -> Value:
        value.block = self
        self._inputs.append(value)
        return value

    def remove_input(self, value: Value) -> None:
        """Drop an input that nothing uses any more."""
        if value.is_used:
            raise GraphError(f"input {value.name!r} is still in use")
        self._inputs.remove(value)
        value.block = None

    def set_outputs(self, values: Iterable[Value]) -> None:
        new = tuple(values)
        for value in new:
            value._use(self)
        for value in self._outputs:
            value._unuse(self)
        self._outputs = new

    def add(self, op: Op, before: Op | None = None) -> Op:
        """Put an op into the block, before another one or at the end."""
        if op.block is not None:
            raise GraphError(f"{op.describe()} already stands in a block")
        if before is not None and before.block is not self:
            raise GraphError(f"{before.describe()} does not stand in this block")
        op.block = self
        self.ops.insert(op, before)
        return op

    def remove(self, op: Op) -> None:
        """Take out an op whose results nothing uses; its operands lose a user."""
        names = [value.name for value in op.outputs if value._uses]
        if names:
            raise GraphError(f"{op.describe()} cannot go: {names[0]!r} is still in use")
        for param in list(op.inputs):
            op.remove_input(param)
        self.ops.remove(op)
        op.block = None

    def walk(self, types: Container[str] | None = None) -> Iterator[Op]:
        """Every op of the block and of the blocks inside, outer before inner; of these types alone, if some are given.

        As every walk (``OpList``), it meets the ops that were there when it began and still are.
        """
        for op in self.ops.some(types):
            if types is None or op.type in types:
                yield op
            for block in op.blocks:
                yield from block.walk(types)


class Names:
    """Hands out names that nobody has: ``add``, ``add_1``, ``add_2`` ...

    A constant that got its name from the parameter it stands for (``y``, ``axis``) holds it only until somebody else
    asks for that very name: then the constant is renamed. ``first`` is the first number that is given out.
    """

    def __init__(self, names: Iterable[str] = (), first: int = 1) -> None:
        self._taken: set[str] = set(names)
        self._first = first
        self._next: dict[str, int] = {}
        self._lent: dict[str, Value] = {}

    def unique(self, base: str) -> str:
        """``base`` itself when it is free, else with the next free number; taken from now on."""
        if base in self._lent:
            self._evict(base)
            return base
        name = base
        while name in self._taken:
            number = self._next.get(base, self._first)
            self._next[base] = number + 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def lend(self, value: Value) -> None:
        """Give a constant a free name like its own, to be given up when somebody asks for it."""
        base = value.name
        while base in self._taken:
            number = self._next.get(value.name, 1)
            self._next[value.name] = number + 1
            base = f"{value.name}_{number}"
        value.name = base
        self._taken.add(base)
        self._lent[base] = value

    def take(self, name: str) -> None:
        """Mark a name as taken."""
        if name in self._lent:
            self._evict(name)
        self._taken.add(name)

    def _evict(self, name: str) -> None:
        value = self._lent.pop(name)
        self.lend(value)

    def __contains__(self, name: str) -> bool:
        return name in self._taken and name not in self._lent


class Function(Block):
    """A named block with an op set (``ios15`` .. ``ios18``) and attributes."""

    opset: str

    def __init__(self, name: str, inputs: Iterable[Value] = (), *, opset: str = "ios18") -> None:
        super().__init__(inputs)
        self.name = name
        self.opset = opset
        self.attributes: dict[str, Any] = {}
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """The source of new names in this function; it knows every name that stood here when it was first asked."""
        if self._names is None:
            self._names = Names(value.name for value in self.values())
        return self._names

    @property
    def states(self) -> list[Value]:
        """The inputs that are states."""
        return [value for value in self.inputs if isinstance(value.type, StateType)]

    def values(self) -> Iterator[Value]:
        """Inputs, results and the constants in use, each once, in order of appearance."""
        visited: set[int] = set()

        def once(values: Iterable[Value]) -> Iterator[Value]:
            for value in values:
                if id(value) not in visited:
                    visited.add(id(value))
                    yield value

        yield from once(self._inputs)
        for op in self.walk():
            yield from once(op.operands())
            for block in op.blocks:
                yield from once(block.inputs)
            yield from once(op.outputs)
            for block in op.blocks:
                yield from once(block.outputs)
        yield from once(self._outputs)

    def constants(self) -> Iterator[Value]:
        """The constants in use, each once, in order of use."""
        return (value for value in self.values() if value.is_constant)


class Problem:
    """Something that a file says and that hexane could read past: what, and where in the text (from 1)."""

    __slots__ = ("column", "line", "message", "rule")

    def __init__(self, message: str, *, rule: str = "", line: int | None = None, column: int | None = None) -> None:
        self.message = message
        self.rule = rule
        self.line = line
        self.column = column

    def __repr__(self) -> str:
        place = f"line {self.line}, column {self.column}: " if self.line is not None else ""
        rule = f" ({self.rule})" if self.rule else ""
        return f"{place}{self.message}{rule}"
