"""Element-wise operations and look-up tables over arrays: the front of plain statement and fast kernel."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import planar, tier
from hexane.arithmetic.checks import float16_of
from hexane.arithmetic.formats import halfwords
from hexane.arithmetic.hypotheses import chosen, in_force
from hexane.arithmetic.multiply import Activation
from hexane.arithmetic.tables import lookup_plain, table_halfwords
from hexane.errors import UsageError


def elementwise(
    op: str,
    a: ArrayLike,
    b: ArrayLike,
    exact: bool = False,
    follow: Pointwise | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """a op b in the planar engine: `op` in add, sub, mul, max, min, sumsq; float16, broadcast.

    Source: docs/reference/numerics.md 7.1.

    Exact, then rounded half away; NaN reads as +inf, inf - inf and 0 * inf are +0, zeros come out as +0.
    ``follow`` is applied to the rounded result. Where it can, the fast form puts the result into ``out`` and gives
    that: float16 of five axes, its lines without gaps.
    """
    a, b = (x if type(x) is np.ndarray else np.asarray(x) for x in (a, b))
    for name, array in (("a", a), ("b", b)):
        if array.dtype != np.float16:
            float16_of(array, name)
    if op not in planar.OPERATIONS:
        raise UsageError(f"no operation is called {op!r}", where="op", hint=f"use {', '.join(planar.OPERATIONS)}")
    if a.shape != b.shape:
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError as error:
            raise UsageError(f"a {a.shape} and b {b.shape} do not broadcast", where="b") from error
    if exact or tier.plain(elements=max(a.size, b.size)) or (op == "sumsq" and chosen("planar-square") != "each-step"):
        values = planar.elementwise_plain(op, a, b)
        return values if follow is None else follow(values)
    from hexane.arithmetic.fast.elementwise import NO_TABLE
    from hexane.arithmetic.fast.elementwise import elementwise as fast

    table = NO_TABLE if follow is None else follow.results
    target = None if out is None else out.view(np.uint16)
    values = fast(op, a.view(np.uint16), b.view(np.uint16), NO_TABLE if table is None else table, target)
    result = values.view(np.float16) if out is None else out
    if follow is None or table is not None:
        return result
    return follow(result, result if result.ndim == 5 else None)


def shift_scale(
    x: np.ndarray,
    shift: np.ndarray,
    scale: np.ndarray,
    *,
    subtract: bool = False,
    exact: bool = False,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """`planar.shift_scale` for float16 x with axes (g, d, c, h, w), shift and scale (1 or g, 1, 1 or c, 1, 1).

    The fast form puts the result into ``out`` if it is given: float16, its lines without gaps.
    """
    if exact or tier.plain(elements=x.size) or chosen("planar-shift-scale") != "each-step":
        return planar.shift_scale(x, shift, scale, subtract=subtract)
    from hexane.arithmetic.fast.elementwise import shift_scale as fast

    halves = (a.view(np.uint16) for a in (x, shift, scale))
    if out is None:
        return fast(*halves, subtract=subtract).view(np.float16)
    fast(*halves, subtract=subtract, out=out.view(np.uint16))
    return out


@lru_cache(maxsize=64)
def whole_function(table: bytes) -> np.ndarray:
    """The results (uint16) for all 65536 halfwords of a table given as its 128 bytes."""
    return lookup_plain(np.frombuffer(table, np.uint16), _every_halfword()).view(np.uint16)


def _every_halfword() -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def lookup(table: ArrayLike, x: ArrayLike, exact: bool = False) -> np.ndarray:
    """f(x) for float16 x of any shape, by a table of 64 halfwords (uint16, or float16 of the same bits).

    See docs/reference/numerics.md 8.

    The fast form evaluates the table once for all 65536 inputs and keeps that. Raises `UnsupportedError` for a mode
    that is not known.
    """
    bits = table_halfwords(table)
    x = np.asarray(x)
    if x.dtype != np.float16:
        float16_of(x, "x")
    if exact or x.size < 1024 or tier.plain(elements=x.size):
        return lookup_plain(bits, x)
    from hexane.arithmetic.fast.elementwise import gather

    return gather(whole_function(bits.tobytes()), halfwords(x)).view(np.float16)


def behind_sums(h: np.ndarray, activation: Activation) -> np.ndarray:
    """`multiply.activate` of results of sums (float16, which are never NaN and never -0), the same bits."""
    if activation is None:
        return h
    if isinstance(activation, str):
        return np.maximum(h.view(np.int16), 0).view(np.float16)
    return lookup(activation, h)


class Pointwise:
    """A function of one fp16 value over arrays: there are 65536 values, so its results may be computed once and kept.

    ``key`` names the function and its numbers: equal keys mean equal functions under the same hypotheses.
    """

    def __init__(self, function: Callable[[np.ndarray], np.ndarray], *key: Hashable) -> None:
        self._function = function
        self._name = (key, in_force())
        self.results: np.ndarray | None = None

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The function of every element of a float16 array; where it can in ``out``, which like ``x`` has five axes."""
        results = self.results
        if results is None:
            results = _tables.get(self._name)
        if results is None:
            spent = _spent.get(self._name, 0) + x.size
            if spent < 1 << 16 or tier.plain(elements=x.size):  # not worth a table of its own
                if len(_spent) > MOST_TABLES:
                    _spent.clear()
                _spent[self._name] = spent
                return self._function(x)
            results = self.tabulate()
        if tier.plain(elements=x.size):
            return results[x.view(np.uint16)].view(np.float16)
        from hexane.arithmetic.fast.elementwise import gather

        if out is None:
            return gather(results, x.view(np.uint16)).view(np.float16)
        gather(results, x.view(np.uint16), out.view(np.uint16))
        return out

    def tabulate(self) -> np.ndarray:
        """Compute the results for all 65536 values and keep them, for a function that is needed again."""
        results = _tables.get(self._name)
        if results is None:
            results = _tables[self._name] = self._function(_every_halfword().view(np.float16)).view(np.uint16)
            if len(_tables) > MOST_TABLES:
                _tables.popitem(last=False)
        else:
            _tables.move_to_end(self._name)
        self.results = results
        return results


def planar_copy(*, scale: float = 1.0, bias: float = 0.0, absolute: bool = False, relu: bool = False) -> Pointwise:
    """`planar.formula` of one source: a copy with what follows it."""
    options = {"scale": scale, "bias": bias, "absolute": absolute, "relu": relu}
    return Pointwise(lambda x: planar.formula("add", x, **options), "planar", *options.values())  # type: ignore[arg-type]


MOST_TABLES = 256
"""Tables remembered for functions that come again under the same key: 128 KiB each."""

_tables: OrderedDict[Hashable, np.ndarray] = OrderedDict()

_spent: dict[Hashable, int] = {}
"""Elements of functions without a table so far: as many as there are halfwords are worth one."""
