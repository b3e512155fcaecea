"""Typed values in MIL text: numbers, strings, arrays of constants."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.constants import integer_range
from hexane.graph.types import DTYPES, ListType, TensorType


class Braces(tuple):
    """``{...}``: a dictionary of ``{key, value}`` pairs."""

    __slots__ = ()


class Parens(tuple):
    """``(...)``: a tuple."""

    __slots__ = ()


@dataclass(frozen=True)
class Blob:
    """``BLOBFILE(path = ..., offset = ...)``."""

    path: str
    offset: int


@dataclass(frozen=True)
class TypedValue:
    """``type(payload)``; the payload is a str, bool, int, float, nested list, Braces, Parens, Blob or None."""

    type: Any
    payload: Any


def number(text: str) -> int | float:
    """A number as MIL writes it: decimal, exponent, C hexadecimal float, inf or nan."""
    bare = text.lstrip("+-").lower()
    if bare.startswith("0x"):
        if "p" in bare or "." in bare:
            return float.fromhex(text)
        return int(text, 16)
    if bare in ("inf", "nan") or "." in bare or "e" in bare:
        return float(text)
    return int(text)


def numbers(text: str) -> list[int | float]:
    """The numbers of ``[1, 2, 3]``."""
    parts = text[1:-1].split(",")
    try:
        return [int(part) for part in parts]
    except ValueError:
        return [number(part.strip()) for part in parts]


def array_of(payload: Any, type_: TensorType) -> np.ndarray:
    """A literal as an array of the type; nested lists and a flat one in row-major order are both right.

    Source: docs/reference/mil.md 2.3.

    GraphError for a wrong count, a number outside the dtype's range, a fraction for an integer, a string for a number.
    """
    if isinstance(payload, (Braces, Parens, Blob)) or payload is None:
        raise GraphError(f"no value for a {type_}")
    items = _flattened(payload)
    if type_.dtype == "string":
        if not all(isinstance(item, str) for item in items):
            raise GraphError("a string is needed")
        array = np.array(items, dtype=str)
    elif type_.dtype == "bool":
        if not all(isinstance(item, bool) for item in items):
            raise GraphError("true or false is needed")
        array = np.array(items, dtype=bool)
    else:
        array = _numeric(items, type_.dtype)
    if array.size != type_.count:
        raise GraphError(f"{array.size} elements given for {type_}, which has {type_.count}")
    return array.reshape(type_.shape)


def _flattened(payload: Any) -> list[Any]:
    if not isinstance(payload, list):
        return [payload]
    flat = payload
    while flat and isinstance(flat[0], list):
        widths = {len(row) if isinstance(row, list) else -1 for row in flat}
        if len(widths) != 1:
            raise GraphError("the rows of the list differ in length")
        flat = [item for row in flat for item in row]
    if any(isinstance(item, list) for item in flat):
        raise GraphError("the rows of the list differ in length")
    return [item.payload if isinstance(item, TypedValue) else item for item in flat]


def _numeric(items: list[Any], dtype: str) -> np.ndarray:
    if not all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in items):
        raise GraphError(f"a number is needed for {dtype}")
    carrier = DTYPES[dtype].carrier
    if DTYPES[dtype].kind == "f":
        try:
            floats = [float(item) for item in items]
        except OverflowError:
            raise GraphError(f"a whole number beyond every {dtype}") from None
        with np.errstate(over="ignore"):
            return np.array(floats, np.float64).astype(carrier)
    low, high = integer_range(dtype)
    whole = []
    for item in items:
        if isinstance(item, float) and not (math.isfinite(item) and item.is_integer()):
            raise GraphError(f"{item} is no {dtype}")
        if not low <= item <= high:
            raise GraphError(f"{item} lies outside {dtype}")
        whole.append(int(item))
    return np.array(whole, carrier)


def list_of(payload: Any, type_: ListType) -> np.ndarray:
    """A literal list (of strings or int64) as a vector."""
    assert isinstance(type_.element, TensorType)
    items = payload if isinstance(payload, list) else [payload]
    return array_of(items, TensorType(type_.element.dtype, (len(items),)))


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


def unquoted(token: str) -> str:
    """The text of a string literal."""
    if "\\" not in token:
        return token[1:-1]

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 3:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, token[1:-1])


def quoted(text: str) -> str:
    """A string literal of a text."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character in "\n\t\r\0":
            out.append({"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}[character])
        elif ord(character) < 32:
            out.append(f"\\x{ord(character):02x}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'
