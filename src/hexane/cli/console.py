"""Parts that the commands share: tables for people, JSON for programs, colour only on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


def console() -> Console:
    """Standard output: with colour and wrapping on a terminal, plain and unbroken lines elsewhere."""
    from rich.console import Console

    terminal = Console(highlight=False, soft_wrap=True)
    if not terminal.is_terminal:
        terminal = Console(highlight=False, soft_wrap=True, no_color=True, width=10_000)
    return terminal


def printable(text: str) -> str:
    """A name from a file, with bytes that are no text and control characters written as escapes."""
    raw = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in raw)


def print_json(value: Any, read: Path | None = None) -> None:
    """A value as strict JSON on standard output; bytes as hex, infinities and anything else as text.

    An object says under ``origin`` what made it (`hexane.report.origin`), and of which file, ``read``.
    """
    from hexane.formats.strict_json import strict_json
    from hexane.report.origin import origin

    if isinstance(value, dict):
        value = {**value, "origin": origin(sys.argv[1:], read)}
    typer.echo(strict_json(value, indent=2))


def print_rows(rows: list[list[Any]], head: list[str] | None = None, right: tuple[int, ...] = ()) -> None:
    """Rows as aligned columns: bold head, columns in ``right`` right-aligned, nothing cut off."""
    from rich.text import Text

    texts = [[printable(str(cell)) for cell in row] for row in ([head] if head else []) + rows]
    if not texts:
        return
    widths = [max(len(row[i]) for row in texts if i < len(row)) for i in range(max(map(len, texts)))]
    out = console()
    for number, row in enumerate(texts):
        cells = [c.rjust(widths[i]) if i in right else c.ljust(widths[i]) for i, c in enumerate(row)]
        out.print(Text("  ".join(cells).rstrip(), style="bold" if head and number == 0 else ""))


def title(text: str) -> None:
    """A heading above a table."""
    from rich.text import Text

    out = console()
    out.print()
    out.print(Text(printable(text), style="bold cyan"))
