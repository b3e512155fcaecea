"""Files of ``tools`` as modules, each loaded once."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).resolve().parents[1] / "tools"


@cache
def tool_named(name: str) -> ModuleType:
    """``tools/NAME.py``."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before its dataclasses are made: they look for it
    spec.loader.exec_module(module)
    return module
