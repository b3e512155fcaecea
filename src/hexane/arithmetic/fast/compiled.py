"""Numba's compiler as the kernels use it: without the interpreter's lock, remembered on disk where that can be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: compile a function when it is first called, or at once for the signatures that it is to have.

    A cache on disk saves the next process the compilation, and is nothing that a computation may fail for: without a
    folder to write to, or with a full disk, functions are compiled anew in each process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            dispatcher = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder for a cache
            dispatcher = njit(nogil=True, **options)(function)
        else:
            _forgive(dispatcher._cache)
        for signature in signatures:
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        return dispatcher

    return decorate


def _forgive(cache: Any) -> None:
    """Let what cannot be written to a cache go."""
    save = cache.save_overload

    def save_overload(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError:
            return

    cache.save_overload = save_overload
