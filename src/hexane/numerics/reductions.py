"""The rules of ops that run along axes: reductions, softmax and norms, every rounding in its place.

They are declared to ``hexane.numerics.rules`` when this is imported.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexane.arithmetic import elementwise, lookup, mac, planar
from hexane.arithmetic.elementwise import planar_copy
from hexane.arithmetic.reduction import reduce
from hexane.errors import UnsupportedError
from hexane.graph import Op
from hexane.lowering.functions import LOG2_E
from hexane.lowering.limits import plane_by_rows
from hexane.numerics.rules import Arrays, number_of, rule, table, through_table


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


def reduced(x: np.ndarray, letters: frozenset[str], factor: Callable[[int], float], l2_bytes: int, **how) -> np.ndarray:
    """A reduction of a 4-D view with its axes kept; sets that no single task takes go in two steps.

    ``factor`` gives what a result is multiplied by from how many elements it is made of.
    """
    letters = frozenset(a for a in letters if x.shape["nchw".index(a)] > 1)
    if "n" in letters:
        raise UnsupportedError("a reduction over the batch")
    if not letters:
        return elementwise("sumsq", x, np.float16(0)) if how.get("op") == "sumsq" else x
    key = "".join(a for a in "chw" if a in letters)
    c, h, w = x.shape[1:]
    if key == "hw" and plane_by_rows(c, h, w, l2_bytes):
        middle = reduced(x, frozenset("w"), factor, l2_bytes, **how)
        return reduced(middle, frozenset("h"), factor, l2_bytes, **{k: v for k, v in how.items() if k != "op"})
    if key not in _ORDER:
        first = "c" if "c" in letters else "w"
        middle = reduced(x, frozenset(first), factor, l2_bytes, **how)
        rest = {k: v for k, v in how.items() if k != "op"}
        return reduced(middle, letters - {first}, factor, l2_bytes, **rest)
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
    view, room = _view(x), arrays.l2_bytes
    if op.type == "reduce_min":
        result = reduced(planar_copy(scale=-1.0)(view), letters, _no_factor, room, mode="max")
        result = planar_copy(scale=-1.0)(result)
    elif op.type == "reduce_l1_norm":
        result = reduced(planar_copy(absolute=True)(view), letters, _no_factor, room)
    elif op.type == "reduce_l2_norm":
        result = through_table(reduced(view, letters, _no_factor, room, op="sumsq"), table("sqrt"))
    else:
        factor = arrays.mean_of if op.type == "reduce_mean" else _no_factor
        result = reduced(view, letters, factor, room, **_REDUCTIONS[op.type])
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
    scaled = planar.formula("sub", view, top, scale=number_of(LOG2_E))
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
