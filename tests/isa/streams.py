"""Apple's decoded programs as task streams."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def apple_words(path: Path) -> list[tuple[int, list[int]]]:
    """(byte offset, words) of every task of a decoded program."""
    program = json.loads(path.read_text())
    return [(task["offset"], [int(word, 16) for word in task["words"]]) for task in program["tasks"]]


def apple_stream(path: Path) -> bytes:
    """The text section of a decoded program: its tasks at their offsets, zeros between them."""
    tasks = apple_words(path)
    data = bytearray(max(offset + 4 * len(words) for offset, words in tasks))
    for offset, words in tasks:
        struct.pack_into(f"<{len(words)}I", data, offset, *words)
    return bytes(data)
