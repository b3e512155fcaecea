"""Foundation objects over the border: made by CoreFoundation, which is C, and given back in reverse order."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from hexane.runtime.macos.border import BorderError, SystemBorder

UTF8 = 0x08000100
"""kCFStringEncodingUTF8."""
SINT64 = 4
"""kCFNumberSInt64Type."""


class Objects:
    """Objects that this owner holds; a context manager that releases them, the last one first."""

    def __init__(self, border: SystemBorder) -> None:
        self.border = border
        self._held = ExitStack()

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release everything that is held."""
        self._held.close()

    def text(self, value: str) -> int:
        """An NSString."""
        data = value.encode()
        return self._own("a string", self.border.call("CFStringCreateWithBytes", 0, data, len(data), UTF8, False))

    def data(self, value: bytes) -> int:
        """An NSData with a copy of the bytes."""
        return self._own("data", self.border.call("CFDataCreate", 0, value, len(value)))

    def number(self, value: int) -> int:
        """An NSNumber."""
        return self._own("a number", self.border.call("CFNumberCreate", 0, SINT64, struct.pack("<q", value)))

    def array(self, items: Sequence[int]) -> int:
        """An NSArray, which retains its items."""
        calls = self.border.address("kCFTypeArrayCallBacks")
        return self._own("an array", self.border.call("CFArrayCreate", 0, list(items), len(items), calls))

    def dictionary(self, items: Mapping[int, int]) -> int:
        """An NSDictionary of objects, which retains keys and values."""
        reference = self.border.call(
            "CFDictionaryCreate",
            0,
            list(items),
            list(items.values()),
            len(items),
            self.border.address("kCFTypeDictionaryKeyCallBacks"),
            self.border.address("kCFTypeDictionaryValueCallBacks"),
        )
        return self._own("a dictionary", reference)

    def keep(self, what: str, pointer: int) -> int:
        """Retain what a method returned; BorderError for nil."""
        if not pointer:
            raise BorderError(f"macOS gave no {what}", hint="`hexane doctor` says what this system has")
        self.border.call("objc_retain", pointer)
        self._held.callback(partial(self.border.call, "objc_release", pointer))
        return pointer

    def _own(self, what: str, pointer: int) -> int:
        if not pointer:
            raise BorderError(f"CoreFoundation could not make {what}", hint="memory may be short")
        self._held.callback(partial(self.border.call, "CFRelease", pointer))
        return pointer


def text_of(border: SystemBorder, string: int) -> str:
    """An NSString's text; nothing of nil."""
    raw = border.send(string, "UTF8String") if string else None
    return "" if raw is None else raw.decode("utf-8", "replace")


def items_of(border: SystemBorder, array: int) -> Iterator[int]:
    """The items of an NSArray."""
    for index in range(border.call("CFArrayGetCount", array)):
        yield border.call("CFArrayGetValueAtIndex", array, index)
