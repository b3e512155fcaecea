"""MIL text: read and written, both dialects, with weight files (docs/reference/mil.md 2, 3).

Loaded when asked for: who reads no text needs no parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexane.later import loaded

if TYPE_CHECKING:
    from hexane.formats.mil.files import load as load
    from hexane.formats.mil.files import save as save
    from hexane.formats.mil.names import decode as decode
    from hexane.formats.mil.names import encode as encode
    from hexane.formats.mil.printer import WeightCollector as WeightCollector
    from hexane.formats.mil.printer import to_text as to_text
    from hexane.formats.mil.reader import parse_mil as parse_mil

_NAMES = {
    "WeightCollector": "hexane.formats.mil.printer",
    "decode": "hexane.formats.mil.names",
    "encode": "hexane.formats.mil.names",
    "load": "hexane.formats.mil.files",
    "parse_mil": "hexane.formats.mil.reader",
    "save": "hexane.formats.mil.files",
    "to_text": "hexane.formats.mil.printer",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    return loaded(__name__, _NAMES, name)
