"""Gradients by central differences of the float64 evaluation: the truth for the rules beside the ops."""

from __future__ import annotations

import numpy as np

import hexane
from hexane.graph import Graph, GraphBuilder

STEP = 1e-6


def by_differences(graph: Graph, inputs: dict, of: str, wrt: str, seed: np.ndarray) -> np.ndarray:
    """The gradient of sum(seed * of) with respect to an input, one element after the other."""
    x = np.array(inputs[wrt], np.float64)
    gradient = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = x.copy()
            moved[index] += step
            ends.append(np.sum(seed * graph.evaluate({**inputs, wrt: moved})[of]))
        gradient[index] = (ends[0] - ends[1]) / (2 * STEP)
    return gradient


def check(graph: Graph, inputs: dict, of: str, wrt: list[str], *, tolerance: float = 2e-6, **more) -> Graph:
    """Compare every gradient with differences; the graph of gradients."""
    gradients = hexane.grad(graph, of=of, wrt=wrt, **more).verify()
    rng = np.random.default_rng(1)
    seed = rng.normal(size=graph.value(of).shape)
    results = gradients.evaluate({**inputs, f"d_{of}": seed})
    plain = graph.evaluate(inputs)
    for name, value in plain.items():
        assert np.array_equal(results[name], value)
    for name in wrt:
        assert gradients.outputs[f"d_{name}"] == graph.value(name).type
        truth = by_differences(graph, inputs, of, name, seed)
        scale = max(1.0, float(np.max(np.abs(truth), initial=0)))
        assert np.allclose(results[f"d_{name}"], truth, rtol=0, atol=tolerance * scale), name
    return gradients


def check_op(op: str, operands: dict, wrt: list[str] | None = None, *, opset: str = "ios18", **more) -> Graph:
    """The same for one op: float64 arrays become inputs, tuples of arrays several; all float ones are checked."""
    b = GraphBuilder(opset=opset)
    inputs: dict[str, np.ndarray] = {}

    def wrapped(name, operand):
        if not isinstance(operand, np.ndarray):
            return operand
        inputs[name] = operand
        return b.input(name, operand.shape, operand.dtype)

    given = {
        name: tuple(wrapped(f"{name}{i}", item) for i, item in enumerate(operand))
        if isinstance(operand, tuple) and operand and isinstance(operand[0], np.ndarray)
        else wrapped(name, operand)
        for name, operand in operands.items()
    }
    results = b.op(op, **given)
    results = [v for v in (results if isinstance(results, tuple) else (results,)) if v.dtype == "fp64"]
    flat = [b.reshape(x=v, shape=[-1] if 0 not in v.shape else [0]) for v in results]
    y = b.concat(values=tuple(flat), axis=0) if len(flat) > 1 else results[0]
    b.output(b.identity(x=y), name="result")
    chosen = [name for name, value in inputs.items() if value.dtype == np.float64] if wrt is None else wrt
    return check(b.graph, inputs, "result", chosen, **more)
