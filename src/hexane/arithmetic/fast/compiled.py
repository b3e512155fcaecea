"""Numba's compiler as the kernels use it: without the interpreter's lock, remembered on disk where that can be done."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
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
            drop_stale(Path(dispatcher._cache.cache_path), Path(function.__code__.co_filename).parent)
            _forgive(dispatcher._cache)
        for signature in signatures:
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        return dispatcher

    return decorate


@cache
def drop_stale(folder: Path, sources: Path) -> None:
    """Remove remembered code that is older than any source file beside its own; once in a process.

    Numba looks at the file of each function alone. But compiled functions also hold what they call and numbers from
    their neighbours, such as the places of the vector code.
    """
    try:
        newest = max(source.stat().st_mtime for source in sources.glob("*.py"))
        for index in folder.glob("*.nbi"):
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)
    except OSError:  # what cannot be removed was not written by this user, nor will it be
        return


def _forgive(remembered: Any) -> None:
    """Let what cannot be written to a cache go."""
    save = remembered.save_overload

    def save_overload(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError:
            return

    remembered.save_overload = save_overload
