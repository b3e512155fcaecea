"""A piece of work: a function, what it needs, and a key that says by content what comes out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import hexane
from hexane.errors import UsageError

Result = dict[str, np.ndarray]
"""What a piece gives: arrays of numbers or text by name."""


def digest(*parts: Any) -> str:
    """SHA-256 of arrays, bytes and plain values, each with its kind and length."""
    hasher = sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            head, data = f"array {part.dtype.str} {part.shape}", _bytes_of(part)
        elif isinstance(part, bytes):
            head, data = "bytes", part
        else:
            head, data = type(part).__name__, repr(part).encode()
        hasher.update(f"{head} {len(data)}\n".encode())
        hasher.update(data)
    return hasher.hexdigest()


def _bytes_of(array: np.ndarray) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


@cache
def code_digest() -> str:
    """Of hexane itself, sources and tables: the version, and more than the version where one works on hexane."""
    home = Path(hexane.__file__).parent
    files = (path for path in home.rglob("*") if path.suffix in (".py", ".json", ".csv", ".lark"))
    return digest(hexane.__version__, *((str(p.relative_to(home)), p.read_bytes()) for p in sorted(files)))[:24]


@dataclass(frozen=True)
class Shared:
    """Data that many pieces need: they go to a worker once. Known by ``digest``.

    data : the bytes of a program or a network, or any object that can be pickled.
    passing : the pieces that need it follow each other (a block of samples), so that workers may drop it after them.
    """

    digest: str
    data: Any = field(repr=False)
    passing: bool = False

    @classmethod
    def of(cls, data: bytes) -> Shared:
        return cls(digest(data), data)

    def opened(self, how: Callable[[bytes], Any]) -> Any:
        """Result of ``how`` on the bytes; one object in each process."""
        return _opened((self.digest, f"{how.__module__}.{how.__qualname__}"), lambda: how(self.data))


MOST_OPEN = 12
"""Objects that a process holds ready: programs of as many chips and formats as one evaluation usually has."""
_OPEN: OrderedDict[Any, Any] = OrderedDict()
_LOCK = threading.RLock()


def _opened(key: Any, make: Callable[[], Any]) -> Any:
    """By content, so that nothing here is ever out of date."""
    with _LOCK:
        if key not in _OPEN:
            _OPEN[key] = make()
            while len(_OPEN) > MOST_OPEN:
                _OPEN.popitem(last=False)
        _OPEN.move_to_end(key)
        return _OPEN[key]


@dataclass(frozen=True)
class Piece:
    """``function(*shared, *results of needs, *arguments)``, computed once for its key.

    key : digest of everything that decides the result; two pieces with one key give the same bits.
    what : the piece in words, for messages.
    tag : for whoever asked; no part of the content.
    """

    key: str
    function: Callable[..., Result]
    arguments: tuple[Any, ...] = ()
    shared: tuple[Shared, ...] = ()
    needs: tuple[Piece, ...] = ()
    what: str = "a piece"
    tag: Any = None

    @classmethod
    def of(cls, function: Callable[..., Result], *content: Any, **fields: Any) -> Piece:
        """A piece whose key is the digest of ``content``, of its function and of hexane's own code."""
        return cls(
            digest(code_digest(), f"{function.__module__}.{function.__qualname__}", *content), function, **fields
        )

    def tagged(self, tag: Any) -> Piece:
        """The same piece for somebody."""
        return replace(self, tag=tag)


def compute(code: str, function: Callable[..., Result], arguments: tuple[Any, ...], *before: Any) -> Result:
    """Work of a worker on a piece. UsageError where its hexane is another one than the caller's."""
    if code != code_digest():
        raise UsageError("a worker has another hexane than this process", hint="install the same version everywhere")
    return function(*before, *arguments)
