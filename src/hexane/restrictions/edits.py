"""Changes of a MIL text: where statements begin and end, and pieces put in place of others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hexane.formats.mil.tree import TextPlace

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|[\[\](){};]', re.DOTALL)


@dataclass(frozen=True)
class Edit:
    """Characters ``start`` to ``end`` become ``new``."""

    start: int
    end: int
    new: str


def applied(text: str, edits: list[Edit]) -> str:
    """The text with the edits made; they must not overlap."""
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def offset_of(text: str, place: TextPlace) -> int:
    """The character at a line and column."""
    start = 0
    for _ in range(place.line - 1):
        start = text.index("\n", start) + 1
    return start + place.column - 1


def statement_spans(text: str) -> list[tuple[int, int]]:
    """First and last character (exclusive) of every statement and of every ``-> (...)``, semicolon included."""
    spans, depth, start = [], 0, 0
    for match in _MARK.finditer(text):
        sign = match[0]
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif depth == 0 and sign in "{};":
            if sign == ";":
                spans.append((_first_word(text, start), match.end()))
            start = match.end()
    return spans


def _first_word(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def span_at(text: str, place: TextPlace) -> tuple[int, int]:
    """The statement that a place lies in."""
    at = offset_of(text, place)
    for start, end in statement_spans(text):
        if start <= at < end:
            return start, end
    return at, at


def indent_at(text: str, start: int) -> str:
    """The white space before the first word of a line."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    return line if line.isspace() else " "


def bracketed(text: str, start: int) -> tuple[int, int]:
    """The inside of the first pair of parentheses from ``start`` on."""
    depth, first = 0, -1
    for match in _MARK.finditer(text, start):
        sign = match[0]
        if sign == "(":
            depth += 1
            if first < 0:
                first = match.end()
        elif sign == ")" and first >= 0:
            depth -= 1
            if depth == 0:
                return first, match.start()
    return start, start


def split_items(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\](){}<>,]', text):
        sign = match[0]
        if sign in "([{<":
            depth += 1
        elif sign in ")]}>":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    last = text[start:].strip()
    return [*parts, last] if last else parts
