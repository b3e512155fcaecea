"""tools/onnx_coverage.py as a module, loaded once: collecting ONNX's node tests takes seconds."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import ModuleType

from tool import tool_named

ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=1)
def coverage_tool() -> ModuleType:
    """The tool; its tests are collected once per session."""
    module = tool_named("onnx_coverage")
    module.all_tests = lru_cache(maxsize=1)(module.all_tests)
    return module
