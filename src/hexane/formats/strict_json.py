"""JSON that every parser reads: JSON has no infinities and no NaN, so they are written as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any


def strict_json(value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """``value`` as JSON; infinities and NaN become "inf", "-inf" and "nan", bytes hexadecimal, anything else text.

    Python's own writer puts bare ``Infinity`` and ``NaN`` into the file, which no browser reads.
    """
    write = partial(json.dumps, indent=indent, separators=separators, default=_text, allow_nan=False)
    try:
        return write(value)
    except ValueError:  # a number that JSON lacks, somewhere
        return write(strict(value))


def by_rows(value: Mapping[str, Any]) -> str:
    """``strict_json`` of an object with a line for each entry, and for each element of an entry that is a list.

    Many times faster than an indentation, which Python writes without compiled code.
    """
    compact = partial(strict_json, separators=(",", ":"))
    lines = (
        "[\n" + ",\n".join(map(compact, item)) + "\n]" if isinstance(item, list) and item else compact(item)
        for item in value.values()
    )
    return "{\n" + ",\n".join(f"{json.dumps(key)}:{line}" for key, line in zip(value, lines)) + "\n}\n"


def plain(value: Any) -> Any:
    """The value as whoever reads its JSON has it."""
    return json.loads(strict_json(value))


def strict(value: Any) -> Any:
    """The same value with infinities and NaN as text, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {strict(key) if isinstance(key, float) else key: strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    item = getattr(value, "item", None)  # a NumPy scalar
    return strict(item()) if item is not None and getattr(value, "ndim", None) == 0 else str(value)
