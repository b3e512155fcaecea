"""Numba's compiler as the kernels use it: without the interpreter's lock, remembered on disk where that can be done."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba import njit, types
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys

from hexane import ahead, code_cache

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
        dispatcher = njit(nogil=True, **options)(function)
        dispatcher._cache = Remembered(function)
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
    cfunc: Any = CFunc(function, (arguments, types.void), locals={}, options={"error_model": "numpy"})
    cfunc._cache = Remembered(function)
    cfunc.compile()
    callbacks.append(cfunc)
    return int(cfunc.address)


callbacks: list[Any] = []
"""What is compiled stays."""


class Remembered(FunctionCache):
    """Numba's cache of a function, with our own files and folders (``hexane.code_cache``).

    Numba's index and data files are read without a check, and two processes that write at one time can leave an index
    that names another signature's code. Here a file's name is the digest of what the code is for, and its first bytes
    are the digest of the rest: what does not fit, or cannot be read, is not there. What cannot be written is let go.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name, self._py_func, self._impl = repr(function), function, _Form()
        self._cache_file = Entries(function)
        self._cache_path = str(self._cache_file.sources)
        self.enable()

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError:
            return

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As Numba does it, without its tables of what Python's operations are compiled to (and SciPy behind them).

        Linking needs the runtime's functions alone; who compiles asks for the tables again.
        """
        try:
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        except Exception:  # whatever unpickling and linking stored code may raise
            return None


class _Form(CompileResultCacheImpl):
    """Numba's compiled code as data and back; where the data lie is not its matter."""

    class _Nowhere:
        _py_file, _lineno = "", 0  # for Numba's warning that a function cannot be remembered

        def ensure_cache_path(self) -> None:
            return

    def __init__(self) -> None:
        self._locator = self._Nowhere()


class Entries:
    """The compiled forms of one function on disk, a file for each."""

    def __init__(self, function: Callable[..., Any]) -> None:
        source = Path(function.__code__.co_filename)
        self.sources = source.parent
        self.function = code_cache.name_of(source, function.__name__)
        self.maker = (numba.__version__, llvmlite.__version__, sys.version_info[:2])

    def name(self, key: Any) -> str:
        """The file's name for a key: signature, processor and the function's bytecode."""
        of_key = sha256(repr((self.maker, key)).encode()).hexdigest()[:32]
        return f"{self.function}.{code_cache.digest_of(self.sources)}.{of_key}{code_cache.SUFFIX}"

    def load(self, key: Any) -> Any:
        """The code of a key, or None where there is none that is whole."""
        name = self.name(key)
        for folder in code_cache.readable(self.sources):
            try:
                data = (folder / name).read_bytes()
            except OSError:
                continue
            if sha256(name.encode() + data[DIGEST_BYTES:]).digest() == data[:DIGEST_BYTES]:
                return pickle.loads(data[DIGEST_BYTES:])
        return None

    def save(self, key: Any, data: Any) -> None:
        """Write the code of a key, whole or not at all, and remove what older sources left of the function."""
        from numba.core.serialize import dumps

        folder = code_cache.writable(self.sources)
        if folder is None or not code_cache.is_trusted(folder, self.sources):
            return
        for old in code_cache.stale(self.function, self.sources, folder):
            old.unlink(missing_ok=True)
        path, content = folder / self.name(key), dumps(data)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(sha256(path.name.encode() + content).digest() + content)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        """Remove every form of the function."""
        for path in code_cache.entries(self.function, self.sources):
            path.unlink(missing_ok=True)
