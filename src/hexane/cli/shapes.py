"""``--shape x=1x3x640x640``: an input's shape as people write it."""

from __future__ import annotations

from hexane.errors import UsageError


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Input name to shape; UsageError for anything that is not ``NAME=NxCxHxW``."""
    shapes = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        parts = extents.replace(",", "x").split("x") if extents else []
        if not equals or not name or not all(part.isdigit() for part in parts):
            raise UsageError(f"{text!r} is no shape", hint="write --shape x=1x3x640x640")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes
