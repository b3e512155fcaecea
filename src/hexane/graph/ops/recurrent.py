"""Recurrent layers (docs/reference/mil.md 5.8): host ops; gates in MIL's order, states [batch, directions * H].

With direction "reverse" the steps run from the end, and the outputs stand in the order in which they were computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.numeric import sigmoid
from hexane.graph.registry import op
from hexane.graph.types import TensorType

_STEPS_UNSEEN = "the steps are no ops of the graph: write them out"


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "scaled_tanh": lambda x: 1.7159 * np.tanh(x * (2 / 3)),
}


def _check(
    x: TensorType,
    states: tuple[TensorType, ...],
    weight_ih: TensorType,
    weight_hh: TensorType,
    gates: int,
    directions: int,
) -> int:
    """The hidden size; GraphError when shapes do not go together."""
    if x.rank != 3:
        raise GraphError(f"x has rank {x.rank}, [sequence, batch, input] is needed")
    if weight_hh.rank != 2:
        raise GraphError(f"weight_hh has rank {weight_hh.rank}, [gates * hidden, hidden] is needed")
    hidden = weight_hh.shape[-1]
    if weight_hh.shape != (gates * hidden, hidden) or weight_ih.shape != (gates * hidden, x.shape[2]):
        raise GraphError(
            f"weights {weight_ih.shape} and {weight_hh.shape} for inputs of {x.shape[2]} and {gates} gates"
        )
    for state in states:
        if state.shape != (x.shape[1], directions * hidden):
            raise GraphError(f"an initial state has shape {state.shape}, {(x.shape[1], directions * hidden)} is needed")
    return hidden


def _results(x: TensorType, width: int, output_sequence: bool, states: int) -> tuple[TensorType, ...]:
    sequence = x.with_shape((x.shape[0] if output_sequence else 1, x.shape[1], width))
    return (sequence, *(x.with_shape((x.shape[1], width)) for _ in range(states)))


def _bias_check(bias: TensorType | None, count: int, what: str = "bias") -> None:
    if bias is not None and bias.shape != (count,):
        raise GraphError(f"{what} has shape {bias.shape}, [{count}] is needed")


def _steps(x: np.ndarray, direction: str) -> np.ndarray:
    return x[::-1] if direction == "reverse" else x


def _rnn_type(
    x: TensorType, initial_h: TensorType, weight_ih: TensorType, weight_hh: TensorType, bias: Any, output_sequence: bool
) -> tuple[TensorType, ...]:
    hidden = _check(x, (initial_h,), weight_ih, weight_hh, 1, 1)
    _bias_check(bias, hidden)
    return _results(x, hidden, output_sequence, 1)


@op(
    "rnn",
    "x:T initial_h:T weight_ih:T weight_hh:T bias:T? direction:str='forward' output_sequence:bool=False "
    "activation:str='tanh'",
    infer=_rnn_type,
    derivative=_STEPS_UNSEEN,
    direction=("forward", "reverse"),
    activation=ACTIVATIONS,
)
def rnn(
    x: np.ndarray,
    initial_h: np.ndarray,
    weight_ih: np.ndarray,
    weight_hh: np.ndarray,
    bias: Any,
    direction: str,
    output_sequence: bool,
    activation: str,
) -> tuple[np.ndarray, np.ndarray]:
    """h = activation(W_ih x + W_hh h + b)."""
    act = ACTIVATIONS[activation]
    driven = _steps(x, direction) @ weight_ih.T + (0 if bias is None else bias)
    h, states = initial_h, []
    for step in driven:
        h = act(step + h @ weight_hh.T)
        states.append(h)
    return _sequence(states, h, output_sequence), h


def _sequence(states: list[np.ndarray], last: np.ndarray, output_sequence: bool) -> np.ndarray:
    if output_sequence:
        return np.stack(states) if states else np.zeros((0, *last.shape), last.dtype)
    return last[None]


def _gru_type(
    x: TensorType,
    initial_h: TensorType,
    weight_ih: TensorType,
    weight_hh: TensorType,
    bias: Any,
    output_sequence: bool,
    input_bias: Any,
) -> tuple[TensorType, ...]:
    hidden = _check(x, (initial_h,), weight_ih, weight_hh, 3, 1)
    _bias_check(bias, 3 * hidden)
    _bias_check(input_bias, 3 * hidden, "input_bias")
    return _results(x, hidden, output_sequence, 1)


@op(
    "gru",
    "x:T initial_h:T weight_ih:T weight_hh:T bias:T? direction:str='forward' output_sequence:bool=False "
    "recurrent_activation:str='sigmoid' activation:str='tanh' reset_after:bool=False@18 input_bias:T?@18",
    infer=_gru_type,
    derivative=_STEPS_UNSEEN,
    direction=("forward", "reverse"),
    activation=ACTIVATIONS,
    recurrent_activation=ACTIVATIONS,
)
def gru(
    x: np.ndarray,
    initial_h: np.ndarray,
    weight_ih: np.ndarray,
    weight_hh: np.ndarray,
    bias: Any,
    direction: str,
    output_sequence: bool,
    recurrent_activation: str,
    activation: str,
    reset_after: bool,
    input_bias: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Gates reset, output, update: h = (1 - z) o + z h.

    The reset gate multiplies h before the matrix; with ``reset_after`` the product and its bias instead, as in PyTorch.
    """
    gate, act = ACTIVATIONS[recurrent_activation], ACTIVATIONS[activation]
    hidden = weight_hh.shape[1]
    none = np.zeros(3 * hidden, x.dtype)
    inner = none if bias is None else bias
    driven = _steps(x, direction) @ weight_ih.T + (none if input_bias is None else input_bias)
    r_rows, o_rows, z_rows = (slice(i * hidden, (i + 1) * hidden) for i in range(3))
    h, states = initial_h, []
    for step in driven:
        r = gate(step[:, r_rows] + h @ weight_hh[r_rows].T + inner[r_rows])
        z = gate(step[:, z_rows] + h @ weight_hh[z_rows].T + inner[z_rows])
        if reset_after:
            o = act(step[:, o_rows] + r * (h @ weight_hh[o_rows].T + inner[o_rows]))
        else:
            o = act(step[:, o_rows] + (r * h) @ weight_hh[o_rows].T + inner[o_rows])
        h = (1 - z) * o + z * h
        states.append(h)
    return _sequence(states, h, output_sequence), h


def _lstm_type(
    x: TensorType,
    initial_h: TensorType,
    initial_c: TensorType,
    weight_ih: TensorType,
    weight_hh: TensorType,
    direction: str,
    output_sequence: bool,
    **rest: Any,
) -> tuple[TensorType, ...]:
    directions = 2 if direction == "bidirectional" else 1
    hidden = _check(x, (initial_h, initial_c), weight_ih, weight_hh, 4, directions)
    if directions == 2:
        if rest["weight_ih_back"] is None or rest["weight_hh_back"] is None:
            raise GraphError("direction bidirectional needs weight_ih_back and weight_hh_back")
        _check(x, (), rest["weight_ih_back"], rest["weight_hh_back"], 4, 1)
    for suffix in ("", "_back"):
        _bias_check(rest["bias" + suffix], 4 * hidden, "bias" + suffix)
        _bias_check(rest["peephole" + suffix], 3 * hidden, "peephole" + suffix)
    return _results(x, directions * hidden, output_sequence, 2)


@op(
    "lstm",
    "x:T initial_h:T initial_c:T weight_ih:T weight_hh:T bias:T? peephole:T? weight_ih_back:T? weight_hh_back:T? "
    "bias_back:T? peephole_back:T? direction:str='forward' output_sequence:bool=False "
    "recurrent_activation:str='sigmoid' cell_activation:str='tanh' activation:str='tanh' clip:float?",
    infer=_lstm_type,
    derivative=_STEPS_UNSEEN,
    direction=("forward", "reverse", "bidirectional"),
    activation=ACTIVATIONS,
    recurrent_activation=ACTIVATIONS,
    cell_activation=ACTIVATIONS,
)
def lstm(
    x: np.ndarray,
    initial_h: np.ndarray,
    initial_c: np.ndarray,
    weight_ih: np.ndarray,
    weight_hh: np.ndarray,
    bias: Any,
    peephole: Any,
    weight_ih_back: Any,
    weight_hh_back: Any,
    bias_back: Any,
    peephole_back: Any,
    direction: str,
    output_sequence: bool,
    recurrent_activation: str,
    cell_activation: str,
    activation: str,
    clip: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gates input, forget, output, cell; peepholes see the old cell, the output gate's the new one."""
    acts = (ACTIVATIONS[recurrent_activation], ACTIVATIONS[cell_activation], ACTIVATIONS[activation])
    hidden = weight_hh.shape[1]

    def run(
        steps: np.ndarray, which: slice, w_ih: Any, w_hh: Any, b: Any, p: Any
    ) -> tuple[list, np.ndarray, np.ndarray]:
        return _lstm_steps(steps, initial_h[:, which], initial_c[:, which], w_ih, w_hh, b, p, acts, clip)

    states, h, c = run(_steps(x, direction), slice(0, hidden), weight_ih, weight_hh, bias, peephole)
    if direction != "bidirectional":
        return _sequence(states, h, output_sequence), h, c
    back, h_back, c_back = run(
        x[::-1], slice(hidden, 2 * hidden), weight_ih_back, weight_hh_back, bias_back, peephole_back
    )
    h, c = np.concatenate([h, h_back], axis=1), np.concatenate([c, c_back], axis=1)
    both = [np.concatenate(pair, axis=1) for pair in zip(states, reversed(back))]
    return _sequence(both, h, output_sequence), h, c


def _lstm_steps(
    x: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    bias: Any,
    peephole: Any,
    acts: Any,
    clip: Any,
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    gate, cell, act = acts
    size = w_hh.shape[1]
    p_i, p_f, p_o = (0, 0, 0) if peephole is None else peephole.reshape(3, size)
    driven = x @ w_ih.T + (0 if bias is None else bias)
    states = []
    for step in driven:
        rows = (step + h @ w_hh.T).reshape(len(h), 4, size)
        i = gate(rows[:, 0] + p_i * c)
        f = gate(rows[:, 1] + p_f * c)
        z = cell(rows[:, 3])
        c = f * c + i * z
        if clip is not None:
            c = np.clip(c, -clip, clip)
        h = gate(rows[:, 2] + p_o * c) * act(c)
        states.append(h)
    return states, h, c
