"""Several functions of one program: one copy of the weights that they share, one state for each name."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from hexane.errors import UsageError
from hexane.graph.constants import Constant
from hexane.graph.ir import Graph
from hexane.graph.types import StateType


def joined(graphs: Mapping[str, Graph]) -> Graph:
    """A program whose functions are those that run of several graphs, by name; the first runs unless one is chosen.

    Constants of the same type and bits become one, so that a file has them once. States of one name are one state:
    UsageError where their types differ. Attributes and metadata are the first graph's.
    """
    if not graphs:
        raise UsageError("a program of no functions")
    shared: dict[Any, Constant] = {}
    states: dict[str, StateType] = {}
    first = next(iter(graphs.values()))
    program = Graph(entry=next(iter(graphs)), version=first.version)
    program.attributes, program.metadata = dict(first.attributes), dict(first.metadata)
    for name, graph in graphs.items():
        function = graph.clone().main
        function.name = name
        for value in function.inputs:
            if isinstance(value.type, StateType) and states.setdefault(value.name, value.type) != value.type:
                raise UsageError(f"state {value.name!r} is {value.type} and {states[value.name]}", where=name)
        for value in function.constants():
            constant = value.constant
            assert constant is not None
            key = constant.type, blake2b(constant.array.tobytes()).digest()
            value.constant = shared.setdefault(key, constant)
        program.add_function(function)
    return program
