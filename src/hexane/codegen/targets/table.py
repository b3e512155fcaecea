"""The targets by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from hexane.chips import Chip
from hexane.codegen.targets.base import Target
from hexane.codegen.targets.zin4 import Early
from hexane.errors import Reason, UnsupportedError


def _found() -> dict[str, Target]:
    """Every target that a file of this folder declares: a class with a ``name`` of its own. Oldest first."""
    table: dict[str, Target] = {}
    for module in sorted(m.name for m in iter_modules([str(Path(__file__).parent)]) if m.name != "table"):
        for thing in vars(import_module(f"hexane.codegen.targets.{module}")).values():
            if isinstance(thing, type) and issubclass(thing, Target) and "name" in vars(thing):
                table.setdefault(thing.name, thing())
    return table


_TARGETS = {"zin4": Early(), **_found()}


def targets() -> list[Target]:
    """Every target of today's compiler."""
    return [target for name, target in _TARGETS.items() if name != "zin4"]


def target_named(name: str) -> Target:
    """A target by the name that Apple's compiler takes, any case. Raises UnsupportedError."""
    target = _TARGETS.get(name.lower())
    if target is None:
        raise UnsupportedError(
            f"there is no code generation for {name!r}", hint=f"for {', '.join(_TARGETS)}", code=Reason.CHIP
        )
    return target


def target_of(chip: Chip, dialect: str = "default") -> Target:
    """The target that a chip's programs are compiled for.

    Raises UnsupportedError for generations without code generation.
    """
    names = ("zin4",) if dialect == "zin4" else (chip.target, chip.generation_name)
    match = next((_TARGETS[name] for name in names if name in _TARGETS), None)
    if match is None or match.generation != chip.generation_name:
        first, *_, last = sorted({target.generation.upper() for target in targets()})
        raise UnsupportedError(
            f"there is no code generation for {chip.name} ({chip.generation_name})",
            hint=f'compile for a chip of {first} to {last}, or evaluate the network with level="graph"',
            code=Reason.CHIP,
        )
    return match
