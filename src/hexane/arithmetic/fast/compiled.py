"""Numba's compiler as the kernels use it: without the interpreter's lock, remembered on disk where that can be done."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba import njit, types
from numba.core import event
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc

from hexane import ahead

DIGEST_BYTES = 32

INNER: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "error_model": "numpy"}
"""How functions are compiled that Python does not call."""


def compiled(*signatures: Any, inner: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: compile a function when it is first called, or at once for the signatures that it is to have.

    ``inner``: only compiled functions call it, so that there is nothing to remember but with them.

    A cache on disk saves the next process the compilation, and is nothing that a computation may fail for: without a
    folder to write to, with a full disk, or with damaged files in it, functions are compiled anew in each process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if inner or "inline" in options:
            return njit(**INNER, **options)(function)
        sources = Path(function.__code__.co_filename).parent
        try:
            dispatcher = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder for a cache
            dispatcher = njit(nogil=True, **options)(function)
        else:
            if not _remember(dispatcher._cache, sources):
                dispatcher = njit(nogil=True, **options)(function)
        for signature in signatures:
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        return dispatcher

    return decorate


@compiled(inner=True)
def hold(memory):
    """Last use of memory that is known by its address: before it, Numba must not let it go."""
    return memory.size


def callback(function: Callable[..., None]) -> int:
    """The address of a function of int64, compiled now or remembered; for `call.call_body` and its like.

    An exception in it is printed and goes no further.
    """
    with event.trigger_event(
        "numba:compile", data={"dispatcher": function}
    ):  # time that goes into compiling, wherever that is done
        ahead.wait(function.__module__, function.__name__)
    arguments = (types.int64,) * function.__code__.co_argcount
    made: Any = CFunc(function, (arguments, types.void), locals={}, options={"error_model": "numpy"})
    try:
        made.enable_caching()
    except RuntimeError:  # no folder for a cache
        pass
    else:
        if not _remember(made._cache, Path(function.__code__.co_filename).parent):
            made._cache = NullCache()
    made.compile()
    _callbacks.append(made)
    return int(made.address)


_callbacks: list[Any] = []
"""What is compiled stays."""


def _remember(cache: Any, sources: Path) -> bool:
    """Keep code in our own form of Numba's cache; False where its folder is not to be trusted."""
    folder = Path(cache.cache_path)
    if not is_trusted(folder, sources):
        return False
    drop_stale(folder, sources)
    cache._cache_file = Entries(cache)
    _forgive(cache)
    return True


class Entries:
    """The compiled forms of one function on disk, a file for each; takes the place of Numba's own index and data files.

    Numba's are read without a check, and two processes that write at one time can leave an index that names another
    signature's code. Here a file's name is the digest of what the code is for, and its first bytes are the digest of
    the rest: what does not fit, or cannot be read, is not there.
    """

    def __init__(self, cache: Any) -> None:
        self.folder = Path(cache.cache_path)
        self.base = cache._impl.filename_base
        self.maker = (numba.__version__, llvmlite.__version__, cache._impl.locator.get_source_stamp())

    def path(self, key: Any) -> Path:
        """The file of a key: signature, processor and the function's bytecode."""
        return self.folder / f"{self.base}.{sha256(repr((self.maker, key)).encode()).hexdigest()[:32]}.nbc"

    def load(self, key: Any) -> Any:
        """The code of a key, or None where there is none that is whole."""
        path = self.path(key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        if sha256(path.name.encode() + stored[DIGEST_BYTES:]).digest() == stored[:DIGEST_BYTES]:
            return pickle.loads(stored[DIGEST_BYTES:])
        path.unlink(missing_ok=True)
        return None

    def save(self, key: Any, data: Any) -> None:
        """Write the code of a key, whole or not at all."""
        from numba.core.serialize import dumps

        path, content = self.path(key), dumps(data)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(sha256(path.name.encode() + content).digest() + content)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        """Remove every form of the function."""
        for path in self.folder.glob(f"{self.base}.*.nbc"):
            path.unlink(missing_ok=True)


@cache
def is_trusted(folder: Path, sources: Path) -> bool:
    """Whether nobody else can put code into a folder: whoever can write to it, or owns it, runs what they like here.

    Root, this user and the owner of the sources can do that anyway. Where nothing is known of owners, it is trusted.
    """
    if not hasattr(os, "geteuid"):
        return True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place, source = folder.stat(), sources.stat()
    except OSError:
        return False
    open_to_all = place.st_mode & 0o002 and not source.st_mode & 0o002
    return not open_to_all and place.st_uid in (0, os.geteuid(), source.st_uid)


@cache
def drop_stale(folder: Path, sources: Path) -> None:
    """Remove remembered code that is older than any source file beside its own; once in a process.

    Numba looks at the file of each function alone. But compiled functions also hold what they call and numbers from
    their neighbours, such as the places of the vector code.
    """
    try:
        newest = max(source.stat().st_mtime for source in sources.glob("*.py"))
        for entry in folder.glob("*.nb[ci]"):
            if entry.stat().st_mtime < newest:
                entry.unlink(missing_ok=True)
    except OSError:  # what cannot be removed was not written by this user, nor will it be
        return


def _forgive(remembered: Any) -> None:
    """Let what cannot be written to a cache go, and compile what cannot be read from it."""
    save, load = remembered.save_overload, remembered.load_overload

    def save_overload(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError:
            return

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context)
        except Exception:  # whatever unpickling and linking stored code may raise
            return None

    remembered.save_overload, remembered.load_overload = save_overload, load_overload
