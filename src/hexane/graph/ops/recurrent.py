"""Recurrent layers (docs/reference/mil.md 5.8): host ops; gates in MIL's order, states [batch, directions * H].

With direction "reverse" the steps run from the end, and the outputs stand in the order in which they were computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.numeric import sigmoid
from hexane.graph.ops._rules import fits
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


# -- one step, as MIL and ONNX both have it: their gates stand in other orders -----------------------------------------

Cell = Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]
"""From what the input gives to all gates and the states before a step to those behind it; the first is the result."""


def _clipped(x: np.ndarray, limit: float | None) -> np.ndarray:
    return x if limit is None else np.clip(x, -limit, limit)


def rnn_cell(inner: np.ndarray, bias: Any, function: Any, clip: float | None = None) -> Cell:
    """h = function(input + W h + b); ``inner`` is W, [hidden, hidden]."""

    def step(driven: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        return [function(_clipped(driven + states[0] @ inner.T + (0 if bias is None else bias), clip))]

    return step


def gru_cell(
    inner: np.ndarray, bias: Any, functions: Any, order: str, *, after: bool, clip: float | None = None
) -> Cell:
    """Update z, reset r and the new h in an ``order`` ("zrh"): (1 - z) new + z h.

    The reset gate multiplies h before the matrix; ``after`` it the product and its bias instead.
    """
    gate, function = functions
    biases = dict(zip(order, np.split(np.zeros(len(inner), inner.dtype) if bias is None else bias, 3)))
    matrices = dict(zip(order, np.split(inner, 3)))

    def step(driven: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        (h,) = states
        rows = dict(zip(order, np.split(driven, 3, axis=1)))
        z, r = (gate(_clipped(rows[name] + (h @ matrices[name].T + biases[name]), clip)) for name in "zr")
        new = r * (h @ matrices["h"].T + biases["h"]) if after else (r * h) @ matrices["h"].T + biases["h"]
        return [(1 - z) * function(_clipped(rows["h"] + new, clip)) + z * h]

    return step


def lstm_cell(
    inner: np.ndarray, bias: Any, peephole: Any, functions: Any, order: str, *, coupled: bool = False,
    clip: float | None = None, clip_cell: float | None = None,
) -> Cell:  # fmt: skip
    """Input i, forget f, output o and the cell c in an ``order`` ("iofc"): c = f c + i new, h = o function(c).

    Peepholes see the old cell, the output gate's the new one; ``coupled``: f is 1 - i.
    """
    gate, of_cell, function = functions
    eyes = dict(zip(order, (0, 0, 0) if peephole is None else np.split(peephole, 3)))

    def step(driven: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        h, c = states
        parts = np.split(driven + h @ inner.T + (0 if bias is None else bias), 4, axis=1)
        rows = dict(zip(order, parts))
        i = gate(_clipped(rows["i"] + eyes["i"] * c, clip))
        f = 1 - i if coupled else gate(_clipped(rows["f"] + eyes["f"] * c, clip))
        c = _clipped(f * c + i * of_cell(_clipped(rows["c"], clip)), clip_cell)
        return [gate(_clipped(rows["o"] + eyes["o"] * c, clip)) * function(c), c]

    return step


# -- MIL's layers ------------------------------------------------------------------------------------------------------


def _check(
    x: TensorType, states: tuple[TensorType, ...], weight_ih: TensorType, weight_hh: TensorType, gates: int,
    directions: int = 1,
) -> int:  # fmt: skip
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
        fits(state, (x.shape[1], directions * hidden), "an initial state")
    return hidden


def _results(x: TensorType, width: int, output_sequence: bool, states: int) -> tuple[TensorType, ...]:
    sequence = x.with_shape((x.shape[0] if output_sequence else 1, x.shape[1], width))
    return (sequence, *(x.with_shape((x.shape[1], width)) for _ in range(states)))


def _outcome(cell: Cell, driven: np.ndarray, states: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The result of each step, and the states at the end."""
    results = []
    for row in driven:
        states = cell(row, states)
        results.append(states[0])
    return results, states


def _sequence(results: list[np.ndarray], last: np.ndarray, output_sequence: bool) -> np.ndarray:
    if output_sequence:
        return np.stack(results) if results else np.zeros((0, *last.shape), last.dtype)
    return last[None]


def _driven(x: np.ndarray, direction: str, weight_ih: np.ndarray, bias: Any) -> np.ndarray:
    """The input's share of the gates, in the order of the steps."""
    return (x[::-1] if direction == "reverse" else x) @ weight_ih.T + (0 if bias is None else bias)


def _rnn_type(
    x: TensorType, initial_h: TensorType, weight_ih: TensorType, weight_hh: TensorType, bias: Any, output_sequence: bool
) -> tuple[TensorType, ...]:
    hidden = _check(x, (initial_h,), weight_ih, weight_hh, 1)
    fits(bias, (hidden,), "bias")
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
def rnn(x, initial_h, weight_ih, weight_hh, bias, direction, output_sequence, activation):
    """h = activation(W_ih x + W_hh h + b)."""
    cell = rnn_cell(weight_hh, None, ACTIVATIONS[activation])
    results, (h,) = _outcome(cell, _driven(x, direction, weight_ih, bias), [initial_h])
    return _sequence(results, h, output_sequence), h


def _gru_type(
    x: TensorType, initial_h: TensorType, weight_ih: TensorType, weight_hh: TensorType, output_sequence: bool,
    **biases: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    hidden = _check(x, (initial_h,), weight_ih, weight_hh, 3)
    for name in ("bias", "input_bias"):
        fits(biases[name], (3 * hidden,), name)
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
def gru(x, initial_h, weight_ih, weight_hh, bias, direction, output_sequence, reset_after, input_bias, **functions):
    """Gates reset, output, update: h = (1 - z) o + z h.

    The reset gate multiplies h before the matrix; with ``reset_after`` the product and its bias instead, as in PyTorch.
    """
    acts = [ACTIVATIONS[functions[name]] for name in ("recurrent_activation", "activation")]
    cell = gru_cell(weight_hh, bias, acts, "rhz", after=reset_after)
    results, (h,) = _outcome(cell, _driven(x, direction, weight_ih, input_bias), [initial_h])
    return _sequence(results, h, output_sequence), h


def _lstm_type(
    x: TensorType, initial_h: TensorType, initial_c: TensorType, weight_ih: TensorType, weight_hh: TensorType,
    direction: str, output_sequence: bool, **rest: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    directions = 2 if direction == "bidirectional" else 1
    hidden = _check(x, (initial_h, initial_c), weight_ih, weight_hh, 4, directions)
    if directions == 2:
        if rest["weight_ih_back"] is None or rest["weight_hh_back"] is None:
            raise GraphError("direction bidirectional needs weight_ih_back and weight_hh_back")
        _check(x, (), rest["weight_ih_back"], rest["weight_hh_back"], 4)
    for suffix in ("", "_back"):
        fits(rest["bias" + suffix], (4 * hidden,), "bias" + suffix)
        fits(rest["peephole" + suffix], (3 * hidden,), "peephole" + suffix)
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
def lstm(x, initial_h, initial_c, direction, output_sequence, clip, **layers):
    """Gates input, forget, output, cell; peepholes see the old cell, the output gate's the new one."""
    acts = [ACTIVATIONS[layers[name]] for name in ("recurrent_activation", "cell_activation", "activation")]
    hidden = layers["weight_hh"].shape[1]

    def run(suffix: str, way: str, first: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        w_ih, w_hh, bias, p = (layers[name + suffix] for name in ("weight_ih", "weight_hh", "bias", "peephole"))
        cell = lstm_cell(w_hh, None, p, acts, "ifoc", clip_cell=clip)
        states = [state[:, first : first + hidden] for state in (initial_h, initial_c)]
        return _outcome(cell, _driven(x, way, w_ih, bias), states)

    results, (h, c) = run("", direction, 0)
    if direction == "bidirectional":
        back, ends = run("_back", "reverse", hidden)
        h, c = (np.concatenate(pair, axis=1) for pair in zip((h, c), ends))
        results = [np.concatenate(pair, axis=1) for pair in zip(results, reversed(back))]
    return _sequence(results, h, output_sequence), h, c
