"""The real border, in ctypes: libobjc, CoreFoundation, IOSurface and the private framework of this Mac.

It is small and has no choices, because nobody here could run it: tests run its marshalling against a C library that
answers under the same names.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.runtime.macos.border import FUNCTIONS, METHODS, OBJC, TYPES, BorderError, ErrorSlot, SurfaceForm


class MacSystem:
    """The border of a Mac. ``libraries``: other files in the place of the system's, by path (tests)."""

    def __init__(self, libraries: Mapping[str, str] | None = None) -> None:
        if sys.platform != "darwin" and libraries is None:
            raise UnsupportedError(
                "the private classes are on macOS only",
                hint='device="virtual:macos" runs the same calls against a fake of them',
            )
        self._files = libraries or {}
        self._open: list[ctypes.CDLL] = []
        objc = self._load(OBJC)
        self._class = self._bound(objc, "objc_getClass", SurfaceForm("id", ("bytes",)))
        self._selector = self._bound(objc, "sel_registerName", SurfaceForm("id", ("bytes",)))
        self._class_of = self._bound(objc, "object_getClass", SurfaceForm("id", ("id",)))
        self._responds = self._bound(objc, "class_respondsToSelector", SurfaceForm("bool", ("id", "id")))
        self._send = ctypes.cast(objc.objc_msgSend, ctypes.c_void_p).value or 0
        self._methods: dict[str, tuple[Any, int]] = {}
        self._functions: dict[str, Any] = {}

    def _load(self, path: str) -> ctypes.CDLL:
        library = ctypes.CDLL(self._files.get(path, path))
        self._open.append(library)
        return library

    @staticmethod
    def _bound(library: ctypes.CDLL, name: str, form: SurfaceForm) -> Any:
        function = getattr(library, name)
        function.restype = TYPES[form.result]
        function.argtypes = [TYPES[kind] for kind in form.arguments]
        return function

    def open(self, path: str) -> None:
        self._load(path)

    def find_class(self, name: str) -> int:
        return self._class(name.encode()) or 0

    def responds(self, receiver: int, selector: str) -> bool:
        # the class of a class is its metaclass, so that one question serves objects and classes
        return bool(self._responds(self._class_of(receiver), self._selector(selector.encode())))

    def send(self, receiver: int, selector: str, *arguments: Any) -> Any:
        if selector not in self._methods:
            form = METHODS[selector]
            kinds = [TYPES[kind] for kind in ("id", "id", *form.arguments)]
            prototype = ctypes.CFUNCTYPE(TYPES[form.result], *kinds)
            self._methods[selector] = (prototype(self._send), self._selector(selector.encode()))
        method, name = self._methods[selector]
        return _plain(METHODS[selector], method(receiver, name, *map(_argument, arguments)))

    def call(self, function: str, *arguments: Any) -> Any:
        if function not in self._functions:
            self._functions[function] = self._bound(self._library_of(function), function, FUNCTIONS[function])
        return _plain(FUNCTIONS[function], self._functions[function](*map(_argument, arguments)))

    def constant(self, name: str) -> int:
        return ctypes.c_void_p.in_dll(self._library_of(name), name).value or 0

    def address(self, name: str) -> int:
        return ctypes.addressof(ctypes.c_char.in_dll(self._library_of(name), name))

    def _library_of(self, name: str) -> ctypes.CDLL:
        for library in self._open:
            if hasattr(library, name):
                return library
        raise BorderError(f"this system has no symbol {name}", hint="its libraries are others than those known here")

    def memory(self, address: int, size: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def again(self) -> list[str]:
        return ["system"]


@lru_cache(maxsize=1)
def this_mac() -> MacSystem:
    """The border of this process: one, as there is one engine. UnsupportedError off macOS."""
    return MacSystem()


def _argument(value: Any) -> Any:
    if isinstance(value, ErrorSlot):
        return ctypes.byref(value.cell)
    if isinstance(value, (list, tuple)):
        return (ctypes.c_void_p * len(value))(*value)
    return value


def _plain(form: SurfaceForm, value: Any) -> Any:
    """Addresses as numbers: ctypes gives None for nil."""
    return value or 0 if form.result in ("id", "address") else value
