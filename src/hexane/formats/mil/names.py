"""Names that MIL text cannot spell, and back.

A MIL name is a letter or an underscore, then letters, digits, underscores and dots (docs/reference/mil.md 2.2), and
no word that
could begin a value. Any other character is written as ``_0x`` + its code in hexadecimal + ``_``; so is the first letter
of such a word, and an underscore before ``0x``. ``decode(encode(name)) == name`` for every name, and a text that
``encode`` would not have written stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hexane.graph.types import DTYPES

KEYWORDS: frozenset[str] = frozenset(
    {*DTYPES, *("tensor", "tensor_buffer", "state", "list", "tuple", "dict", "true", "false", "inf", "nan")}
)

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_ESCAPE = re.compile(r"_0x([0-9a-f]*)_")
_UNSPEAKABLE = re.compile(r"[^A-Za-z0-9_.]|_(?=0x)")


def _code(character: str) -> str:
    return f"_0x{ord(character):x}_"


@lru_cache(maxsize=65536)
def encode(name: str) -> str:
    """A name as MIL text spells it."""
    if _PLAIN.match(name) and "_0x" not in name and name not in KEYWORDS:
        return name
    if not name:
        return "_0x_"
    first = name[0]
    if name in KEYWORDS or first.isdigit() or first == ".":
        return _code(first) + _UNSPEAKABLE.sub(lambda match: _code(match[0]), name[1:])
    return _UNSPEAKABLE.sub(lambda match: _code(match[0]), name)


@lru_cache(maxsize=65536)
def decode(text: str) -> str:
    """The name that MIL text spells so."""
    if "_0x" not in text:
        return text
    if text == "_0x_":
        return ""

    def character(match: re.Match[str]) -> str:
        code = int(match[1], 16) if 0 < len(match[1]) <= 6 else -1
        return chr(code) if 0 <= code < 0x110000 else match[0]

    name = _ESCAPE.sub(character, text)
    return name if encode(name) == text else text
