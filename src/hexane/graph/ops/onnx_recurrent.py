"""Host ops ``onnx.RNN``, ``onnx.GRU``, ``onnx.LSTM``: recurrent layers as ONNX defines them (op sets 7 to 22).

Shapes with the ONNX layout 0: ``X [sequence, batch, input]``, ``W [directions, gates * hidden, input]``,
``R [directions, gates * hidden, hidden]``, ``B [directions, 2 * gates * hidden]``,
states ``[directions, batch, hidden]``, ``Y [sequence, directions, batch, hidden]``. Layout 1 moves the batch first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import fits
from hexane.graph.ops.recurrent import gru_cell, lstm_cell, rnn_cell
from hexane.graph.registry import op
from hexane.graph.types import TensorType

Activation = Callable[[np.ndarray], np.ndarray]

DIRECTIONS = ("forward", "reverse", "bidirectional")
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_DEFAULT_ALPHA = {
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "HardSigmoid": 0.2,
    "Elu": 1.0,
    "ScaledTanh": 1.0,
    "Affine": 1.0,
}
_DEFAULT_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    key = next((function for function in _FUNCTIONS if function.lower() == name.lower()), None)
    if key is None:
        raise GraphError(f"unknown recurrent activation {name!r}", hint=f"one of {', '.join(sorted(_FUNCTIONS))}")
    a = _DEFAULT_ALPHA.get(key, 1.0) if alpha is None else alpha
    b = _DEFAULT_BETA.get(key, 0.0) if beta is None else beta
    function = _FUNCTIONS[key]
    return lambda x: function(x, a, b).astype(x.dtype, copy=False)


_FUNCTIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 0.5 * (1.0 + np.tanh(0.5 * x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.logaddexp(x, 0),
}
_TAKES_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
_TAKES_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}


def _functions(
    kind: str, directions: int, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[list[Activation]]:
    """One list of activations per direction. Alphas and betas are dealt out in order to those that take one."""
    per = len(_DEFAULTS[kind])
    names = [str(n) for n in names] or list(_DEFAULTS[kind]) * directions
    if len(names) != per * directions:
        raise GraphError(
            f"{kind} with {directions} direction(s) needs {per * directions} activations, not {len(names)}"
        )
    alpha, beta = [float(a) for a in alphas], [float(b) for b in betas]
    built = []
    for name in names:
        key = name[:1].upper() + name[1:]
        a = alpha.pop(0) if alpha and key in _TAKES_ALPHA else None
        b = beta.pop(0) if beta and key in _TAKES_BETA else None
        built.append(_activation(name, a, b))
    return [built[d * per : (d + 1) * per] for d in range(directions)]


def _types(kind: str) -> Callable[..., tuple[TensorType, ...]]:
    def infer(
        X: TensorType, W: TensorType, R: TensorType, direction: str, layout: int, **more: Any
    ) -> tuple[TensorType, ...]:
        if (X.rank, W.rank, R.rank) != (3, 3, 3):
            raise GraphError(f"onnx.{kind} takes X, W and R of rank 3, not {X.shape}, {W.shape}, {R.shape}")
        steps, batch = (X.shape[1], X.shape[0]) if layout == 1 else X.shape[:2]
        directions = 2 if direction == "bidirectional" else 1
        hidden, gates = R.shape[2], _GATES[kind]
        if W.shape != (directions, gates * hidden, X.shape[2]):
            raise GraphError(f"onnx.{kind}: W has shape {W.shape}, not {(directions, gates * hidden, X.shape[2])}")
        if R.shape != (directions, gates * hidden, hidden):
            raise GraphError(f"onnx.{kind}: R has shape {R.shape}, not {(directions, gates * hidden, hidden)}")
        state = X.with_shape((batch, directions, hidden) if layout == 1 else (directions, batch, hidden))
        shapes = {
            "B": (directions, 2 * gates * hidden), "sequence_lens": (batch,), "initial_h": state.shape,
            "initial_c": state.shape, "P": (directions, 3 * hidden),
        }  # fmt: skip
        for name, shape in shapes.items():
            fits(more.get(name), shape, f"{name} of onnx.{kind}")
        whole = (batch, steps, directions, hidden) if layout == 1 else (steps, directions, batch, hidden)
        return (X.with_shape(whole), *[state] * (2 if kind == "LSTM" else 1))

    return infer


_OPERANDS = "X:T W:T R:T B:T? sequence_lens:I? initial_h:T? "
_COMMON = (
    " direction:str='forward' layout:int=0 clip:float=0.0 activations:strs=() activation_alpha:floats=() "
    "activation_beta:floats=()"
)


def _run(
    kind: str, X: np.ndarray, W: np.ndarray, R: np.ndarray, B: np.ndarray | None, lengths: np.ndarray | None,
    states: list[np.ndarray | None], P: np.ndarray | None, direction: str, layout: int, clip: float,
    activations: Sequence[str], activation_alpha: Sequence[float], activation_beta: Sequence[float], flag: int,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    out_dtype = X.dtype
    work = np.float64 if out_dtype == np.float64 else np.float32
    X, W, R = (np.asarray(a, work) for a in (X, W, R))
    if layout == 1:
        X = X.transpose(1, 0, 2)
        states = [None if s is None else s.transpose(1, 0, 2) for s in states]
    steps, batch, _ = X.shape
    directions, hidden = W.shape[0], R.shape[2]
    functions = _functions(kind, directions, activations, activation_alpha, activation_beta)
    lengths = np.full(batch, steps) if lengths is None else np.asarray(lengths, np.int64)
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > steps:
        raise GraphError(f"onnx.{kind}: sequence_lens {lengths.tolist()} do not lie in 0..{steps}")
    whole = np.zeros((steps, directions, batch, hidden), work)
    last = [np.zeros((directions, batch, hidden), work) for _ in states]
    for d in range(directions):
        backward = direction == "reverse" or d == 1
        now = [np.zeros((batch, hidden), work) if s is None else np.asarray(s[d], work) for s in states]
        bias_w, bias_r = (None, None) if B is None else np.split(np.asarray(B[d], work), 2)
        gates = X @ W[d].T
        if bias_w is not None:
            gates = gates + bias_w
        step = _CELLS[kind](
            R[d], bias_r, None if P is None else np.asarray(P[d], work), functions[d], clip if clip > 0 else None, flag
        )
        rows = np.arange(batch)
        for t in range(steps):
            # A sequence shorter than the longest one runs backwards from its own end (operator specification).
            at = np.where(t < lengths, lengths - 1 - t, t) if backward else np.full(batch, t)
            live = (t < lengths)[:, None]
            fresh = step(gates[at, rows], now)
            now = [np.where(live, new, old) for new, old in zip(fresh, now)]
            whole[at, d, rows] = np.where(live, now[0], 0)
        for slot, value in zip(last, now):
            slot[d] = value
    if layout == 1:
        whole = whole.transpose(2, 0, 1, 3)
        last = [s.transpose(1, 0, 2) for s in last]
    return tuple(np.ascontiguousarray(a).astype(out_dtype, copy=False) for a in (whole, *last))


def _rnn(inner, bias, peephole, functions, clip, flag):
    return rnn_cell(inner, bias, *functions, clip)


def _gru(inner, bias, peephole, functions, clip, flag):
    return gru_cell(inner, bias, functions, "zrh", after=flag, clip=clip)


def _lstm(inner, bias, peephole, functions, clip, flag):
    return lstm_cell(inner, bias, peephole, functions, "iofc", coupled=flag, clip=clip)


_CELLS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


@op("onnx.RNN", _OPERANDS + _COMMON, infer=_types("RNN"), direction=DIRECTIONS)
def rnn(X, W, R, B, sequence_lens, initial_h, **p):
    """``H = f(X W^T + Wb + H R^T + Rb)``."""
    return _run("RNN", X, W, R, B, sequence_lens, [initial_h], None, flag=0, **p)


@op("onnx.GRU", _OPERANDS + "linear_before_reset:int=0" + _COMMON, infer=_types("GRU"), direction=DIRECTIONS)
def gru(X, W, R, B, sequence_lens, initial_h, linear_before_reset, **p):
    """Gates in ONNX's order z, r, h; ``H = (1 - z) * h + z * H``."""
    return _run("GRU", X, W, R, B, sequence_lens, [initial_h], None, flag=linear_before_reset, **p)


@op(
    "onnx.LSTM",
    _OPERANDS + "initial_c:T? P:T? input_forget:int=0" + _COMMON,
    infer=_types("LSTM"),
    direction=DIRECTIONS,
)
def lstm(X, W, R, B, sequence_lens, initial_h, initial_c, P, input_forget, **p):
    """Gates in ONNX's order i, o, f, c; peepholes ``P`` in the order i, o, f."""
    return _run("LSTM", X, W, R, B, sequence_lens, [initial_h, initial_c], P, flag=input_forget, **p)
