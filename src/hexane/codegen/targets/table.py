"""The targets by name."""

from __future__ import annotations

from hexane.chips import Chip
from hexane.codegen.targets.base import Target
from hexane.codegen.targets.h13 import H13
from hexane.codegen.targets.h14 import H14
from hexane.codegen.targets.h15 import H15
from hexane.codegen.targets.h16 import H16, H16G
from hexane.codegen.targets.h17 import H17, H18
from hexane.codegen.targets.zin4 import Early
from hexane.errors import Reason, UnsupportedError

_TARGETS: dict[str, Target] = {
    "zin4": Early(),
    **{target.name: target for target in (H13(), H14(), H15(), H16(), H16G(), H17(), H18())},
}


def targets() -> list[Target]:
    """Every target of today's compiler."""
    return [target for name, target in _TARGETS.items() if name != "zin4"]


def target_named(name: str) -> Target:
    """A target by the name that Apple's compiler takes, any case. Raises UnsupportedError."""
    found = _TARGETS.get(name.lower())
    if found is None:
        raise UnsupportedError(
            f"there is no code generation for {name!r}", hint=f"for {', '.join(_TARGETS)}", code=Reason.CHIP
        )
    return found


def target_of(chip: Chip, dialect: str = "default") -> Target:
    """The target that a chip's programs are compiled for.

    Raises UnsupportedError for generations without code generation.
    """
    names = ("zin4",) if dialect == "zin4" else (chip.target, chip.generation_name)
    found = next((_TARGETS[name] for name in names if name in _TARGETS), None)
    if found is None or found.generation != chip.generation_name:
        known = sorted({target.generation.upper() for target in targets()})
        raise UnsupportedError(
            f"there is no code generation for {chip.name} ({chip.generation_name})",
            hint=f'compile for a chip of {known[0]} to {known[-1]}, or evaluate the network with level="graph"',
            code=Reason.CHIP,
        )
    return found
