"""MIL text: read and written, both dialects, with weight files (docs/reference/mil.md 2, 3)."""

from hexane.formats.mil.files import load, save
from hexane.formats.mil.names import decode, encode
from hexane.formats.mil.printer import WeightCollector, to_text
from hexane.formats.mil.reader import parse_mil

__all__ = ["WeightCollector", "decode", "encode", "load", "parse_mil", "save", "to_text"]
