"""Reverse-mode differentiation: from a graph the graph that also computes gradients, in the same vocabulary.

Each op's own rule stands beside its definition (``derivative=`` in ``hexane/graph/ops``); here they are applied, from
the result back to what it depends on, and the shares of a value that is used more than once are added.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

from hexane.errors import GraphError, UnsupportedError
from hexane.graph.builder import GraphBuilder
from hexane.graph.effects import touched
from hexane.graph.formulas import Formula, apply, zeros
from hexane.graph.ir import Graph
from hexane.graph.parts import Block, Function, Op, Value
from hexane.graph.registry import OpSpec, spec_of, values_of
from hexane.graph.types import FLOATS, TensorType
from hexane.graph.verify import placed_errors


def grad(graph: Graph, *, of: str, wrt: Sequence[str], checkpoint: Iterable[str] = ()) -> Graph:
    """The graph with, added, the gradient of one of its values with respect to others.

    Parameters
    ----------
    of : a value of a float type and a static shape, mostly an output. The seed, an input more that is called ``d_``
        and this name, has its type: the gradient of whatever follows with respect to it (a tensor of ones gives the
        gradient of the sum).
    wrt : inputs, constants or other values, of float types. The outputs ``d_`` and each name, in this order behind
        those of the graph, have their types; zeros where ``of`` does not depend on one.
    checkpoint : values that the backward part computes again from what they are computed from, instead of keeping
        them from the forward part.

    Returns
    -------
    Another graph. Its first ops are those of ``graph`` under their names; the backward part stands behind them. A
    name ``d_...`` that an input or output has already gets a number, as in a gradient of a gradient.

    Raises
    ------
    GraphError where a name is unknown or its type has no gradient; UnsupportedError, with the op and its result, where
    a way from ``of`` to one of ``wrt`` leads through an op without derivative, or every way through whole numbers or
    truth values, which are constant between their jumps.
    """
    copy = graph.clone()
    by_name = {value.name: value for value in copy.main.values()}
    result = _float(_named(by_name, of))
    sources = [_float(_named(by_name, name)) for name in ((wrt,) if isinstance(wrt, str) else tuple(wrt))]
    again = [_named(by_name, name) for name in ((checkpoint,) if isinstance(checkpoint, str) else checkpoint)]
    builder = GraphBuilder(function=copy.main, graph=copy)
    seed = copy.main.add_input(Value(_free(builder, by_name, f"d_{of}"), result.type))
    names = [_free(builder, by_name, f"d_{source.name}") for source in dict.fromkeys(sources)]
    sweep = _Sweep(builder, sources, Recomputation(builder, again))
    sweep.run(result, Formula(builder, seed))
    gradients = [sweep.gradient(source) for source in dict.fromkeys(sources)]
    for name, gradient in zip(names, gradients):
        value = gradient.value
        if value.op is None or value.is_output:
            value = builder.op("identity", x=value)
        value.name = name
        builder.output(value)
    return copy


def _named(by_name: dict[str, Value], name: str) -> Value:
    if name not in by_name:
        near = difflib.get_close_matches(str(name), by_name, n=3)
        raise GraphError(f"there is no value {name!r}", hint=f"did you mean {', '.join(near)}?" if near else None)
    return by_name[name]


def _float(value: Value) -> Value:
    """The value, where it can have a gradient."""
    if not isinstance(value.type, TensorType) or value.dtype not in FLOATS:
        where = value.op.describe() if value.op is not None else None
        raise GraphError(f"{value.name!r} is a {value.type}, which has no gradient", where=where)
    if not value.type.is_static:
        raise UnsupportedError(f"{value.name!r} is a {value.type}: an extent depends on data")
    return value


def _free(builder: GraphBuilder, by_name: dict[str, Value], name: str) -> str:
    """The name for an input or output: one that a value inside the function has is taken from it."""
    value = by_name.get(name)
    if value is None or value.op is None or value.is_output:
        return builder.names.unique(name)
    value.name = builder.names.unique(f"{name}_inside")
    return name


class Recomputation:
    """Operand of the backward part for a value of the forward part: the value, or the value computed again."""

    def __init__(self, builder: GraphBuilder, values: Iterable[Value]) -> None:
        self.builder = builder
        self.ops = {self._checked(value) for value in values}
        self._again: dict[Value, Value] = {}

    def _checked(self, value: Value) -> Op:
        if value.op is None:
            raise GraphError(f"{value.name!r} is no result of an op", hint="checkpoint names activations")
        spec = spec_of(value.op)
        if spec.special or spec.family == "random" or value.op.block is not self.builder.function:
            raise GraphError("cannot be computed again with the same result", where=value.op.describe())
        return value.op

    def of(self, value: Value) -> Value:
        """The value to use; whatever must be computed again for it comes first."""
        pending = [value]
        while pending:
            op = pending[-1].op
            if op not in self.ops or pending[-1] in self._again:
                pending.pop()
                continue
            missing = [v for v in op.operands() if v.op in self.ops and v not in self._again]
            if missing:
                pending += missing
                continue
            self._copy(op)
        return self._again.get(value, value)

    def _copy(self, op: Op) -> None:
        inputs: dict[str, Any] = {
            name: tuple(self._again.get(v, v) for v in operand)
            if isinstance(operand, tuple)
            else self._again.get(operand, operand)
            for name, operand in op.inputs.items()
        }
        results = self.builder.op(op.type, name=f"{op.outputs[0].name}_again", opset=op.opset, **inputs)
        self._again |= zip(op.outputs, values_of(results))


class Derivation:
    """An op on the way back, as its rules see it: every parameter by its name, tensors as terms, others as numbers.

    ``grads`` are the gradients of its results (None: zero), ``grad`` that of the first, ``out`` the first result.
    """

    def __init__(
        self, builder: GraphBuilder, operation: Op, grads: Sequence[Formula | None], forward: Recomputation
    ) -> None:
        self.builder = builder
        self.operation = operation
        self.grads = tuple(grads)
        self._forward = forward

    @property
    def grad(self) -> Formula:
        return self.grad_of(0)

    def grad_of(self, index: int) -> Formula:
        """The gradient of one result, zeros where nothing depends on it."""
        if (grad := self.grads[index]) is not None:
            return grad
        value = self.operation.outputs[index]
        return zeros(self.builder, value.shape, value.dtype)

    @property
    def out(self) -> Formula:
        return self.result(0)

    def result(self, index: int) -> Formula:
        return self._term(self.operation.outputs[index])

    def constant(self, data: Any, like: Formula) -> Formula:
        """A constant in the dtype of a term."""
        return Formula(self.builder, self.builder.const(data, like.dtype))

    def refuse(self, why: str) -> UnsupportedError:
        """The error for what a rule does not do."""
        return UnsupportedError(why, where=self.operation.describe())

    def _term(self, value: Value) -> Formula:
        return Formula(self.builder, self._forward.of(value))

    def apply(self, type: str, **operands: Any) -> tuple[Formula, ...]:
        """All results of an op."""
        return tuple(Formula(self.builder, value) for value in values_of(apply(self.builder, type, **operands)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        argument = self.operation.arg(name)
        if isinstance(argument, Value):
            return self._term(argument)
        if isinstance(argument, tuple) and argument and isinstance(argument[0], Value):
            return tuple(map(self._term, argument))
        return argument


class _Sweep:
    """The walk back through a function's ops, and the gradients that gather on the way."""

    def __init__(self, builder: GraphBuilder, sources: Sequence[Value], forward: Recomputation) -> None:
        self.builder = builder
        self.recomputed = forward
        self.forward = list(builder.function.ops)
        self.active = _depending(builder.function, self.forward, sources)
        self.shares: dict[Value, list[Formula]] = {}
        self.reached: set[Value] = set()  # by a gradient, be it zero
        self.stops: dict[Value, Op] = {}

    def run(self, result: Value, seed: Formula) -> None:
        self._give(result, seed)
        for op in reversed(self.forward):
            if any(v in self.reached for v in op.outputs) and any(v in self.active for v in op.outputs):
                with placed_errors(op):
                    self._back(op)

    def gradient(self, source: Value) -> Formula:
        """The sum of what arrived at a value; zeros when ``of`` does not depend on it."""
        if source in self.shares:
            return self._sum(source)
        if source not in self.reached and source in self.stops:
            op = self.stops[source]
            raise UnsupportedError(
                f"{op.outputs[0].name!r} has no gradient with respect to {source.name!r}: {reason_of(spec_of(op))}",
                where=op.describe(),
                hint="nothing else leads from it to the result",
            )
        return zeros(self.builder, source.shape, source.dtype)

    def _sum(self, value: Value) -> Formula:
        total = reduce(add, self.shares[value])
        self.shares[value] = [total]
        return total

    def _give(self, value: Value, term: Formula | None) -> None:
        """Add a share to a value's gradient, in its dtype and shape; None is zero."""
        self.reached.add(value)
        if term is None:
            return
        if term.dtype != value.dtype:
            term = term.cast(dtype=value.dtype)
        self.shares.setdefault(value, []).append(term.summed_to(value.shape))

    def _back(self, op: Op) -> None:
        spec = spec_of(op)
        rules = rules_of(spec)
        grads = [self._sum(value) if value in self.shares else None for value in op.outputs]
        step = Derivation(self.builder, op, grads, self.recomputed)
        zero = all(grad is None for grad in grads)
        if any(v in self.active for block in op.blocks for v in _inner(block)):
            raise step.refuse(f"{op.outputs[0].name!r} has no derivative: {reason_of(spec)}")
        for name, operand in op.inputs.items():
            values = values_of(operand)
            if not any(value in self.active for value in values):
                continue
            if values[0].dtype not in FLOATS:
                self._stop(op, values)
                continue
            rule = rules.get(name)
            if rule is None:
                raise step.refuse(f"{op.outputs[0].name!r} has no derivative by {name}: {reason_of(spec)}")
            for value in values:
                _float(value)
            shares = None if zero else rule(step)
            for value, share in zip(values, shares if isinstance(shares, tuple) else (shares,) * len(values)):
                if value in self.active:
                    self._give(value, share)

    def _stop(self, op: Op, values: Iterable[Value]) -> None:
        """Remember why no gradient goes on, for everything that is behind: this op, or what gave it an integer."""
        pending = [(value, op) for value in values if value in self.active]
        while pending:
            value, cause = pending.pop()
            if value not in self.stops:
                self.stops[value] = cause
                if value.op is not None:
                    cause = cause if value.dtype in FLOATS else value.op
                    pending += [(v, cause) for v in value.op.operands() if v in self.active]


def _depending(function: Function, ops: Iterable[Op], sources: Iterable[Value]) -> set[Value]:
    """The sources, and every value whose ops take one of them, states that hold one among them."""
    active = set(sources)
    for op in ops:
        if any(v in active for v in (*op.operands(), *(v for block in op.blocks for v in _inner(block)))):
            active.update(op.outputs)
            active.update(state for state, changed in touched(op).items() if changed)
    return active


def _inner(block: Block) -> Iterator[Value]:
    """Everything that the ops of a block take and that it returns."""
    for op in block.walk():
        yield from op.operands()
        for part in op.blocks:
            yield from part.outputs
    yield from block.outputs


Rule = Callable[[Derivation], Any]


def rules_of(spec: OpSpec) -> dict[str, Rule]:
    """The rule of each operand of an op that has one."""
    derivative = spec.derivative
    if derivative is None or isinstance(derivative, str):
        return {}
    return {spec.tensors[0]: derivative} if callable(derivative) else dict(derivative)


def reason_of(spec: OpSpec) -> str:
    """Reason why an op has no derivative, or one of its operands none."""
    if isinstance(spec.derivative, str):
        return spec.derivative
    return "an op of ONNX that MIL lacks" if spec.name.startswith("onnx.") else "no rule goes through it"
