"""Activations and softmax (docs/reference/mil.md 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.numeric import erf, sigmoid, softplus
from hexane.graph.ops._gradients import channels, per_channel
from hexane.graph.ops._rules import along, axis_of
from hexane.graph.registry import op
from hexane.graph.traits import ELEMENTWISE, NEVER_NEGATIVE
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation

_SIMPLE: dict[str, tuple[str, str, Any, Any]] = {
    "relu": (
        "x:N",
        "max(x, 0)",
        lambda x: np.maximum(x, x.dtype.type(0)),
        lambda d: d.grad * d.out.where("greater", 0.0),
    ),
    "relu6": ("x:T", "min(max(x, 0), 6)", lambda x: np.minimum(np.maximum(x, 0), 6), lambda d: d.grad * _inside(d, 6)),
    "softsign": (
        "x:T",
        "x / (1 + abs(x))",
        lambda x: x / (1 + np.abs(x)),
        lambda d: d.grad / (d.x.abs() + 1.0).square(),
    ),
    "softplus": ("x:T", "ln(1 + exp(x))", lambda x: softplus(x), lambda d: d.grad * d.x.sigmoid()),
    "sigmoid": ("x:T", "1 / (1 + exp(-x))", lambda x: sigmoid(x), lambda d: d.grad * (d.out * (1.0 - d.out))),
    "silu": (
        "x:T",
        "x sigmoid(x)",
        lambda x: x * sigmoid(x),
        lambda d: d.grad * ((share := d.x.sigmoid()) + d.out * (1.0 - share)),
    ),
}


def _inside(d: Derivation, high: float) -> Formula:
    """1 where the result lies between 0 and ``high``."""
    return d.out.where("greater", 0.0) * d.out.where("less", high)


for _name, (_signature, _about, _function, _derivative) in _SIMPLE.items():
    _traits = ELEMENTWISE if _name in ("softsign", "silu") else ELEMENTWISE | NEVER_NEGATIVE
    op(_name, _signature, about=_about, traits=_traits, derivative=_derivative)(_function)


def _slope(x: Formula, alpha: Any) -> Formula:
    """1 above 0, alpha from there down."""
    return x.where("greater", 0.0) * (1.0 - alpha) + alpha


@op("leaky_relu", "x:T alpha:float", traits=ELEMENTWISE, derivative=lambda d: d.grad * _slope(d.x, d.alpha))
def leaky_relu(x: np.ndarray, alpha: float) -> np.ndarray:
    """x from 0 on, alpha x below."""
    return np.where(x >= 0, x, x * alpha)


@op(
    "elu",
    "x:T alpha:float",
    traits=ELEMENTWISE,
    derivative=lambda d: d.x.greater(y=0.0).select(a=d.grad, b=d.grad * (d.out + d.alpha)),
)
def elu(x: np.ndarray, alpha: float) -> np.ndarray:
    """x from 0 on, alpha (exp(x) - 1) below."""
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))


@op(
    "clamped_relu",
    "x:T alpha:float beta:float",
    traits=ELEMENTWISE,
    derivative=lambda d: d.grad * (_slope(d.x, d.alpha) * d.out.where("less", d.beta)),
)
def clamped_relu(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """min(beta, x) from 0 on, min(beta, alpha x) below."""
    return np.minimum(np.where(x >= 0, x, x * alpha), x.dtype.type(beta))


@op(
    "thresholded_relu",
    "x:T alpha:float",
    traits=ELEMENTWISE,
    derivative=lambda d: d.grad * d.x.where("greater_equal", d.alpha),
)
def thresholded_relu(x: np.ndarray, alpha: float) -> np.ndarray:
    """x from alpha on, 0 below."""
    return np.where(x >= alpha, x, x.dtype.type(0))


@op(
    "sigmoid_hard",
    "x:T alpha:float beta:float",
    traits=ELEMENTWISE | NEVER_NEGATIVE,
    derivative=lambda d: d.grad * (_inside(d, 1) * d.alpha),
)
def sigmoid_hard(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """min(max(alpha x + beta, 0), 1)."""
    return np.minimum(np.maximum(x * alpha + beta, 0), 1)


@op("linear_activation", "x:T alpha:float beta:float", traits=ELEMENTWISE, derivative=lambda d: d.grad * d.alpha)
def linear_activation(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """alpha x + beta."""
    return x * alpha + beta


@op(
    "scaled_tanh",
    "x:T alpha:float beta:float",
    traits=ELEMENTWISE,
    derivative=lambda d: d.grad * ((1.0 - (d.x * d.beta).tanh().square()) * (d.alpha * d.beta)),
)
def scaled_tanh(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """alpha tanh(beta x)."""
    return alpha * np.tanh(x * beta)


_GELU_MODES = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")


def _gelu_gradient(d: Derivation) -> Formula:
    """The share that passes, and x times its slope; beyond 10 the slope is zero, and a cube would leave fp16."""
    x = d.x
    if d.mode == "SIGMOID_APPROXIMATION":
        share = (x * 1.702).sigmoid()
        return d.grad * (share + x * (share * (1.0 - share)) * 1.702)
    if d.mode == "EXACT":
        bell = (x.square() * -0.5).exp() * float(1 / np.sqrt(2 * np.pi))
        return d.grad * ((x * float(np.sqrt(0.5))).erf() * 0.5 + 0.5 + x * bell)
    x = x.clip(alpha=-10.0, beta=10.0)
    c, square = float(np.sqrt(2 / np.pi)), x.square()
    t = (x * (square * (0.044715 * c) + c)).tanh()
    slope = x * ((1.0 - t.square()) * (square * (3 * 0.044715 * c) + c))
    return d.grad * ((t + 1.0 + slope) * 0.5)


@op("gelu", "x:T mode:str='EXACT'", dynamic=True, traits=ELEMENTWISE, derivative=_gelu_gradient, mode=_GELU_MODES)
def gelu(x: np.ndarray, mode: str) -> np.ndarray:
    """x times the normal distribution function, or one of its two approximations."""
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x * x * x)))
    if mode == "SIGMOID_APPROXIMATION":
        return x * sigmoid(1.702 * x)
    return 0.5 * x * (1 + erf(x * x.dtype.type(np.sqrt(0.5))))


def _per_channel_type(x: TensorType, alpha: TensorType, beta: TensorType | None = None) -> TensorType:
    if x.rank < 3:
        raise GraphError(f"x has rank {x.rank}, at least 3 is needed")
    for vector in (alpha, beta):
        if vector is not None and vector.shape not in ((x.shape[1],), (1,)):
            raise GraphError(f"a parameter of shape {vector.shape} for {x.shape[1]} channels")
    return x


@op(
    "prelu",
    "x:T alpha:U",
    infer=_per_channel_type,
    derivative={
        "x": lambda d: d.grad * _slope(d.x, channels(d.alpha, d.x.rank)),
        "alpha": lambda d: per_channel(d.grad * d.x.minimum(y=0.0), d.alpha),
    },
)
def prelu(x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """x from 0 on, alpha[c] x below."""
    return np.where(x >= 0, x, x * along(alpha, x.ndim, 1))


def _softplus_gradient(d: Derivation, of: str) -> Formula:
    alpha, beta = (channels(vector, d.x.rank) for vector in (d.alpha, d.beta))
    inner = d.x * beta
    if of == "alpha":
        return per_channel(d.grad * inner.softplus(), d.alpha)
    common = d.grad * inner.sigmoid() * alpha
    return common * beta if of == "x" else per_channel(common * d.x, d.beta)


@op(
    "softplus_parametric",
    "x:T alpha:U beta:U",
    infer=_per_channel_type,
    derivative={name: partial(_softplus_gradient, of=name) for name in ("x", "alpha", "beta")},
)
def softplus_parametric(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """alpha[c] ln(1 + exp(beta[c] x))."""
    return along(alpha, x.ndim, 1) * softplus(along(beta, x.ndim, 1) * x)


def _softmax_type(x: TensorType, axis: int) -> TensorType:
    axis_of(axis, x.rank)
    return x


@op(
    "softmax",
    "x:T axis:int=-1",
    infer=_softmax_type,
    dynamic=True,
    traits=NEVER_NEGATIVE,
    derivative=lambda d: d.out * (d.grad - (d.grad * d.out).total([d.axis], keep=True)),
)
def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """exp(x) over its sum along the axis, with the maximum taken off first."""
    if x.shape[axis] == 0:
        return x
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


_TABLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: gelu(x, "EXACT"),
    "gelu_sigmoid": lambda x: gelu(x, "SIGMOID_APPROXIMATION"),
    "sigmoid": lambda x: sigmoid(x),
    "softplus": lambda x: softplus(x),
    "log2": lambda x: np.log2(x),
    "exp2": lambda x: np.exp2(x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}


@op(
    "engine.table",
    "x:T function:str scale:float=1.0 shift:float=0.0 factor:float=1.0",
    dynamic=True,
    traits=ELEMENTWISE,
    derivative="the compiler writes it behind everything that is differentiated",
    function=_TABLES,
)
def engine_table(x: np.ndarray, function: str, scale: float, shift: float, factor: float) -> np.ndarray:
    """scale f(factor x) + shift, which the engine looks up in one table; passes of the compiler make it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(_TABLES[function](factor * x) * scale + shift, x.dtype)
