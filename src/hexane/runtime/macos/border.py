"""The border: everything that is asked of macOS, as one object with a declared prototype for every call.

``objc_msgSend`` is not variadic on arm64: a call needs the exact types of its method. So selectors and C functions have
their types here, once, for the real border and for the fake; a call that is not declared cannot be made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hexane.errors import HexaneError
from hexane.private_api.classes import FRAMEWORK

OBJC = "/usr/lib/libobjc.A.dylib"
FOUNDATION = "/System/Library/Frameworks/Foundation.framework/Foundation"
CORE_FOUNDATION = "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"
IO_SURFACE = "/System/Library/Frameworks/IOSurface.framework/IOSurface"
LIBRARIES = (OBJC, FOUNDATION, CORE_FOUNDATION, IO_SURFACE, FRAMEWORK)
"""Opened in this order, by path: their files lie in the shared cache only, so nobody looks for them."""

DESCRIPTOR, MODEL, REQUEST, SURFACE = (
    "_ANEInMemoryModelDescriptor",
    "_ANEInMemoryModel",
    "_ANERequest",
    "_ANEIOSurfaceObject",
)


@dataclass(frozen=True)
class SurfaceForm:
    """The prototype of a call: what it returns and takes, in the words of :data:`TYPES`."""

    result: str
    arguments: tuple[str, ...] = ()


TYPES: dict[str, Any] = {
    "void": None,
    "id": ctypes.c_void_p,  # an object, a class, a surface, or nil
    "address": ctypes.c_void_p,
    "bool": ctypes.c_bool,  # BOOL of arm64
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "long": ctypes.c_long,  # CFIndex, NSInteger
    "size": ctypes.c_size_t,
    "text": ctypes.c_char_p,  # const char * that the callee owns
    "bytes": ctypes.c_char_p,  # memory of ours that is read
    "ids": ctypes.POINTER(ctypes.c_void_p),  # an array of objects
    "error": ctypes.POINTER(ctypes.c_void_p),  # NSError **
}


def _form(result: str, arguments: str = "") -> SurfaceForm:
    return SurfaceForm(result, tuple(arguments.split()))


METHODS: dict[str, SurfaceForm] = {
    "modelWithMILText:weights:optionsPlist:": _form("id", "id id id"),
    "inMemoryModelWithDescriptor:": _form("id", "id"),
    "hexStringIdentifier": _form("id"),
    "compiledModelExists": _form("bool"),
    "compileWithQoS:options:error:": _form("bool", "u32 id error"),
    "loadWithQoS:options:error:": _form("bool", "u32 id error"),
    "evaluateWithQoS:options:request:error:": _form("bool", "u32 id id error"),
    "unloadWithQoS:error:": _form("bool", "u32 error"),
    "modelAttributes": _form("id"),
    "objectWithIOSurface:": _form("id", "id"),
    "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:": _form(
        "id", "id id id id id id id"
    ),
    "UTF8String": _form("text"),
    "domain": _form("id"),
    "code": _form("long"),
    "localizedDescription": _form("id"),
}
"""Methods by selector. Types of the first ten: as the public runners declare them; the last four: Foundation."""

FUNCTIONS: dict[str, SurfaceForm] = {
    "objc_autoreleasePoolPush": _form("id"),
    "objc_autoreleasePoolPop": _form("void", "id"),
    "objc_retain": _form("id", "id"),
    "objc_release": _form("void", "id"),
    "CFStringCreateWithBytes": _form("id", "id bytes long u32 bool"),
    "CFDataCreate": _form("id", "id bytes long"),
    "CFNumberCreate": _form("id", "id long bytes"),
    "CFDictionaryCreate": _form("id", "id ids ids long address address"),
    "CFArrayCreate": _form("id", "id ids long address"),
    "CFArrayGetCount": _form("long", "id"),
    "CFArrayGetValueAtIndex": _form("id", "id long"),
    "CFDictionaryGetValue": _form("id", "id id"),
    "CFRelease": _form("void", "id"),
    "IOSurfaceCreate": _form("id", "id"),
    "IOSurfaceGetBaseAddress": _form("address", "id"),
    "IOSurfaceGetAllocSize": _form("size", "id"),
    "IOSurfaceLock": _form("i32", "id u32 id"),
    "IOSurfaceUnlock": _form("i32", "id u32 id"),
}
"""C functions of libobjc, CoreFoundation and IOSurface, which are public; CF objects are Foundation's own."""


@dataclass
class ErrorSlot:
    """Address of a method's NSError; 0 where it left none."""

    cell: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)

    @property
    def value(self) -> int:
        return self.cell.value or 0

    @value.setter
    def value(self, pointer: int) -> None:
        self.cell.value = pointer


class SystemBorder(Protocol):
    """The other side. Objects, classes and surfaces are addresses; 0 is nil."""

    def open(self, path: str) -> None:
        """dlopen. OSError where there is no such library."""

    def find_class(self, name: str) -> int:
        """objc_getClass."""

    def responds(self, receiver: int, selector: str) -> bool:
        """respondsToSelector:, for objects and classes: a selector that is not known would end the process."""

    def send(self, receiver: int, selector: str, *arguments: Any) -> Any:
        """objc_msgSend with the prototype of :data:`METHODS`."""

    def call(self, function: str, *arguments: Any) -> Any:
        """A C function with the prototype of :data:`FUNCTIONS`."""

    def constant(self, name: str) -> int:
        """The value of an exported pointer, such as kIOSurfaceWidth."""

    def address(self, name: str) -> int:
        """The address of an exported structure, such as kCFTypeArrayCallBacks."""

    def memory(self, address: int, size: int) -> np.ndarray:
        """Bytes at an address, as a view."""

    def again(self) -> list[str]:
        """Arguments with which :func:`hexane.runtime.macos.sides.open_side` gives another process such a border."""


class BorderError(HexaneError):
    """The system has not what the protocol needs, or answered a call with nil."""

    code = "device"


@contextmanager
def pool(border: SystemBorder) -> Iterator[None]:
    """An autorelease pool: what methods return lives until its end unless it is retained."""
    token = border.call("objc_autoreleasePoolPush")
    try:
        yield
    finally:
        border.call("objc_autoreleasePoolPop", token)
