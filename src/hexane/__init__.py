"""hexane: an open toolchain for the Apple Neural Engine.

The names below are the library's front door. Each is imported from its room when it is first used, so that
``import hexane`` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hexane.errors import HexaneError

__version__ = "0.1.0"

_FRONT_DOOR = {
    "open_image": "hexane.image",
    "build_image": "hexane.image",
    "emulate": "hexane.emulator",
    "load": "hexane.formats.networks",
    "parse_mil": "hexane.formats.mil",
    "from_torch": "hexane.formats.torch",
    "compile": "hexane.codegen",
    "load_program": "hexane.program",
    "check": "hexane.report",
    "check_mil": "hexane.restrictions",
    "estimate": "hexane.timing",
    "compress": "hexane.studies",
}

_ROOMS = frozenset(
    {
        "arithmetic",
        "chips",
        "cli",
        "codegen",
        "emulator",
        "formats",
        "graph",
        "image",
        "isa",
        "kernels",
        "lowering",
        "mil",
        "numerics",
        "passes",
        "program",
        "report",
        "restrictions",
        "runtime",
        "studies",
        "timing",
    }
)

__all__ = ["HexaneError", "__version__", *_FRONT_DOOR]


def __getattr__(name: str) -> Any:
    if name in _FRONT_DOOR:
        value = getattr(import_module(_FRONT_DOOR[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return import_module(f"hexane.{name}")
    raise AttributeError(f"module 'hexane' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_FRONT_DOOR, *_ROOMS})
