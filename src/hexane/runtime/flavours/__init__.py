"""Virtual devices. Every file of this folder is one, by its name: ``virtual:NAME``; a new one is a new file.

A file has ``RUNS`` (what it is, in one line), ``GENERATIONS`` (engine generations whose programs it takes; empty where
it takes networks) and ``open_device()``, which gives a ``hexane.program.run.Device`` of its own for every call.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.program.run import Device

FLAVOURS = tuple(module.name for module in iter_modules(__path__))
DEFAULT = "omarchy"
"""The flavour of plain ``virtual``: the driver that checks most."""


def describe() -> dict[str, str]:
    """Flavour -> what it is."""
    return {name: import_module(f"{__name__}.{name}").RUNS for name in FLAVOURS}


def open_flavour(name: str) -> Device:
    """A virtual device of a flavour; the default one for an empty name. UsageError for an unknown one."""
    flavour = name or DEFAULT
    if flavour not in FLAVOURS:
        raise UsageError(f"there is no virtual device {flavour!r}", hint=f"one of {', '.join(FLAVOURS)}")
    device: Device = import_module(f"{__name__}.{flavour}").open_device()
    return device
