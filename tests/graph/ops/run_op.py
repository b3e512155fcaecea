"""Evaluate one op on arrays, through builder, type rule and verifier."""

from __future__ import annotations

import numpy as np

from hexane.graph import GraphBuilder, Value


def evaluate(op, *, opset="ios18", **operands):
    """Results of one op; float, int and bool arrays become inputs, ``(name, array)`` pairs stay constant.

    Every result must come out in the type that the type rule gives. One array, or a tuple of arrays.
    """
    b = GraphBuilder(opset=opset)
    inputs = {}
    constants = {}

    def wrapped(name, operand):
        if isinstance(operand, np.ndarray) and operand.dtype.kind in "fiub" and not name.startswith("_"):
            inputs[name] = operand
            return b.input(name, operand.shape, operand.dtype)
        return operand

    for name, operand in operands.items():
        if isinstance(operand, tuple) and operand and isinstance(operand[0], np.ndarray):
            constants[name] = tuple(wrapped(f"{name}{i}", item) for i, item in enumerate(operand))
        else:
            constants[name] = wrapped(name, operand)
    results = b.op(op, **constants)
    results = results if isinstance(results, tuple) else (results,)
    assert all(isinstance(value, Value) for value in results)
    b.output(*results)
    outputs = b.graph.verify().evaluate(inputs)
    found = tuple(outputs[value.name] for value in results)
    return found[0] if len(found) == 1 else found
