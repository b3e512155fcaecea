"""Tables as HTML: what a notebook shows of a graph, a program, a check, an estimate, a run and a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MOST_ROWS = 200
"""Rows of one table; more are counted, not shown."""


def table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), right: Sequence[int] = ()) -> str:
    """Rows as a table; columns in ``right`` are right-aligned, everything is escaped."""
    listed = list(rows)
    if not listed:
        return ""
    lines = [_row(head, "th", ())] if head else []
    lines += [_row(row, "td", right) for row in listed[:MOST_ROWS]]
    more = len(listed) - MOST_ROWS
    return f"<table>{''.join(lines)}</table>" + (f"<p>and {more} more</p>" if more > 0 else "")


def _row(cells: Sequence[Any], tag: str, right: Sequence[int]) -> str:
    aligned = ('"text-align: right"' if i in right else '"text-align: left"' for i in range(len(cells)))
    texts = (f"<{tag} style={side}>{escape(str(cell))}</{tag}>" for side, cell in zip(aligned, cells))
    return f"<tr>{''.join(texts)}</tr>"


def paragraph(text: str, *, bold: bool = False) -> str:
    """A line of text; nothing for none."""
    inner = f"<b>{escape(text)}</b>" if bold else escape(text)
    return f"<p>{inner}</p>" if text else ""
