"""The engine's arithmetic of each op, as the tasks of docs/reference/engine-h13.md 13 compute it.

A rule takes fp16 arrays in the graph's own shapes and returns the result's bits. Rules say nothing of tiles, memory or
tasks: they name the units' operations in order, with every rounding in between. ``UnsupportedError`` says that the
engine does not do it; the caller then computes the op on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hexane.arithmetic import elementwise, lookup, mac, planar
from hexane.arithmetic.elementwise import Pointwise, planar_copy
from hexane.arithmetic.formats import canonical, from_bytes, to_bytes
from hexane.arithmetic.multiply import multiply_inputs, scale_input
from hexane.errors import UnsupportedError
from hexane.graph import Op
from hexane.lowering.affine import affine_of
from hexane.lowering.comparisons import STEPS, sided, with_number
from hexane.lowering.functions import FUNCTIONS, LN_2, lookup_table
from hexane.lowering.fusion import table_name
from hexane.lowering.powers import check_power
from hexane.lowering.transformations import Transformations


@dataclass(frozen=True)
class Arrays:
    """Context of a rule: an operand by its parameter, and what the compilation decides.

    ``factor`` says what the register of the planar engine's last factor makes of a number (from H15 on, 19 bits).
    """

    operand: Callable[[str], np.ndarray]
    on: Transformations
    factor: Callable[[float], float]
    l2_bytes: int

    def __call__(self, name: str) -> np.ndarray:
        return self.operand(name)

    def mean_of(self, count: int) -> float:
        """1 / count as that register holds it."""
        return self.factor(1.0 / count)


Rule = Callable[[Op, Arrays], np.ndarray]

RULES: dict[str, Rule] = {}


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Declare the rule of op types."""

    def declare(function: Rule) -> Rule:
        for name in types:
            RULES[name] = function
        return function

    return declare


def table(name: str, *numbers: float) -> np.ndarray:
    return np.frombuffer(lookup_table(name, *numbers), "<u2")


def number_of(bits: int) -> float:
    return float(np.uint16(bits).view(np.float16))


def through_table(x: np.ndarray, bits: np.ndarray, scale: float = 1.0, add: float = 0.0) -> np.ndarray:
    """A neural engine copy: constant, factor, table (docs/reference/engine-h13.md 8.2)."""
    return lookup(bits, scale_input(x, scale, add))


# -- element by element ----------------------------------------------------------------------------------------------

_WORDS = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "max", "minimum": "min"}


@rule(*_WORDS)
def two_operands(op: Op, arrays: Arrays) -> np.ndarray:
    """Planar engine; a single number rides in a field of the task, a clamp by a number is a table."""
    x, y = arrays("x"), arrays("y")
    first, second = op.arg("x"), op.arg("y")
    if first.is_constant or second.is_constant:
        data, value = (x, y) if first.is_constant else (y, x)
        if data.size == 1 and value.shape == op.output.shape:
            return _with_number(op.type, value, float(data.reshape(-1)[0]), first.is_constant)
    return elementwise(_WORDS[op.type], x, y)


def _with_number(word: str, x: np.ndarray, number: float, first: bool) -> np.ndarray:
    if word in ("maximum", "minimum"):
        return through_table(x, table(word, number))
    if word == "sub" and first:
        return Pointwise(
            lambda v: planar.shift_scale(v, np.float16(number), np.float16(-1.0), subtract=True), "less", number
        )(x)
    if word == "mul":
        return planar_copy(scale=number)(x)
    return planar_copy(bias=number if word == "add" else -number)(x)


@rule("relu")
def relu(op: Op, arrays: Arrays) -> np.ndarray:
    """A copy with ReLU."""
    return planar_copy(relu=True)(arrays("x"))


@rule("abs")
def absolute(op: Op, arrays: Arrays) -> np.ndarray:
    return planar_copy(absolute=True)(arrays("x"))


@rule("square")
def square(op: Op, arrays: Arrays) -> np.ndarray:
    return elementwise("sumsq", arrays("x"), np.float16(0))


@rule("identity")
def identity(op: Op, arrays: Arrays) -> np.ndarray:
    return planar_copy()(arrays("x"))


@rule("tile")
def tile(op: Op, arrays: Arrays) -> np.ndarray:
    """A planar copy with a broadcast source: infinity for NaN, +0 for -0. What the engine has no task for is a move."""
    x, reps = arrays("x"), op.arg("reps")
    if reps is None or any(r > 1 and (n > 1 or axis == x.ndim - 4) for axis, (r, n) in enumerate(zip(reps, x.shape))):
        raise UnsupportedError("a tile of a longer axis or along the batch")
    if any(r * n > 1 for r, n in zip(reps[:-4], x.shape)):
        raise UnsupportedError("a tile of more than four axes")
    return np.tile(canonical(x), reps)


@rule(*FUNCTIONS)
def table_function(op: Op, arrays: Arrays) -> np.ndarray:
    """A copy through a table; log is log2 times ln 2 in the planar engine."""
    function = FUNCTIONS[op.type]
    epsilon = float(np.float16(op.arg("epsilon"))) if function.epsilon else 0.0
    result = through_table(arrays("x"), table(table_name(op)), number_of(function.scale), epsilon)
    return planar_copy(scale=number_of(LN_2))(result) if op.type == "log" else result


@rule("leaky_relu", "clip", "sigmoid_hard")
def straight_function(op: Op, arrays: Arrays) -> np.ndarray:
    """A copy through a table of straight pieces."""
    names = ("alpha",) if op.type == "leaky_relu" else ("alpha", "beta")
    return through_table(arrays("x"), table(op.type, *(op.arg(name) for name in names)))


@rule("engine.table")
def scaled_function(op: Op, arrays: Arrays) -> np.ndarray:
    """A copy with a factor, through a table whose results are scaled and shifted."""
    bits = table(op.arg("function"), op.arg("scale"), op.arg("shift"))
    return through_table(arrays("x"), bits, float(np.float16(op.arg("factor"))))


@rule("erf", "softplus", "softsign", "asin", "acos", "atan", "elu")
def fitted_function(op: Op, arrays: Arrays) -> np.ndarray:
    """A copy through a table fitted by hexane; elu has one for alpha 1."""
    if op.type == "elu" and op.arg("alpha") != 1.0:
        raise UnsupportedError("an elu whose alpha is not 1")
    return through_table(arrays("x"), table(op.type))


@rule("cast")
def cast(op: Op, arrays: Arrays) -> np.ndarray:
    """Bytes to fp16; other casts are the host's."""
    if op.arg("x").dtype not in ("bool", "uint8", "int8") or op.output.dtype != "fp16":
        raise UnsupportedError(f"a cast from {op.arg('x').dtype} to {op.output.dtype}")
    return arrays("x").astype(np.float16)


_COMPARISONS = {
    "less": ("below_zero", False, False),
    "greater": ("below_zero", True, False),
    "equal": ("equals_zero", False, False),
    "not_equal": ("not_zero", False, False),
    "greater_equal": ("below_zero", False, True),
    "less_equal": ("below_zero", True, True),
}


@rule(*_COMPARISONS)
def comparison(op: Op, arrays: Arrays) -> np.ndarray:
    """x - y as a sum of two products in the neural engine, then a step table.

    Source: docs/reference/engine-h13.md appendix A.
    """
    if arrays.on.planar_comparisons:
        return _by_difference(op, arrays)
    name, swapped, negated = _COMPARISONS[op.type]
    x, y = np.broadcast_arrays(arrays("x"), arrays("y"))
    if swapped:
        x, y = y, x
    pairs = np.stack([x.reshape(-1), y.reshape(-1)], 1)
    steps = mac(pairs, np.array([[1], [-1]], np.float16), activation=table(name)).reshape(x.shape)
    return (lookup(table("equals_zero"), steps) if negated else steps) != 0


def _by_difference(op: Op, arrays: Arrays) -> np.ndarray:
    """x - y in the planar engine, then a step table; a number is the planar engine's bias."""
    word, first, second = sided(op)
    x, y = (arrays("x"), arrays("y")) if first is op.arg("x") else (arrays("y"), arrays("x"))
    if second.is_constant and y.size == 1:
        word, number = with_number(word, float(y.reshape(-1)[0]))
        y = np.full(y.shape, number, np.float16)
    if second.is_constant and y.size == 1 and x.shape == op.output.shape:
        difference = planar_copy(bias=-number)(x)
    else:
        difference = elementwise("sub", x, y)
    return lookup(table(STEPS[word]), difference) != 0


@rule("floor", "ceil")
def floor(op: Op, arrays: Arrays) -> np.ndarray:
    """Integer part minus one where the fraction is negative; ceil is -floor(-x)."""
    x = arrays("x")
    source = planar_copy(scale=-1.0)(x) if op.type == "ceil" else x
    below = through_table(through_table(source, table("fraction")), table("below_zero"))
    result = elementwise("sub", through_table(source, table("integer")), below)
    return planar_copy(scale=-1.0)(result) if op.type == "ceil" else result


@rule("real_div")
def quotient(op: Op, arrays: Arrays) -> np.ndarray:
    """Reciprocal table and product; a constant divisor is inverted beforehand."""
    y = arrays("y")
    if op.arg("y").is_constant:
        with np.errstate(divide="ignore"):
            inverse = (1.0 / y.astype(np.float64)).astype(np.float16)
    else:
        inverse = through_table(y, table("reciprocal"))
    return elementwise("mul", arrays("x"), inverse)


@rule("pow")
def power(op: Op, arrays: Arrays) -> np.ndarray:
    """Square, or log2, product and exp2."""
    check_power(op, arrays.on)
    x, y = arrays("x"), arrays("y")
    if op.arg("y").is_constant and y.size == 1:
        number, x = float(y.reshape(-1)[0]), x.reshape(op.output.shape)
        if number == 2.0:
            return elementwise("sumsq", x, np.float16(0))
        return through_table(through_table(x, table("log2")), table("exp2"), number)
    if not x.shape == y.shape == op.output.shape:
        raise UnsupportedError("a power with broadcast")
    return through_table(multiply_inputs(through_table(x, table("log2")), y), table("exp2"))


@rule("select")
def select(op: Op, arrays: Arrays) -> np.ndarray:
    """Two masked products and their sum."""
    cond = arrays("cond").astype(np.float16)
    keep = elementwise("mul", arrays("a"), lookup(table("not_zero"), cond))
    other = elementwise("mul", arrays("b"), lookup(table("equals_zero"), cond))
    return elementwise("add", keep, other)


@rule("logical_not")
def logical_not(op: Op, arrays: Arrays) -> np.ndarray:
    return lookup(table("equals_zero"), arrays("x").astype(np.float16)) != 0


# -- bytes -----------------------------------------------------------------------------------------------------------


@rule("quantize")
def quantise(op: Op, arrays: Arrays) -> np.ndarray:
    """A planar factor, a planar sum where there is a zero point, stored as bytes (hypothesis ``byte-store``)."""
    affine = affine_of(op)
    result = planar_copy(scale=affine.inverse)(arrays("input"))
    if affine.zero:
        result = planar_copy(bias=float(affine.zero))(result)
    return to_bytes(result, op.output.dtype)


@rule("dequantize")
def dequantise(op: Op, arrays: Arrays) -> np.ndarray:
    """Bytes as fp16, less the zero point, times the scale."""
    affine = affine_of(op)
    result = from_bytes(arrays("input"))
    if affine.zero:
        result = planar_copy(bias=-float(affine.zero))(result)
    return planar_copy(scale=affine.scale)(result)
