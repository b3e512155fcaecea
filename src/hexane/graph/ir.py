"""The graph: functions, what a file said of them, and what can be asked of a network as a whole."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hexane.counts import counted
from hexane.errors import GraphError
from hexane.graph.compare import difference
from hexane.graph.evaluate import evaluate
from hexane.graph.flat import flat, restored
from hexane.graph.parts import Block, Function, Names, Op, OpList, Problem, Value
from hexane.graph.rewrite import clone_function, cut_function
from hexane.graph.types import Type, tensor_of
from hexane.graph.verify import verify

__all__ = ["Block", "Function", "Graph", "Names", "Op", "OpList", "Problem", "Value"]


class Graph:
    """A network: one or more functions, of which ``main`` (or the first, or ``entry``) is the one that runs.

    ``metadata`` keeps what the file said besides the network (format, author, image scales, plist attributes ...),
    ``build_info`` and ``version`` what a MIL text's header says, ``problems`` what a reader read past.
    """

    def __init__(self, functions: Iterable[Function] = (), *, entry: str | None = None, version: str = "1.3") -> None:
        self.functions: dict[str, Function] = {}
        self.entry = entry
        self.version = version
        self.attributes: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.problems: list[Problem] = []
        for function in functions:
            self.add_function(function)

    def add_function(self, function: Function) -> Function:
        if function.name in self.functions:
            raise GraphError(f"two functions are called {function.name!r}")
        self.functions[function.name] = function
        return function

    @property
    def main(self) -> Function:
        """The function that runs."""
        if not self.functions:
            raise GraphError("the graph has no function")
        if self.entry is not None:
            if self.entry not in self.functions:
                raise GraphError(
                    f"the graph has no function {self.entry!r}", hint=f"it has {', '.join(map(repr, self.functions))}"
                )
            return self.functions[self.entry]
        return self.functions.get("main") or next(iter(self.functions.values()))

    @property
    def inputs(self) -> dict[str, Type]:
        """The inputs of the function that runs, name to type, in declared order."""
        return {value.name: value.type for value in self.main.inputs}

    @property
    def outputs(self) -> dict[str, Type]:
        """Its outputs, name to type, in declared order."""
        return {value.name: value.type for value in self.main.outputs}

    @property
    def ops(self) -> OpList:
        """The ops of the function that runs, in an order in which operands come first."""
        return self.main.ops

    def value(self, name: str) -> Value:
        """The value of that name in the function that runs; GraphError when there is none."""
        for value in self.main.values():
            if value.name == name:
                return value
        raise GraphError(f"there is no value {name!r}", hint="`hexane show` lists them")

    def evaluate(
        self,
        inputs: Mapping[str, Any],
        *,
        function: str | None = None,
        typed: bool = False,
        state: Mapping[str, np.ndarray] | None = None,
    ) -> dict:
        """The float32 reference: outputs by name as NumPy arrays in their declared dtype and shape.

        ``state`` (from ``make_state``) is changed in place; without one every call begins with zeros. See
        ``hexane.graph.evaluate.evaluate_function`` for how each dtype is computed.
        """
        return evaluate(self, inputs, function=function, typed=typed, state=state)

    def make_state(self) -> dict[str, np.ndarray]:
        """The states of the function that runs, all zero, for a sequence of calls of ``evaluate``."""
        tensors = {state.name: tensor_of(state.type) for state in self.main.states}
        return {name: np.zeros(tensor.shape, tensor.carrier) for name, tensor in tensors.items()}

    def verify(self) -> Graph:
        """Check structure and types; GraphError names the first op that breaks a rule. Returns the graph."""
        verify(self)
        return self

    def clone(self) -> Graph:
        """A copy that shares nothing but constant data."""
        copy = Graph(entry=self.entry, version=self.version)
        copy.attributes = dict(self.attributes)
        copy.metadata = dict(self.metadata)
        copy.problems = list(self.problems)
        for function in self.functions.values():
            copy.add_function(clone_function(function))
        return copy

    def cut(self, outputs: Iterable[str]) -> Graph:
        """A copy whose outputs are the values of these names, with what they do not need removed.

        GraphError for a name that no value has, with the nearest ones.
        """
        copy = self.clone()
        cut_function(copy.main, outputs)
        return copy

    def equals(self, other: Graph) -> bool:
        """Same functions, ops, names, types and constants (see ``hexane.graph.compare``)."""
        return difference(self, other) is None

    def to_mil(self, *, version: str | None = None, weights: Any = None) -> str:
        """The graph as MIL text (see ``hexane.formats.mil.to_text``)."""
        from hexane.frontends.networks import to_text

        return to_text(self, version=version, weights=weights)

    def save(self, path: Any) -> None:
        """Write the graph to a file whose suffix names the format (``.mil``, ``.mlpackage``)."""
        from hexane.frontends.networks import save

        save(self, path)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """As `clone`, with attributes and metadata of its own; constant data, which nobody changes, are shared."""
        copied = self.clone()
        for name in ("attributes", "metadata", "problems"):
            setattr(copied, name, copy.deepcopy(getattr(self, name), memo))
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        rest = {name: value for name, value in self.__dict__.items() if name != "functions"}
        return _restored, ([flat(function) for function in self.functions.values()], rest)

    def _repr_html_(self) -> str:
        """Inputs, outputs and ops of the function that runs, for notebooks."""
        from hexane.graph.html import paragraph, table

        main = self.main
        ports = [["input", v.name, v.type] for v in main.inputs] + [["output", v.name, v.type] for v in main.outputs]
        ops = [[op.outputs[0].name, op.type, op.outputs[0].type] for op in main.ops if op.outputs]
        page = table(ports, ["", "name", "type"]) + table(ops, ["op", "type", "result"])
        return paragraph(f"{main.name}: {counted(len(main.ops), 'op')}", bold=True) + page

    def __repr__(self) -> str:
        functions = ", ".join(f"{f.name}: {counted(len(f.ops), 'op')}" for f in self.functions.values())
        return f"<Graph {functions}>"


def _restored(functions: list[dict[str, Any]], rest: dict[str, Any]) -> Graph:
    graph = Graph(map(restored, functions))
    graph.__dict__.update(rest)
    return graph
