"""What the engine's arithmetic makes of each op, as the tasks of docs/reference/engine-h13.md 13 compute it.

A rule takes fp16 arrays in the graph's own shapes and returns the result's bits. Rules say nothing of tiles, memory or
tasks: they name the units' operations in order, with every rounding in between. ``UnsupportedError`` says that the
engine does not do it; the caller then computes the op on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hexane.arithmetic import conv2d, elementwise, lookup, mac, matmul, planar
from hexane.arithmetic.formats import canonical, from_bytes, to_bytes
from hexane.arithmetic.integer import mac_scaled, prepare_scaled
from hexane.arithmetic.multiply import multiply_inputs, scale_input
from hexane.arithmetic.reduction import reduce
from hexane.errors import UnsupportedError
from hexane.graph import Op
from hexane.lowering.comparisons import STEPS, sided, with_number
from hexane.lowering.eight_bit import affine_of
from hexane.lowering.functions import FUNCTIONS, LN_2, LOG2_E, lookup_table
from hexane.lowering.fusion import Epilogue, table_name
from hexane.lowering.groups import dense, is_loop
from hexane.lowering.limits import plane_by_rows
from hexane.lowering.powers import check_power
from hexane.lowering.transformations import Transformations
from hexane.lowering.weights import Stream
from hexane.lowering.windows import window_of


@dataclass(frozen=True)
class Arrays:
    """What a rule may ask: an operand by its parameter, and what the compilation decides.

    ``factor`` says what the register of the planar engine's last factor makes of a number (from H15 on, 19 bits).
    """

    operand: Callable[[str], np.ndarray]
    on: Transformations
    factor: Callable[[float], float]

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


def _number(bits: int) -> float:
    return float(np.uint16(bits).view(np.float16))


def through_table(x: np.ndarray, bits: np.ndarray, scale: float = 1.0, add: float = 0.0) -> np.ndarray:
    """A neural engine copy: constant, factor, table (docs/reference/engine-h13.md 8.2)."""
    return lookup(bits, scale_input(x, scale, add))


# -- sums ------------------------------------------------------------------------------------------------------------


def convolution(op: Op, x: np.ndarray, weight: np.ndarray, epilogue: Epilogue, form: str) -> np.ndarray:
    """A convolution with what rides along; ``form`` is direct or winograd (docs/reference/numerics.md 6)."""
    window = window_of(op)
    flat = x.ndim == 3
    source = x[:, :, None] if flat else x
    kernel = weight[:, :, None] if flat else weight
    groups, (height, width) = op.arg("groups"), ((1, *op.output.shape[2:])[-2:])
    one_to_one = weight.shape[1] == 1 and weight.shape[0] == groups
    biased = epilogue.bias is not None
    if groups > 1 and not one_to_one and not is_loop(kernel.shape, groups, bias=biased, width=width, height=height):
        kernel, groups = dense(kernel, groups), 1
    result = conv2d(
        source,
        kernel,
        epilogue.bias,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        groups=groups,
        post_scale=epilogue.scale,
        activation=epilogue.activation,
        form=form,
    )
    return result[:, :, 0] if flat else result


def scaled_convolution(op: Op, x: np.ndarray, weight: np.ndarray, stream: Stream, epilogue: Epilogue) -> np.ndarray:
    """A convolution whose outputs have scales of their own: integers, or a palette with scales."""
    window = window_of(op)
    flat = x.ndim == 3
    source = x[:, :, None] if flat else x
    stream = stream.scaled_by(epilogue.scale)
    kernel = _elements(stream, weight)
    kernel = kernel[:, :, None] if flat else kernel
    assert stream.scales is not None
    ready = prepare_scaled(
        source.shape[1:],
        kernel,
        stream.scales.astype(np.float64),
        epilogue.bias,
        strides=window.strides,
        pads=window.pads,
        activation=epilogue.activation,
    )
    result = ready(source)
    return result[:, :, 0] if flat else result


def scaled_product(op: Op, x: np.ndarray, w: np.ndarray, stream: Stream, epilogue: Epilogue) -> np.ndarray:
    """A product with a constant second operand whose outputs have scales of their own."""
    stream = stream.scaled_by(epilogue.scale)
    kernel = _elements(stream, w)
    kernel = kernel.reshape(kernel.shape[-2:])
    if op.type == "linear" or op.arg("transpose_y"):
        kernel = kernel.T
    if op.type == "matmul" and op.arg("transpose_x"):
        x = np.swapaxes(x, -1, -2)
    assert stream.scales is not None
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    result = mac_scaled(rows, np.ascontiguousarray(kernel), stream.scales, epilogue.bias, epilogue.activation)
    return result.reshape((*x.shape[:-1], result.shape[-1]))


def _elements(stream: Stream, weight: np.ndarray) -> np.ndarray:
    """What is multiplied: integers, or the palette's entries without their scales."""
    if stream.stored is None:
        return weight
    return stream.stored if stream.entries is None else stream.entries[stream.stored]


def product(op: Op, x: np.ndarray, w: np.ndarray, epilogue: Epilogue) -> np.ndarray:
    """A product with constant or computed second operand, batches broadcast."""
    w = w.astype(np.float16, copy=False)  # constants of another dtype than x, as the kernel holds them
    if op.type == "linear":
        w = w.T
    else:
        x = np.swapaxes(x, -1, -2) if op.arg("transpose_x") else x
        w = np.swapaxes(w, -1, -2) if op.arg("transpose_y") else w
    if w.ndim == 2 or int(np.prod(w.shape[:-2])) == 1:
        kernel = np.ascontiguousarray(w.reshape(w.shape[-2:]))
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        result = mac(rows, kernel, epilogue.bias, epilogue.scale, activation=epilogue.activation)
        batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2]) if x.ndim > 1 else ()
        return result.reshape(*batch, *x.shape[max(x.ndim - 2, 0) : -1], kernel.shape[1])
    if epilogue.bias is not None:
        raise UnsupportedError("a bias behind a product whose kernel is computed")
    return matmul(
        np.ascontiguousarray(x), np.ascontiguousarray(w), post_scale=epilogue.scale, activation=epilogue.activation
    )


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
        values = np.float16(number)
        return planar.shift_scale(x, values, np.float16(-1.0), subtract=True)
    if word == "mul":
        return planar.formula("add", x, scale=number)
    return planar.formula("add", x, bias=number if word == "add" else -number)


@rule("relu")
def relu(op: Op, arrays: Arrays) -> np.ndarray:
    """A copy with ReLU."""
    return planar.relu(arrays("x"))


@rule("abs")
def absolute(op: Op, arrays: Arrays) -> np.ndarray:
    return planar.absolute(arrays("x"))


@rule("square")
def square(op: Op, arrays: Arrays) -> np.ndarray:
    return elementwise("sumsq", arrays("x"), np.float16(0))


@rule("identity")
def identity(op: Op, arrays: Arrays) -> np.ndarray:
    return planar.formula("add", arrays("x"))


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
    result = through_table(arrays("x"), table(table_name(op)), _number(function.scale), epsilon)
    return planar.formula("add", result, scale=_number(LN_2)) if op.type == "log" else result


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
        difference = planar.formula("add", x, bias=-number)
    else:
        difference = elementwise("sub", x, y)
    return lookup(table(STEPS[word]), difference) != 0


@rule("floor", "ceil")
def floor(op: Op, arrays: Arrays) -> np.ndarray:
    """Integer part minus one where the fraction is negative; ceil is -floor(-x)."""
    x = arrays("x")
    source = planar.formula("add", x, scale=-1.0) if op.type == "ceil" else x
    below = through_table(through_table(source, table("fraction")), table("below_zero"))
    result = elementwise("sub", through_table(source, table("integer")), below)
    return planar.formula("add", result, scale=-1.0) if op.type == "ceil" else result


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


# -- along axes ------------------------------------------------------------------------------------------------------


def _axes(op: Op, rank: int) -> tuple[str, ...]:
    """The axes that an op runs over, as letters of the 4-D view, those of length 1 left out."""
    axes = op.arg("axes")
    positions = range(rank) if axes is None else axes
    if rank > 4:
        raise UnsupportedError(f"{op.type} of rank {rank}")
    return tuple("nchw"[a % rank + 4 - rank] for a in positions)


def _view(x: np.ndarray) -> np.ndarray:
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


_ORDER = {"hw": (2, 3), "h": (2,), "w": (3,), "c": (1,), "chw": (2, 1, 3)}
"""The order in which one task reads the axes that it reduces (docs/reference/engine-h13.md 8.5, 13)."""


def _no_factor(_: int) -> float:
    return 1.0


def reduced(x: np.ndarray, letters: frozenset[str], factor: Callable[[int], float], **how) -> np.ndarray:
    """A reduction of a 4-D view with its axes kept; sets that no single task takes go in two steps.

    ``factor`` gives what a result is multiplied by from how many elements it is made of.
    """
    letters = frozenset(a for a in letters if x.shape["nchw".index(a)] > 1)
    if "n" in letters:
        raise UnsupportedError("a reduction over the batch")
    if not letters:
        return elementwise("sumsq", x, np.float16(0)) if how.get("op") == "sumsq" else x
    key = "".join(a for a in "chw" if a in letters)
    if key == "hw" and plane_by_rows(*x.shape[1:]):
        middle = reduced(x, frozenset("w"), factor, **how)
        return reduced(middle, frozenset("h"), factor, **{k: v for k, v in how.items() if k != "op"})
    if key not in _ORDER:
        first = "c" if "c" in letters else "w"
        middle = reduced(x, frozenset(first), factor, **how)
        rest = {k: v for k, v in how.items() if k != "op"}
        return reduced(middle, letters - {first}, factor, **rest)
    axes = _ORDER[key]
    count = int(np.prod([x.shape[a] for a in axes]))
    return reduce(x, axes, how.pop("mode", "sum"), scale=factor(count), keepdims=True, **how)


_REDUCTIONS: dict[str, dict] = {
    "reduce_sum": {},
    "reduce_mean": {},
    "reduce_max": {"mode": "max"},
    "reduce_sum_square": {"op": "sumsq"},
}


@rule(*_REDUCTIONS, "reduce_min", "reduce_l1_norm", "reduce_l2_norm")
def reduction(op: Op, arrays: Arrays) -> np.ndarray:
    """Planar engine; minimum, l1 and l2 norms with a planar or table task before or behind."""
    x = arrays("x")
    letters = frozenset(_axes(op, x.ndim))
    view = _view(x)
    if op.type == "reduce_min":
        result = reduced(planar.formula("add", view, scale=-1.0), letters, _no_factor, mode="max")
        result = planar.formula("add", result, scale=-1.0)
    elif op.type == "reduce_l1_norm":
        result = reduced(planar.absolute(view), letters, _no_factor)
    elif op.type == "reduce_l2_norm":
        result = through_table(reduced(view, letters, _no_factor, op="sumsq"), table("sqrt"))
    else:
        result = reduced(
            view, letters, arrays.mean_of if op.type == "reduce_mean" else _no_factor, **_REDUCTIONS[op.type]
        )
    return result.reshape(op.output.shape)


@rule("softmax")
def softmax(op: Op, arrays: Arrays) -> np.ndarray:
    """Maximum, difference times log2 e, exp2, sum, reciprocal, product (docs/reference/engine-h13.md 13).

    Over channels (and over rows of several) the neural engine sums and looks 1/x up; along W the planar engine does.
    """
    x = arrays("x")
    rank = x.ndim
    axis = op.arg("axis") % rank + 4 - rank
    if axis < 0 or any(extent > 1 for extent in x.shape[:-4]):
        raise UnsupportedError(f"softmax of rank {rank}")
    view = x.reshape(((1,) * 4 + x.shape)[-4:])  # leading axes of one element are dropped
    letter = "nchw"[axis]
    if letter == "n":
        raise UnsupportedError("softmax over the batch")
    axis = "nchw".index(letter)
    neural = letter == "c" or (letter == "h" and view.shape[2] > 1)
    top = view.max(axis=axis, keepdims=True) if neural else reduce(view, (axis,), "max", keepdims=True)
    scaled = planar.formula("sub", view, top, scale=_number(LOG2_E))
    powers = lookup(table("exp2"), scaled)
    if neural:
        rows = np.moveaxis(powers, axis, -1)
        ones = np.ones((rows.shape[-1], 1), np.float16)
        flat = np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])
        share = mac(flat, ones, activation=table("reciprocal")).reshape(*rows.shape[:-1], 1)
        share = np.moveaxis(share, -1, axis)
    else:
        share = reduce(powers, (axis,), "sum", nonlinear="reciprocal", keepdims=True)
    return elementwise("mul", share, powers).reshape(x.shape)


@rule("layer_norm")
def layer_norm(op: Op, arrays: Arrays) -> np.ndarray:
    """Mean, 1 / sqrt(mean of squared differences + epsilon), shift and scale; then gamma and beta."""
    x = arrays("x")
    letters = frozenset(_axes(op, x.ndim))
    view = _view(x)
    whole = frozenset(a for a in "chw" if view.shape["nchw".index(a)] > 1)
    letters = frozenset(a for a in letters if view.shape["nchw".index(a)] > 1)
    if "n" in letters or not letters:
        raise UnsupportedError("a layer norm over the batch, or over axes of length 1")
    if letters >= whole:
        order = tuple(a for a in (2, 1, 3) if view.shape[a] > 1 and "nchw"[a] in letters)
    elif letters in (frozenset("w"), frozenset("c"), frozenset("h"), frozenset("hw")):
        order = tuple("nchw".index(a) for a in "chw" if a in letters)
    else:
        raise UnsupportedError(f"a layer norm over {', '.join(sorted(letters))}")
    count = int(np.prod([view.shape[a] for a in order]))
    mean = reduce(view, order, "sum", scale=arrays.mean_of(count), keepdims=True)
    epsilon = float(np.float16(op.arg("epsilon")))
    centred = elementwise("sub", view, mean)
    spread = reduce(
        centred,
        order,
        "sum",
        op="sumsq",
        scale=arrays.mean_of(count),
        epsilon=epsilon,
        nonlinear="rsqrt",
        keepdims=True,
    )
    result = elementwise("mul", centred, spread).reshape(x.shape)
    for name, word in (("gamma", "mul"), ("beta", "add")):
        if op.inputs.get(name) is not None:
            result = elementwise(word, result, _parameter(op, arrays(name), x.ndim))
    return result


def _parameter(op: Op, data: np.ndarray, rank: int) -> np.ndarray:
    axes = op.arg("axes")
    positions = sorted(a % rank for a in (range(rank) if axes is None else axes))
    shape = [1] * rank
    for axis, extent in zip(positions, data.shape):
        shape[axis] = extent
    return data.reshape(shape)


# -- bytes -----------------------------------------------------------------------------------------------------------


@rule("quantize")
def quantise(op: Op, arrays: Arrays) -> np.ndarray:
    """A planar factor, a planar sum where there is a zero point, stored as bytes (hypothesis ``byte-store``)."""
    affine = affine_of(op)
    result = planar.formula("add", arrays("input"), scale=affine.inverse)
    if affine.zero:
        result = planar.formula("add", result, bias=float(affine.zero))
    return to_bytes(result, op.output.dtype)


@rule("dequantize")
def dequantise(op: Op, arrays: Arrays) -> np.ndarray:
    """Bytes as fp16, less the zero point, times the scale."""
    affine = affine_of(op)
    result = from_bytes(arrays("input"))
    if affine.zero:
        result = planar.formula("add", result, bias=-float(affine.zero))
    return planar.formula("add", result, scale=affine.scale)
