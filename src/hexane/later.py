"""Packages whose names are loaded when they are first asked for."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
"""As in ``typing``, whose import is a third of the time in which the command line cannot yet catch an interrupt."""

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def loaded(package: str, places: Mapping[str, str], name: str) -> Any:
    """A name of a package from the module where it stands, kept in the package: the body of its ``__getattr__``.

    AttributeError for a name that the package has not.
    """
    if name not in places:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(places[name]), name)
    setattr(sys.modules[package], name, value)
    return value
