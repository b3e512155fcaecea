"""Element-wise operations and look-up tables over arrays: the front of plain statement and fast kernel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import planar
from hexane.arithmetic.checks import float16_of
from hexane.arithmetic.formats import halfwords
from hexane.arithmetic.hypotheses import chosen
from hexane.arithmetic.tables import lookup_plain, table_halfwords
from hexane.errors import UsageError


def elementwise(op: str, a: ArrayLike, b: ArrayLike, exact: bool = False) -> np.ndarray:
    """a op b in the planar engine: `op` in add, sub, mul, max, min, sumsq; float16, broadcast (spec/numerics §7.1).

    Exact, then rounded half away; NaN reads as +inf, inf - inf and 0 * inf are +0, zeros come out as +0.
    """
    a, b = np.asarray(a), np.asarray(b)
    for name, array in (("a", a), ("b", b)):
        if array.dtype != np.float16:
            float16_of(array, name)
    if op not in planar.OPERATIONS:
        raise UsageError(f"no operation is called {op!r}", where="op", hint=f"use {', '.join(planar.OPERATIONS)}")
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError as error:
        raise UsageError(f"a {a.shape} and b {b.shape} do not broadcast", where="b") from error
    if exact or (op == "sumsq" and chosen("planar-square") != "each-step"):
        return planar.elementwise_plain(op, a, b)
    from hexane.arithmetic.fast.elementwise import elementwise as fast

    return fast(op, halfwords(a), halfwords(b)).view(np.float16)


@lru_cache(maxsize=64)
def whole_function(table: bytes) -> np.ndarray:
    """The results (uint16) for all 65536 halfwords of a table given as its 128 bytes."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    return lookup_plain(np.frombuffer(table, np.uint16), every).view(np.uint16)


def lookup(table: ArrayLike, x: ArrayLike, exact: bool = False) -> np.ndarray:
    """f(x) for float16 x of any shape, by a table of 64 halfwords (uint16, or float16 of the same bits).

    See spec/numerics §8.

    The fast form evaluates the table once for all 65536 inputs and keeps that. Raises `UnsupportedError` for a mode
    that is not known.
    """
    bits = table_halfwords(table)
    x = np.asarray(x)
    if x.dtype != np.float16:
        float16_of(x, "x")
    if exact or x.size < 1024:
        return lookup_plain(bits, x)
    return whole_function(bits.tobytes())[halfwords(x)].view(np.float16)
