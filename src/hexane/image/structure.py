"""Binary structures as frozen dataclasses: a class body reads like the table that describes the bytes.

A field made with `u16`, `u32`, `u64`, `text` or `array` takes the next bytes of the structure, little endian. Other
fields of the class (strings behind the fixed part, nested structures) have no place in the fixed part.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import MISSING, field, fields
from functools import partial
from typing import Any, Self

from hexane.errors import FormatError, UsageError


def _packed(code: str, default: Any = None) -> Any:
    return field(default=MISSING if default is None else default, metadata={"code": code})


u8, u16, u32, u64 = (partial(_packed, code) for code in "BHIQ")
"""An integer of so many bits, with a default or without."""


def text(length: int, default: str | None = None) -> Any:
    """A NUL-padded string of exactly ``length`` bytes."""
    return _packed(f"{length}s", default)


def array(code: str, length: int, default: tuple[int, ...] | None = None) -> Any:
    """``length`` integers of one struct code (``"I"``, ``"Q"``)."""
    return _packed(f"{length}{code}", default)


def to_text(raw: bytes) -> str:
    """Bytes up to the first NUL as a string; bytes that are not UTF-8 survive the way back."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def to_bytes(string: str) -> bytes:
    """The bytes of a string that `to_text` gave."""
    return string.encode("utf-8", "surrogateescape")


def paint(canvas: bytearray, offset: int, content: bytes) -> None:
    """Put bytes at an offset of a canvas; `FormatError` where they do not fit."""
    if not content:
        return
    if offset + len(content) > len(canvas):
        raise FormatError(f"a part of {len(content)} bytes does not fit the file of {len(canvas)}", offset=offset)
    canvas[offset : offset + len(content)] = content


def canvas_of(size: int, parts: Iterable[tuple[int, bytes]]) -> bytes:
    """A file of ``size`` bytes: its parts at their offsets on zeros."""
    canvas = bytearray(size)
    for offset, content in parts:
        paint(canvas, offset, content)
    return bytes(canvas)


class Structure:
    """Base of the frozen dataclasses that stand for bytes."""

    @classmethod
    def fixed_size(cls) -> int:
        """Bytes of the fixed part."""
        return _plan(cls)[0].size

    @classmethod
    def read_fields(cls, data: bytes, offset: int, where: str) -> dict[str, Any]:
        """The fixed part at a byte offset as keyword arguments of the class; `FormatError` where it does not fit."""
        layout, plan = _plan(cls)
        if offset < 0 or offset + layout.size > len(data):
            raise FormatError(
                f"{where} needs {layout.size} bytes, {max(0, len(data) - offset)} are left", offset=min(offset, 1 << 64)
            )
        values = iter(layout.unpack_from(data, offset))
        out: dict[str, Any] = {}
        for name, kind, count in plan:
            if kind == "text":
                out[name] = to_text(next(values))
            elif kind == "array":
                out[name] = tuple(next(values) for _ in range(count))
            else:
                out[name] = next(values)
        return out

    @classmethod
    def read(cls, data: bytes, offset: int, where: str) -> Self:
        """The structure at a byte offset, for classes that are all fixed part."""
        return cls(**cls.read_fields(data, offset, where))

    def pack(self) -> bytes:
        """The bytes of the fixed part; `UsageError` names a field whose value does not fit."""
        layout, plan = _plan(type(self))
        values: list[Any] = []
        for name, kind, count in plan:
            value = getattr(self, name)
            if kind == "text":
                raw = to_bytes(value)
                if len(raw) > count:
                    raise UsageError(f"{value!r} is longer than {count} bytes", where=f"{type(self).__name__}.{name}")
                values.append(raw)
            elif kind == "array":
                values.extend(value)
            else:
                values.append(value)
        try:
            return layout.pack(*values)
        except struct.error as error:
            raise UsageError(f"a field does not fit its width ({error})", where=_misfit(self)) from None


def _misfit(record: Structure) -> str:
    for name, kind, _ in _plan(type(record))[1]:
        value = getattr(record, name)
        if kind in "BHIQ" and not 0 <= value < 1 << 8 * struct.calcsize(kind):
            return f"{type(record).__name__}.{name} = {value:#x}"
    return type(record).__name__


_Plan = tuple[struct.Struct, tuple[tuple[str, str, int], ...]]
_PLANS: dict[type, _Plan] = {}


def _plan(cls: type) -> _Plan:
    """The struct of a class's fixed part and (name, kind, length) of each of its fields."""
    cached_plan = _PLANS.get(cls)
    if cached_plan is not None:
        return cached_plan
    codes, plan = "<", []
    for item in fields(cls):
        code = item.metadata.get("code")
        if code is None:
            continue
        codes += code
        if code.endswith("s"):
            plan.append((item.name, "text", int(code[:-1])))
        elif len(code) > 1:
            plan.append((item.name, "array", int(code[:-1])))
        else:
            plan.append((item.name, code, 1))
    new_plan = _PLANS[cls] = (struct.Struct(codes), tuple(plan))
    return new_plan
