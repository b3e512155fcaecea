"""Finding a chip by what people call it."""

from __future__ import annotations

import difflib
import re

from hexane.chips.table import CHIPS, Chip
from hexane.errors import UsageError

NUMBERED = re.compile(r"[am]\d+")
"""A chip by its letter and number alone."""


def _key(name: str) -> str:
    return re.sub(r"[\s_\-]+|^apple", "", name.strip().lower())


def _index() -> dict[str, Chip]:
    index: dict[str, Chip] = {}
    for chip in CHIPS:
        for name in (chip.name, chip.soc, *chip.aliases):
            index.setdefault(_key(name), chip)
    for chip in CHIPS:  # a compiler target names the first chip that has it
        index.setdefault(_key(chip.target), chip)
    return index


_INDEX = _index()


def get(name: str | Chip) -> Chip:
    """The chip called ``name``: a product name (``"M4 Max"``, ``"m4max"``, ``"Apple M1"``), SoC or compiler target.

    Raises :class:`UsageError` with the nearest known names for anything else.
    """
    if isinstance(name, Chip):
        return name
    if not isinstance(name, str):
        raise UsageError(f"a chip is named by a string, not {type(name).__name__}", hint='write "M1" or "M4 Max"')
    chip = _INDEX.get(_key(name))
    if chip is None:
        near = difflib.get_close_matches(_key(name), _INDEX, n=3)
        suggestions = ", ".join(dict.fromkeys(_INDEX[k].name for k in near)) or ", ".join(c.name for c in CHIPS)
        if all(_key(part) in _INDEX for part in name.split(",")):
            raise UsageError(f"one chip is asked for here, not {name!r}", hint=f"write {name.split(',')[0].strip()!r}")
        numbers = sorted(int(key[1:]) for key in _INDEX if NUMBERED.fullmatch(key) and key[0] == _key(name)[:1])
        if numbers and NUMBERED.fullmatch(_key(name)):  # no other number is nearer to what was meant
            letter = _key(name)[0].upper()
            hint = f"{letter}{numbers[0]} to {letter}{numbers[-1]} are known; `hexane chips` lists all"
        else:
            hint = f"did you mean one of: {suggestions}"
        raise UsageError(f"unknown chip {name!r}", hint=hint)
    return chip


def of_generation(generation: str) -> Chip:
    """The chip that stands for its generation: the first of a Mac, else of a phone."""
    chips = [chip for chip in CHIPS if chip.generation_name == generation]
    return next((chip for chip in chips if chip.name.startswith("M")), chips[0])


def parse_list(text: str) -> list[Chip]:
    """Chips from a comma-separated argument (``M1,M4,"A17 Pro"``); ``all`` is every chip from H13 on.

    UsageError for an unknown chip, and for a text that names none: an unset variable is no check that passes.
    """
    if _key(text) == "all":
        return [chip for chip in CHIPS if chip.generation_name not in ("h11", "h12")]
    names = [part.strip().strip("\"'") for part in text.split(",")]
    if not all(names):
        raise UsageError(f"{text!r} names no chip{' at a comma' * (',' in text)}", hint='write "M1", "M1,M4" or "all"')
    return [get(name) for name in names]
