"""Bytes as lines of assembly text: runs of zeros, repeated halfwords, hex."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from hexane.isa.assembly import Directive, format_directive

ROW = 32
RUN_ROWS = 2
"""Equal rows from which a run is written in one line."""

LARGEST = 1 << 31
"""No text may stand for more bytes than this."""


def data_lines(content: bytes) -> Iterator[str]:
    """Lines that `DataReader` turns into the same bytes."""
    full = len(content) // ROW * ROW
    rows = np.frombuffer(content[:full], "<u2").reshape(-1, ROW // 2)
    uniform = (rows == rows[:, :1]).all(axis=1) if len(rows) else np.zeros(0, bool)
    keys = np.where(uniform, rows[:, 0].astype(np.int64), -1) if len(rows) else np.zeros(0, np.int64)
    edges = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)] if len(keys) else [0]
    for start, stop in pairwise(edges):
        key = int(keys[start])
        if key >= 0 and stop - start >= RUN_ROWS:
            size = (stop - start) * ROW
            yield format_directive("zero", size) if key == 0 else f".half {key:#06x} count={size // 2}"
            continue
        for row in range(start, stop):
            yield _hex(content[row * ROW : (row + 1) * ROW])
    rest = content[full:]
    if rest:
        yield format_directive("zero", len(rest)) if not any(rest) else _hex(rest)


def _hex(row: bytes) -> str:
    return f'.hex "{row.hex(" ", 2)}"'


class DataReader:
    """Collects what data directives say into the buffer that stands open."""

    def __init__(self) -> None:
        self.open: bytearray | None = None

    def start(self) -> bytearray:
        """Open a new buffer; the data lines that follow go into it."""
        self.open = bytearray()
        return self.open

    def handlers(self) -> dict:
        """The directives by name."""
        return {"hex": self._hex, "half": self._half, "zero": self._zero}

    def _buffer(self, directive: Directive, more: int) -> bytearray:
        if self.open is None:
            directive.fail("no section is open", "start one with .const")
        if len(self.open) + more > LARGEST:
            directive.fail(f"a section larger than {LARGEST} bytes")
        return self.open

    def _hex(self, directive: Directive) -> None:
        text = _only(directive, str)
        try:
            content = bytes.fromhex(text)
        except ValueError:
            directive.fail(f"{text!r} is not hex")
        self._buffer(directive, len(content)).extend(content)

    def _half(self, directive: Directive) -> None:
        value, count = _only(directive, int, {"count"}), directive.options.get("count", 1)
        if not 0 <= value <= 0xFFFF:
            directive.fail(f"{value:#x} does not fit a halfword")
        if not isinstance(count, int) or not 0 <= count <= LARGEST // 2:
            directive.fail(f"a count of {count}")
        self._buffer(directive, 2 * count).extend(value.to_bytes(2, "little") * count)

    def _zero(self, directive: Directive) -> None:
        size = _only(directive, int)
        if not 0 <= size <= LARGEST:
            directive.fail(f"a size of {size}")
        self._buffer(directive, size).extend(bytes(size))


def _only(directive: Directive, kind: type, options: frozenset | set = frozenset()):
    """The directive's one argument, of one type."""
    unknown = set(directive.options) - set(options)
    if unknown or len(directive.arguments) != 1 or not isinstance(directive.arguments[0], kind):
        names = {int: "a number", str: "a text in quotes"}
        directive.fail(f"takes {names[kind]}" + (f" and {', '.join(sorted(options))}" if options else ""))
    return directive.arguments[0]
