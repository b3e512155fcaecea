"""The structures of a container as ``.part`` lines: one line per structure, all fields by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hexane.image.anec_parts import AnecHeader
from hexane.image.parts import Command, Header, Section, Symbol, Tag
from hexane.image.structure import Structure
from hexane.isa.assembly import Directive, format_directive


def _kinds(cls: type[Command]) -> list[type[Command]]:
    """The classes of commands that files hold: those that no other refines."""
    below = cls.__subclasses__()
    return [kind for part in below for kind in _kinds(part)] if below else [cls]


COMMANDS = {cls.__name__: cls for cls in _kinds(Command)}

STRUCTURES: dict[str, type[Structure]] = {
    **COMMANDS,
    **{cls.__name__: cls for cls in (Header, Section, Symbol, Tag, AnecHeader)},
}

_NESTED = {"sections", "content", "relocations", "tags", "body"}


class _Number(int):
    """A number that is written in hex from 256 on: offsets, addresses, flags."""

    def __str__(self) -> str:
        return hex(self) if self > 0xFF else int.__repr__(self)


def part_line(part: Structure) -> str:
    """The line of one structure, without what is nested in it."""
    options = {}
    for item in fields(part):  # type: ignore[arg-type]
        value = getattr(part, item.name)
        if item.name in _NESTED:
            continue
        if isinstance(value, tuple):
            value = [_Number(v) for v in _without_zeros(value)]
        if value not in (0, "", []):
            options[item.name] = _Number(value) if isinstance(value, int) else value
    return format_directive("part", type(part).__name__, **options)


def part_from(directive: Directive) -> Structure:
    """The structure of a line; `SyntaxProblem` at the line for names and values that it cannot have."""
    if len(directive.arguments) != 1 or directive.arguments[0] not in STRUCTURES:
        directive.fail("takes the name of a structure", f"one of {', '.join(STRUCTURES)}")
    cls = STRUCTURES[directive.arguments[0]]
    fields_by_name = {item.name: item for item in fields(cls) if item.name not in _NESTED}  # type: ignore[arg-type]
    for name in directive.options:
        if name not in fields_by_name:
            directive.fail(f"a {cls.__name__} has no field {name}", f"it has {', '.join(fields_by_name)}")
    values = {}
    for name, item in fields_by_name.items():
        values[name] = _value(directive, name, directive.options.get(name), item.metadata.get("code"))
    return cls(**values)


def _value(directive: Directive, name: str, value: Any, code: str | None) -> Any:
    if code is None or code.endswith("s"):
        if not isinstance(value, str | None):
            directive.fail(f"{name} is a text")
        return value or ""
    if len(code) > 1:
        length = int(code[:-1])
        value = [] if value is None else value
        if not isinstance(value, list) or len(value) > length or not all(_fits(v, code[-1]) for v in value):
            directive.fail(f"{name} is a list of up to {length} numbers")
        return (*value, *([0] * (length - len(value))))
    value = 0 if value is None else value
    if not _fits(value, code):
        directive.fail(f"{name} is a number of {8 * _BYTES[code]} bits")
    return value


_BYTES = {"B": 1, "H": 2, "I": 4, "Q": 8}


def _fits(value: Any, code: str) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 8 * _BYTES[code]


def _without_zeros(values: tuple[int, ...]) -> list[int]:
    """A list without the zeros at its end."""
    end = len(values)
    while end and not values[end - 1]:
        end -= 1
    return list(values[:end])
