"""Recurrent layers of one step in ops that the engine has: on the host, such a layer cuts a program in two.

Gates as ONNX orders them (``hexane.graph.ops.onnx_recurrent``): i, o, f, c of an LSTM, z, r, h of a GRU.
"""

from __future__ import annotations

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Op, Value
from hexane.passes.rewriting import array_of, as_dtype, is_static

_USUAL = {"onnx.LSTM": ("sigmoid", "tanh", "tanh"), "onnx.GRU": ("sigmoid", "tanh")}


class _Gates:
    """The parameters of a layer, and products with them of a [batch, input] and a state [batch, hidden] or none."""

    def __init__(self, op: Op, b: GraphBuilder, x: Value, h: Value | None) -> None:
        self.b, self.x, self.h = b, x, h
        self.weights, self.inner = (as_dtype(array_of(op.inputs[name])[0], x) for name in "WR")  # type: ignore[index]
        self.hidden = self.inner.shape[1]
        biases = array_of(op.inputs.get("B"))
        whole = np.zeros(2 * len(self.weights)) if biases is None else biases[0].astype(np.float64)
        self.bias, self.inner_bias = np.split(whole, 2)

    def rows(self, gate: int) -> slice:
        return slice(gate * self.hidden, (gate + 1) * self.hidden)

    def both(self, gate: int, h: Value | None) -> Value:
        """x W^T + h R^T + both biases of one gate, as one product."""
        rows = self.rows(gate)
        bias = as_dtype(self.bias[rows] + self.inner_bias[rows], self.x)
        if h is None:
            return self.b.linear(x=self.x, weight=self.weights[rows], bias=bias)
        joined = self.b.concat(values=(self.x, h), axis=1)
        return self.b.linear(x=joined, weight=np.concatenate((self.weights[rows], self.inner[rows]), 1), bias=bias)

    def apart(self, gate: int) -> tuple[Value, Value | np.ndarray]:
        """x W^T with its bias, and h R^T with its own."""
        rows = self.rows(gate)
        bias, inner = (as_dtype(part[rows], self.x) for part in (self.bias, self.inner_bias))
        own = self.b.linear(x=self.x, weight=self.weights[rows], bias=bias)
        return own, inner if self.h is None else self.b.linear(x=self.h, weight=self.inner[rows], bias=inner)


def one_step(op: Op, b: GraphBuilder) -> tuple[Value, ...] | None:
    """An LSTM or a GRU over a sequence of one, in one direction, with constant weights and the usual functions."""
    X = op.inputs["X"]
    if not _is_plain(op) or not is_static(X) or X.shape[0] != 1 or X.is_constant:
        return None
    batch, hidden = X.shape[1], op.inputs["R"].shape[2]
    states: list[Value | None] = []
    for name in ("initial_h", "initial_c"):
        state = op.inputs.get(name)
        states.append(None if state is None else b.reshape(x=state, shape=[batch, hidden]))
    x = b.reshape(x=X, shape=[batch, X.shape[2]])
    results = _lstm(op, b, x, *states) if op.type == "onnx.LSTM" else _gru(op, b, x, states[0])
    last = [b.reshape(x=value, shape=[1, batch, hidden]) for value in results]
    return (b.reshape(x=results[0], shape=[1, 1, batch, hidden]), *last)


def _is_plain(op: Op) -> bool:
    arrays = [array_of(op.inputs[name]) for name in ("W", "R", "B") if op.inputs.get(name) is not None]
    return (
        all(array is not None for array in arrays)
        and not any(op.inputs.get(name) is not None for name in ("sequence_lens", "P"))
        and op.arg("direction") != "bidirectional"
        and not (op.arg("layout") or op.arg("clip"))
        and not (op.type == "onnx.LSTM" and op.arg("input_forget"))
        and tuple(name.lower() for name in op.arg("activations")) in ((), _USUAL[op.type])
    )


def _lstm(op: Op, b: GraphBuilder, x: Value, h: Value | None, c: Value | None) -> tuple[Value, Value]:
    gates = _Gates(op, b, x, h)
    i, o, f = (b.sigmoid(x=gates.both(gate, h)) for gate in range(3))
    cell = b.mul(x=i, y=b.tanh(x=gates.both(3, h)))
    if c is not None:
        cell = b.add(x=b.mul(x=f, y=c), y=cell)
    return b.mul(x=o, y=b.tanh(x=cell)), cell


def _gru(op: Op, b: GraphBuilder, x: Value, h: Value | None) -> tuple[Value]:
    gates = _Gates(op, b, x, h)
    z, r = (b.sigmoid(x=gates.both(gate, h)) for gate in range(2))
    if op.arg("linear_before_reset"):
        own, inner = gates.apart(2)
        n = b.tanh(x=b.add(x=own, y=b.mul(x=r, y=inner)))
    else:
        n = b.tanh(x=gates.both(2, None if h is None else b.mul(x=r, y=h)))
    rest = b.mul(x=n, y=-1.0) if h is None else b.sub(x=h, y=n)
    return (b.add(x=n, y=b.mul(x=z, y=rest)),)
