"""Counts in words: "1 task", "12 tasks"."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count and its noun; ``plural`` where that is not the noun with an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
