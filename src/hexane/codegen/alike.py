"""Tasks of ops that are alike: a recipe is asked twice, and its second answer serves all runs of that kind.

Runs of ops are alike where their types, parameters, shapes and constants are equal and they are joined in the same way.
A recipe may also look at what stands around its ops, which nothing here compares. So the second run is lowered as a
copy that stands alone, under names of its own: after a look at anything beyond it, or where a name ends up elsewhere
than in a buffer, runs of that kind are lowered one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hexane.codegen.contents import SAMPLE
from hexane.codegen.fragment import Fragment
from hexane.codegen.plan import SIDES, Buffer, Dma, Space, TaskKernel
from hexane.errors import UnsupportedError
from hexane.graph.constants import Constant
from hexane.graph.parts import Op, Value
from hexane.graph.registry import opset_of, values_of
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.codegen.context import Context
    from hexane.codegen.recipes.registry import Recipe

Lower = Callable[["Recipe", Sequence[Op], "Context"], Fragment]

MARK = "\0"
"""Start of the names in a copy; no network has such a name."""


class _LookBeyondError(Exception):
    """A recipe asks for what is around its ops."""


def _beyond(_: object) -> NoReturn:
    raise _LookBeyondError


class _Result(Value):
    """A value whose users are not known."""

    __slots__ = ()
    users = is_output = is_used = _uses = property(_beyond)


class _Operand(_Result):
    """A value of which nobody knows where it comes from either."""

    __slots__ = ()
    op = block = property(_beyond)


class _Surroundings:
    """The block of an op that stands alone."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _LookBeyondError


@dataclass(eq=False)
class Pattern:
    """Tasks that a recipe gives for a run, and the places in them that are the run's own.

    ``names``: per task its walks through tensors, each as side, walk, and number of the tensor's name.
    """

    fragment: Fragment
    names: list[list[tuple[str, Dma, int]]]

    def under(self, names: Sequence[str]) -> Fragment:
        """The same tasks between tensors of other names."""
        buffers = [Buffer(name, Space.SURFACE) for name in names]
        kernels: dict[TaskKernel, TaskKernel] = {}
        plans = []
        for pattern, walks in zip(self.fragment.plans, self.names):
            plan = pattern.but()
            for side, dma, number in walks:
                plan = plan.walk(side, replace(dma, buffer=buffers[number]))
            if plan.kernel is not None:
                if plan.kernel not in kernels:
                    kernels[plan.kernel] = _kernel_under(plan.kernel, buffers)
                plan = plan.but(kernel=kernels[plan.kernel])
            plans.append(plan)
        return Fragment(self.fragment.context, plans, dict(self.fragment.constants), dict(self.fragment.scratch))


def _kernel_under(kernel: TaskKernel, buffers: Sequence[Buffer]) -> TaskKernel:
    source = kernel.source
    return replace(kernel, source=source if source is None else _renamed(source, buffers))


def _renamed(buffer: Buffer, buffers: Sequence[Buffer]) -> Buffer:
    return buffers[int(buffer.name[1:])] if buffer.name.startswith(MARK) else buffer


@dataclass
class Alike:
    """A way to lower runs of ops, each kind of them twice."""

    lower: Lower
    patterns: dict[Hashable, Pattern | None] = field(default_factory=dict)
    kinds: set[Hashable] = field(default_factory=set)
    constants: dict[_Bits, Constant] = field(default_factory=dict)
    """The first of all constants that are equal."""

    def __call__(self, recipe: Recipe, ops: Sequence[Op], context: Context) -> Fragment:
        """As ``lower``."""
        run = None if context.homes else _Run.of(ops, self._constant)  # a state is known by its name
        if run is None:
            return self.lower(recipe, ops, context)
        key = (recipe, run.key)
        if key not in self.kinds:
            self.kinds.add(key)
            return self.lower(recipe, ops, context)
        if key not in self.patterns:
            self.patterns[key] = self._pattern(recipe, run, context)
        pattern = self.patterns[key]
        return self.lower(recipe, ops, context) if pattern is None else pattern.under(run.names)

    def _pattern(self, recipe: Recipe, run: _Run, context: Context) -> Pattern | None:
        try:
            fragment = self.lower(recipe, run.alone(), context)
        except (_LookBeyondError, UnsupportedError):
            return None
        if any(MARK in text for text in _texts(fragment)):
            return None
        names = []
        for plan in fragment.plans:
            walks = ((side, plan.dma(side)) for side in SIDES)
            names.append([(s, d, int(d.buffer.name[1:])) for s, d in walks if d and d.buffer.name.startswith(MARK)])
        return Pattern(fragment, names)

    def _constant(self, constant: Constant) -> Hashable:
        """A key that constants of equal type and values share; what a file packs or nobody has looked at is alone."""
        if constant.coding is not None or not constant.is_loaded:
            return constant
        if constant.type.carrier.kind == "U":
            return str(constant.array.tolist())
        array = constant.array
        if array.nbytes <= BYTES_IN_KEY:
            return (constant.type, array.tobytes())
        return self.constants.setdefault(_Bits(constant), constant)


BYTES_IN_KEY = 64
"""Bytes of a constant that is a key as it is."""


class _Bits:
    """A large constant by type and bits; the hash is that of a sample."""

    def __init__(self, constant: Constant) -> None:
        self.type = constant.type
        self.bytes = np.ascontiguousarray(constant.array).reshape(-1).view(np.uint8)
        self.hash = hash((self.type, self.bytes[:: len(self.bytes) // SAMPLE + 1].tobytes()))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bits) and self.type == other.type and np.array_equal(self.bytes, other.bytes)


@dataclass(frozen=True)
class _Run:
    """A run of ops: what it is made of, and the names of its tensors in order of appearance."""

    ops: Sequence[Op]
    key: Hashable
    numbers: dict[Value, int]

    @property
    def names(self) -> list[str]:
        return [value.name for value in self.numbers]

    @classmethod
    def of(cls, ops: Sequence[Op], constant: Callable[[Constant], Hashable]) -> _Run | None:
        """None for ops that hold more than operands and results of known types."""
        place = {op: i for i, op in enumerate(ops)}
        numbers: dict[Value, int] = {}
        key: list[Hashable] = []
        for op in ops:
            if op.blocks or op.attributes or op.inside is not None:
                return None
            key += [op.type, op.opset, op.doubt]
            for param, operand in op.inputs.items():
                key += [param, len(operand) if isinstance(operand, tuple) else 0]
                for value in values_of(operand):
                    if value.constant is not None:
                        key.append(constant(value.constant))
                    elif type(value.type) is TensorType:
                        key += [numbers.setdefault(value, len(numbers)), value.type.dtype, value.type.shape]
                    else:
                        return None
            for value in op.outputs:
                if type(value.type) is not TensorType:
                    return None
                users = None if _leaves(value, place) else [place[user] for user in value.users]
                if users is not None and users != sorted(users):
                    return None
                number = numbers.setdefault(value, len(numbers))
                key += [number, value.type.dtype, value.type.shape, users is None or tuple(users)]
        return cls(ops, tuple(key), numbers)

    def alone(self) -> list[Op]:
        """A copy in which nothing around the ops is to be seen."""
        copies: dict[Value, Value] = {}
        place = {op: i for i, op in enumerate(self.ops)}

        def copied(value: Value) -> Value:
            if value not in copies:
                name = MARK if value.constant is not None else f"{MARK}{self.numbers[value]}"
                copies[value] = Value(name, value.type, constant=value.constant, label=value.label)
            return copies[value]

        alone = []
        for op in self.ops:
            inputs = {
                param: tuple(map(copied, operand)) if isinstance(operand, tuple) else copied(operand)
                for param, operand in op.inputs.items()
            }
            copy_of = Op(op.type, inputs, name=MARK, opset=opset_of(op))
            copy_of.doubt, copy_of.outputs = op.doubt, tuple(map(copied, op.outputs))
            copy_of.block = _Surroundings()  # type: ignore[assignment]
            for value in copy_of.outputs:
                value.op = copy_of
            alone.append(copy_of)
        for value, standin in copies.items():
            if value.constant is None and value.op not in place:
                standin.__class__ = _Operand
            elif value.constant is not None or _leaves(value, place):
                standin.__class__ = _Result
        return alone


def _leaves(value: Value, place: Mapping[Op, int]) -> bool:
    """True where somebody beyond the run takes a value."""
    return value.is_output or any(user not in place for user in value.users)


def _texts(fragment: Fragment) -> Iterator[str]:
    """All texts in a fragment but the names of buffers."""
    yield from (*fragment.constants, *fragment.scratch)
    for plan in fragment.plans:
        yield from (text for text in (*vars(plan).values(), *plan.tables) if isinstance(text, str))
        if plan.kernel is not None:
            yield plan.kernel.name or ""
