"""Reader of data/numerics/dev.csv: its rows, and what hexane says to each (README there states the encoding)."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from hexane import arithmetic
from hexane.arithmetic import formats, multiply, planar, reduction
from hexane.arithmetic.function_tables import LN_2, LOG2_E, function_table


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def operands(text: str) -> list[int]:
    """`v*n`, `(v1 v2 ..)*n` and plain values, as integers."""
    out: list[int] = []
    for group, times, value, count in re.findall(r"\(([^)]*)\)\*(\d+)|([0-9a-f]+)(?:\*(\d+))?", text):
        out += operands(group) * int(times) if group else [int(value, 16)] * int(count or 1)
    return out


def halves(text: str) -> np.ndarray:
    return np.array(operands(text), np.uint16).view(np.float16)


def number(text: str) -> float:
    base, _, power = text.partition("^")
    return float(base) ** float(power) if power else float(text)


def dot(row: dict[str, str], exact: bool) -> np.ndarray:
    x, w = halves(row["x"]), halves(row["w"])
    w = np.broadcast_to(w, x.shape) if w.size == 1 else w
    bias = halves(row["bias"]) if row["bias"] else None
    return arithmetic.mac(x[None], w[:, None].copy(), bias, exact=exact)[0]


def dot_int8(row: dict[str, str], exact: bool) -> np.ndarray:
    x = np.array(operands(row["x"]), np.uint8).view(np.int8)
    w = np.array(operands(row["w"]), np.uint8).view(np.int8)
    w = np.resize(w, x.shape)
    return arithmetic.mac_int8(x[None], w[:, None].copy(), number(row["scale"]), exact=exact)[0]


def softmax(x: np.ndarray) -> np.ndarray:
    """As the engine's tasks: max, difference times log2 e, 2^x, 1/sum, product; last axis.

    Source: docs/reference/engine-h13.md 13.
    """
    shifted = planar.formula("sub", x, reduction.reduce(x, -1, "max", keepdims=True), scale=LOG2_E)
    e = arithmetic.lookup(function_table("exp2"), shifted)
    return planar.elementwise_plain("mul", e, reduction.reduce(e, -1, nonlinear="reciprocal", keepdims=True))


def round_to_integer(x: np.ndarray) -> np.ndarray:
    """MIL's round as the engine does it: 0.5 away from zero is added in fp16, then the fraction is cut.

    So round(1024) = 1025 and round(-2047) = -2048 (docs/reference/numerics.md 7.1, [HW]).
    """
    value = planar.planar_value(x)
    half_added = planar.round_half_away(value + np.copysign(0.5, value))
    return planar.round_half_away(np.trunc(half_added.astype(np.float64)))


UNARY = {
    "relu": planar.relu,
    "round": round_to_integer,
    "softmax": softmax,
    "inverse": lambda x: arithmetic.lookup(function_table("recip"), multiply.scale_input(x, add=1e-4)),
    "log": lambda x: planar.formula("add", arithmetic.lookup(function_table("log2"), x), scale=LN_2),
    "exp": lambda x: multiply.scale_input(x, post_scale=LOG2_E, activation=function_table("exp2")),
    "reduce_sum": lambda x: reduction.reduce(x, -1)[None],
    **{
        name: lambda x, name=name: arithmetic.lookup(function_table(name), x)
        for name in ("sigmoid", "tanh", "sqrt", "rsqrt", "silu", "gelu")
    },
}
UNARY["gelu_exact"] = UNARY["gelu_tanh"] = UNARY["gelu"]

FLOAT64 = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "inverse": lambda x: 1 / x,
}


def normal_cdf(x: np.ndarray) -> np.ndarray:
    from math import erfc

    return np.array([0.5 * erfc(-v / np.sqrt(2)) for v in x])


FLOAT64["gelu_exact"] = lambda x: x * normal_cdf(x)
FLOAT64["gelu_tanh"] = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def spacing(value: np.ndarray) -> np.ndarray:
    """The fp16 spacing at a value: the ulp of the rows `max_ulp`."""
    _, e = np.frexp(value)
    return np.ldexp(1.0, np.maximum(e - 11, -24))


def same_halfwords(result: np.ndarray, expect: str) -> bool:
    return formats.halfwords(result).ravel().tolist() == operands(expect)


def same_print(value: float, expect: str) -> bool:
    """Equal to half a unit of the last printed digit."""
    digits = re.search(r"\.(\d*)", expect.split("e")[0])
    unit = 10.0 ** (int(expect.partition("e")[2] or 0) - (len(digits[1]) if digits else 0))
    return abs(value - float(expect)) <= 0.5 * unit * (1 + 1e-9)


def errors(row: dict[str, str], x: np.ndarray) -> np.ndarray:
    """Absolute or ulp errors of a table function against float64, at every x."""
    truth = FLOAT64[row["test"]](x.astype(np.float64))
    error = np.abs(UNARY[row["test"]](x).astype(np.float64) - truth)
    return error if row["op"] == "max_abs" else error / spacing(truth)


def reciprocal(x: np.ndarray) -> np.ndarray:
    """1/x by the table alone, no epsilon."""
    return arithmetic.lookup(function_table("recip"), x)
