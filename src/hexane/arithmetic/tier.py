"""Choice of form while no kernel is compiled yet: the plain statement for what is little, the fast kernel else.

To compile the kernels takes a machine some fifteen seconds, once. The plain statements give the same bits and need no
compiler, so the first results of small networks come from them, until ``PATIENCE`` is spent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexane import code_cache

PATIENCE = 2.0
"""Seconds of plain statements in one process, by estimate, before kernels are compiled."""

CALL, PRODUCT, ELEMENT = 2e-3, 25e-9, 150e-9
"""Seconds of a plain statement on one thread: by itself, for each product of a sum, for each element of a result."""

TERMS = 1 << 24
"""Terms that a plain statement lays out at once; with more there is too much memory in it."""


class _Patience:
    """State of the budget: the share spent, the runs that count on it, and whether kernels are there or under way."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.waiting = 0
        self.over = False


_patience = _Patience()


@contextmanager
def while_cold() -> Iterator[None]:
    """A run in which small computations are plain statements if kernels would have to be compiled for them.

    It holds for all threads of the process: the bits are the same.
    """
    if not _patience.over and _compiled():
        compile_now()  # looked up once: this is on the way of every run
    if _patience.over:
        yield
        return
    _patience.waiting += 1
    try:
        yield
    finally:
        _patience.waiting -= 1


def plain(products: int = 0, elements: int = 0, terms: int = 0) -> bool:
    """True where a computation of so many products, elements and terms laid out at once shall be a plain statement."""
    if not _patience.waiting or _patience.over or terms > TERMS:
        return False
    cost = CALL + PRODUCT * (products + terms) + ELEMENT * elements
    if _patience.spent + cost > PATIENCE:
        return False
    _patience.spent += cost
    return True


def compile_now() -> None:
    """No plain statements any more in this process: somebody wants the kernels."""
    _patience.over = True


def spent() -> float:
    """Seconds of plain statements so far, by estimate: a number that has grown where some took the place of kernels."""
    return _patience.spent


def in_use() -> bool:
    """True where kernels have run in this process, so that another one costs little."""
    module = sys.modules.get("hexane.arithmetic.fast.compiled")
    return module is not None and bool(module.callbacks)


def _compiled() -> bool:
    """True where this process has compiled kernels, or finds them on disk."""
    if in_use():
        return True
    sources = Path(__file__).parent / "fast"
    return bool(code_cache.entries(code_cache.name_of(sources / "product.py", "_multiply"), sources))
