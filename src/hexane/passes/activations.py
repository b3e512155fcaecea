"""Activations: found where a network spells them out, and written in what the engine has."""

from __future__ import annotations

from math import sqrt

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.types import FLOATS
from hexane.isa.numbers import LARGEST_HALF
from hexane.passes.rewriting import (
    NUMPY_FLOATS,
    array_of,
    as_dtype,
    known,
    number_of,
    operand_and_constant,
    operand_and_number,
    sweep,
)

# -- recognition -----------------------------------------------------------------------------------------------------


def recognise_activations(function: Function) -> int:
    """Find silu, gelu, relu6, hard sigmoid and clip spelled out in simpler ops: one table each on the engine."""
    sweeps = ({"maximum": _clip_from_pair, "minimum": _clip_from_pair}, {"clip": _named_clip})
    late = {"mul": _product, "real_div": _product}
    return sum(sweep(function, rules) for rules in (*sweeps, late))


def _clip_from_pair(op: Op, b: GraphBuilder) -> Value | None:
    """min(max(x, low), high) and max(min(x, high), low), low <= high."""
    outer = operand_and_number(op)
    if outer is None or outer[0].shape != op.output.shape or outer[0].only_user is not op:
        return None
    inner_op, bound = outer[0].op, outer[1]
    other = "minimum" if op.type == "maximum" else "maximum"
    if inner_op is None:
        return None
    if inner_op.type == "relu" and op.type == "minimum" and bound >= 0:
        return b.clip(x=inner_op.inputs["x"], alpha=0.0, beta=bound)
    if inner_op.type != other:
        return None
    inner = operand_and_number(inner_op)
    if inner is None or inner[0].shape != op.output.shape:
        return None
    low, high = (bound, inner[1]) if op.type == "maximum" else (inner[1], bound)
    return b.clip(x=inner[0], alpha=low, beta=high) if low <= high else None


def _named_clip(op: Op, b: GraphBuilder) -> Value | None:
    """clip from 0 to 6 is relu6; from 0 upwards it is relu; of alpha x + beta from 0 to 1 a hard sigmoid."""
    low, high = op.arg("alpha"), op.arg("beta")
    x = op.inputs["x"]
    if not known(low, high) or x.dtype not in ("fp16", "fp32"):
        return None
    if low == 0.0 and high == 6.0:
        return b.relu6(x=x)
    if low == 0.0 and high >= LARGEST_HALF:
        return b.relu(x=x)
    line = _line(x)
    if low == 0.0 and high == 1.0 and line is not None and line[1] > 0:
        return b.sigmoid_hard(x=line[0], alpha=line[1], beta=line[2])
    return None


def _line(value: Value) -> tuple[Value, float, float] | None:
    """value = alpha x + beta with numbers, read off at most one product and one sum."""
    slope, shift, x = 1.0, 0.0, value
    for _ in range(2):
        op = x.op
        if op is None or op.type not in ("mul", "add", "sub", "real_div", "linear_activation") or len(x.users) != 1:
            break
        if op.type == "linear_activation":
            alpha, beta, inner = op.arg("alpha"), op.arg("beta"), op.inputs["x"]
        else:
            pair = operand_and_number(op)
            if pair is None or pair[0].shape != value.shape:
                break
            inner, number, first = pair
            if first and op.type in ("sub", "real_div"):
                break
            alpha, beta = {
                "mul": (number, 0.0),
                "real_div": (1 / number if number else 0.0, 0.0),
                "add": (1.0, number),
                "sub": (1.0, -number),
            }[op.type]
        slope, shift, x = slope * alpha, shift + slope * beta, inner
    return (x, slope, shift) if x is not value else None


def _product(op: Op, b: GraphBuilder) -> Value | None:
    return _scaled_relu6(op, b) or _silu(op, b) or _gelu(op, b)


def _scaled_relu6(op: Op, b: GraphBuilder) -> Value | None:
    """relu6(x + 3) / 6 is the hard sigmoid x / 6 + 1/2; also as the factor 1/6 around x * relu6(x + 3)."""
    pair = operand_and_number(op)
    if pair is None or pair[0].op is None or (pair[2] and op.type == "real_div") or not pair[1]:
        return None
    factor = 1 / pair[1] if op.type == "real_div" else pair[1]
    inner = pair[0].op
    if abs(factor * 6 - 1) > 1e-3 or pair[0].only_user is not op or op.output.shape != pair[0].shape:
        return None
    if inner.type == "relu6":
        return _hard_sigmoid_of(inner, b)
    if inner.type != "mul":
        return None
    for gate, x in (("x", "y"), ("y", "x")):
        relu6 = inner.inputs[gate].op
        if relu6 is not None and relu6.type == "relu6" and inner.inputs[gate].only_user is inner:
            return b.mul(x=inner.inputs[x], y=_hard_sigmoid_of(relu6, b))
    return None


def _hard_sigmoid_of(relu6: Op, b: GraphBuilder) -> Value:
    x = relu6.inputs["x"]
    line = _line(x) or (x, 1.0, 0.0)
    if line[1] <= 0:
        line = (x, 1.0, 0.0)
    return b.sigmoid_hard(x=line[0], alpha=line[1] / 6, beta=line[2] / 6)


def _silu(op: Op, b: GraphBuilder) -> Value | None:
    """x * sigmoid(x)."""
    if op.type != "mul":
        return None
    for gate, other in (("x", "y"), ("y", "x")):
        sigmoid = op.inputs[gate].op
        if sigmoid is not None and sigmoid.type == "sigmoid" and sigmoid.inputs["x"] is op.inputs[other]:
            return b.silu(x=op.inputs[other])
    return None


def _gelu(op: Op, b: GraphBuilder) -> Value | None:
    """x / 2 * (1 + erf(x / sqrt 2)) and x / 2 * (1 + tanh(...)), in any order of the factors."""
    if op.type != "mul":
        return None
    factors, number = _factors(op.output)
    gates = [v for v in factors if _gate(v) is not None]
    if len(factors) != 2 or len(gates) != 1 or abs(number - 0.5) > 1e-3:
        return None
    gate = gates[0]
    gate_of = _gate(gate)
    x = factors[0] if factors[1] is gate else factors[1]
    if gate_of is None or gate_of[0] is not x:
        return None
    return b.gelu(x=x, mode=gate_of[1])


def _factors(value: Value, depth: int = 3) -> tuple[list[Value], float]:
    """The computed factors of a chain of products, and the product of its numbers."""
    op = value.op
    if depth == 0 or op is None or op.type not in ("mul", "real_div"):
        return [value], 1.0
    pair = operand_and_constant(op)
    if pair is not None:
        number = number_of(pair[1])
        if number is None or pair[0].shape != value.shape or (op.type == "real_div" and (pair[2] or not number)):
            return [value], 1.0
        inner, factor = _factors(pair[0], depth - 1)
        return inner, factor * (number if op.type == "mul" else 1 / number)
    if op.type == "real_div":
        return [value], 1.0
    left, a = _factors(op.inputs["x"], depth - 1)
    right, c = _factors(op.inputs["y"], depth - 1)
    return left + right, a * c


def _gate(value: Value) -> tuple[Value, str] | None:
    """(x, mode) of 1 + erf(x / sqrt 2) or 1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))."""
    op = value.op
    pair = None if op is None or op.type != "add" else operand_and_number(op)
    if pair is None or pair[1] != 1.0 or pair[0].op is None:
        return None
    function = pair[0].op
    if function.type == "erf":
        line = _line(function.inputs["x"])
        if line is not None and abs(line[1] * sqrt(2) - 1) < 1e-3 and line[2] == 0.0:
            return line[0], "EXACT"
    if function.type == "tanh":
        x = _cubic(function.inputs["x"])
        if x is not None:
            return x, "TANH_APPROXIMATION"
    return None


def _cubic(value: Value) -> Value | None:
    """x of sqrt(2/pi) (x + 0.044715 x^3)."""
    factors, number = _factors(value)
    if len(factors) != 1 or abs(number / sqrt(2 / np.pi) - 1) > 1e-3:
        return None
    total = factors[0].op
    if total is None or total.type != "add":
        return None
    for x, other in ((total.inputs["x"], total.inputs["y"]), (total.inputs["y"], total.inputs["x"])):
        parts, number = _factors(other, 4)
        cubes = len(parts) == 3 and all(p is x for p in parts)
        power = parts[0].op if len(parts) == 1 else None
        if power is not None and power.type == "pow" and power.inputs["x"] is x:
            cubes = number_of(power.inputs["y"]) == 3.0
        if cubes and abs(number / 0.044715 - 1) < 1e-2:
            return x
    return None


# -- decomposition -----------------------------------------------------------------------------------------------------


def decompose_activations(function: Function) -> int:
    """Write activations without a task of their own (prelu, scaled_tanh, softplus_parametric ...) in simpler ops."""
    return sweep(function, _RULES)


def _relu6(op: Op, b: GraphBuilder) -> Value:
    return b.clip(x=op.inputs["x"], alpha=0.0, beta=6.0)


def _clamped_relu(op: Op, b: GraphBuilder) -> Value:
    """min(beta, leaky_relu(x))."""
    return b.minimum(x=b.leaky_relu(x=op.inputs["x"], alpha=op.arg("alpha")), y=float(op.arg("beta")))


def _prelu(op: Op, b: GraphBuilder) -> Value | None:
    """max(x, 0) + alpha min(x, 0); leaky_relu where all channels have one slope."""
    x, alpha = op.inputs["x"], array_of(op.inputs["alpha"])
    if alpha is None or x.dtype not in NUMPY_FLOATS:
        return None
    slope = number_of(op.inputs["alpha"])
    if slope is not None:
        return b.leaky_relu(x=x, alpha=slope)
    vector = as_dtype(-alpha.reshape(1, -1, *(1,) * (len(x.shape) - 2)), x)
    negative = b.relu(x=b.mul(x=x, y=-1.0))
    return b.add(x=b.relu(x=x), y=b.mul(x=negative, y=vector))


def _elu(op: Op, b: GraphBuilder) -> Value | None:
    """relu(x) + alpha (exp(-relu(-x)) - 1), where alpha is not 1 (alpha 1 has a table)."""
    alpha, x = op.arg("alpha"), op.inputs["x"]
    if alpha == 1.0:
        return None
    negative = b.mul(x=b.relu(x=b.mul(x=x, y=-1.0)), y=-1.0)
    return b.add(x=b.relu(x=x), y=b.mul(x=b.sub(x=b.exp(x=negative), y=1.0), y=float(alpha)))


def _linear_activation(op: Op, b: GraphBuilder) -> Value:
    return b.add(x=b.mul(x=op.inputs["x"], y=float(op.arg("alpha"))), y=float(op.arg("beta")))


def _scaled_tanh(op: Op, b: GraphBuilder) -> Value:
    inner = b.mul(x=op.inputs["x"], y=float(op.arg("beta")))
    return b.mul(x=b.tanh(x=inner), y=float(op.arg("alpha")))


def _softplus_parametric(op: Op, b: GraphBuilder) -> Value | None:
    alpha, beta = array_of(op.inputs["alpha"]), array_of(op.inputs["beta"])
    x = op.inputs["x"]
    if alpha is None or beta is None or x.dtype not in NUMPY_FLOATS:
        return None
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    inner = b.mul(x=x, y=as_dtype(beta.reshape(shape), x))
    return b.mul(x=b.softplus(x=inner), y=as_dtype(alpha.reshape(shape), x))


def _thresholded(op: Op, b: GraphBuilder) -> Value | None:
    """max(x, alpha), as MIL's threshold; a dtype without fractions need not hold alpha."""
    if op.inputs["x"].dtype not in FLOATS:
        return None
    return b.maximum(x=op.inputs["x"], y=float(op.arg("alpha")))


_RULES = {
    "relu6": _relu6,
    "clamped_relu": _clamped_relu,
    "prelu": _prelu,
    "elu": _elu,
    "linear_activation": _linear_activation,
    "scaled_tanh": _scaled_tanh,
    "softplus_parametric": _softplus_parametric,
    "threshold": _thresholded,
}
