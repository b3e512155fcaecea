"""Element-wise ops of one operand (docs/reference/mil.md 5.1)."""

from __future__ import annotations

from math import log as log_of
from math import pi
from math import sqrt as sqrt_of
from typing import Any

import numpy as np

from hexane.bits import in_bf16
from hexane.errors import GraphError
from hexane.graph.numeric import erf as erf_values
from hexane.graph.ops._gradients import passed, zero
from hexane.graph.registry import op
from hexane.graph.traits import ELEMENTWISE, NEVER_NEGATIVE, SAME_VALUES
from hexane.graph.types import ANY, DTYPES, STRINGS, TensorType, dtype_name, eval_dtype

_FLOAT: dict[str, Any] = {
    "exp": (np.exp, "e to the power x", lambda d: d.grad * d.out),
    "exp2": (np.exp2, "2 to the power x", lambda d: d.grad * d.out * log_of(2)),
    "sqrt": (np.sqrt, "square root", lambda d: d.grad * 0.5 / d.out),
    "sin": (np.sin, "sine", lambda d: d.grad * d.x.cos()),
    "cos": (np.cos, "cosine", lambda d: -(d.grad * d.x.sin())),
    "tan": (np.tan, "tangent", lambda d: d.grad * (1.0 + d.out.square())),
    "sinh": (np.sinh, "hyperbolic sine", lambda d: d.grad * d.x.cosh()),
    "cosh": (np.cosh, "hyperbolic cosine", lambda d: d.grad * d.x.sinh()),
    "tanh": (np.tanh, "hyperbolic tangent", lambda d: d.grad * (1.0 - d.out.square())),
    "acos": (np.arccos, "inverse cosine", lambda d: -(d.grad / (1.0 - d.x.square()).sqrt())),
    "asin": (np.arcsin, "inverse sine", lambda d: d.grad / (1.0 - d.x.square()).sqrt()),
    "atan": (np.arctan, "inverse tangent", lambda d: d.grad / (1.0 + d.x.square())),
    "atanh": (np.arctanh, "inverse hyperbolic tangent", lambda d: d.grad / (1.0 - d.x.square())),
    "erf": (erf_values, "error function", lambda d: d.grad * ((-d.x.square()).exp() * (2 / sqrt_of(pi)))),
}
_NUMBER: dict[str, Any] = {
    "abs": (np.abs, "magnitude", lambda d: d.grad * d.x.sign()),
    "sign": (np.sign, "-1, 0 or 1", zero),
    "square": (np.square, "x times x", lambda d: d.grad * (d.x * 2.0)),
    "ceil": (np.ceil, "next whole number up", zero),
    "floor": (np.floor, "next whole number down", zero),
    "round": (np.rint, "nearest whole number, halves to even", zero),
}
_NOT = (np.logical_not, "not x", "a truth value is constant between its jumps")

_AT_LEAST_ZERO = ("exp", "exp2", "sqrt", "abs", "square")

for _table, _letter in ((_FLOAT, "T"), (_NUMBER, "N"), ({"logical_not": _NOT}, "B")):
    for _name, (_function, _about, _derivative) in _table.items():
        _traits = ELEMENTWISE | NEVER_NEGATIVE if _name in _AT_LEAST_ZERO else ELEMENTWISE
        op(_name, f"x:{_letter}", about=_about, traits=_traits, derivative=_derivative)(lambda x, _f=_function: _f(x))
op(
    "identity", "x:A", A=ANY | STRINGS, infer=lambda x: x, dynamic=True, about="x itself, text too", traits=SAME_VALUES,
    derivative=passed,
)(lambda x: x)  # fmt: skip


@op(
    "rsqrt",
    "x:T epsilon:float=1e-12",
    traits=ELEMENTWISE | NEVER_NEGATIVE,
    derivative=lambda d: d.grad * (d.out * d.out.square() * -0.5),
)
def rsqrt(x: np.ndarray, epsilon: float) -> np.ndarray:
    """1 / sqrt(x + epsilon)."""
    return 1 / np.sqrt(x + x.dtype.type(epsilon) if epsilon else x)  # of -0 without one -inf, as IEEE 754 has it


@op("log", "x:T epsilon:float=1e-45", traits=ELEMENTWISE, derivative=lambda d: d.grad / d.x.plus(d.epsilon))
def log(x: np.ndarray, epsilon: float) -> np.ndarray:
    """ln(x + epsilon)."""
    return np.log(x + x.dtype.type(epsilon))


@op("inverse", "x:T epsilon:float=1e-4", traits=ELEMENTWISE, derivative=lambda d: -(d.grad * d.out.square()))
def inverse(x: np.ndarray, epsilon: float) -> np.ndarray:
    """1 / (x + epsilon)."""
    return 1 / (x + x.dtype.type(epsilon) if epsilon else x)  # -0 + 0 would be 0, and its inverse no longer negative


@op(
    "clip",
    "x:N alpha:float beta:float",
    traits=ELEMENTWISE,
    derivative=lambda d: d.grad * (d.x.where("greater", d.alpha) * d.x.where("less", d.beta)),
)
def clip(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """min(max(x, alpha), beta)."""
    return np.minimum(np.maximum(x, _bound(x, alpha)), _bound(x, beta))


@op("threshold", "x:N alpha:float", traits=ELEMENTWISE, derivative=lambda d: d.grad * d.x.where("greater", d.alpha))
def threshold(x: np.ndarray, alpha: float) -> np.ndarray:
    """max(x, alpha)."""
    return np.maximum(x, _bound(x, alpha))


def _bound(x: np.ndarray, bound: float) -> Any:
    if x.dtype.kind == "f":
        return x.dtype.type(bound)
    info = np.iinfo(x.dtype)
    return x.dtype.type(min(max(bound, info.min), info.max))


_CAST_NAMES = {"bool": "bool", "int": "int32", "float": "fp32"}


def _cast_dtype(dtype: str) -> str:
    name = dtype_name(_CAST_NAMES.get(dtype, dtype))
    if name == "string":
        raise GraphError("cast to string")
    return name


def _cast_type(x: TensorType, dtype: str) -> TensorType:
    return x.with_dtype(_cast_dtype(dtype))


@op("cast", "x:A dtype:str", infer=_cast_type, dynamic=True, traits=SAME_VALUES, derivative=passed)
def cast(x: np.ndarray, dtype: str) -> np.ndarray:
    """Conversion as C does it: floats to integers truncate, anything that is not zero is true.

    A cast to fp16 or bf16 rounds, also in the float32 reference: it is what the program asks for.
    """
    return convert(x, _cast_dtype(dtype))


def convert(x: np.ndarray, dtype: str) -> np.ndarray:
    """``x`` as values of a MIL dtype, in the reference's dtype for it."""
    target = DTYPES[dtype]
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    if dtype == "bf16":
        return in_bf16(x)
    if target.kind == "b":
        return x != 0
    if target.kind in "iu" and x.dtype.kind == "f":
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
        upper = wide >= 2.0**63
        low = np.where(upper, 0, np.clip(wide, -(2.0**63), np.nextafter(2.0**63, 0))).astype(np.int64)
        if dtype == "uint64":
            high = np.where(upper, np.minimum(wide - 2.0**63, np.nextafter(2.0**63, 0)), 0).astype(np.uint64)
            return np.where(upper, high + np.uint64(1 << 63), low.astype(np.uint64))
        return np.where(upper, np.iinfo(np.int64).max, low).astype(target.carrier)
    return x.astype(eval_dtype(dtype))
