"""tools/onnx_coverage.py as a module, loaded once: collecting ONNX's node tests takes seconds."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=1)
def coverage_tool() -> ModuleType:
    """The tool; its tests are collected once per session."""
    spec = importlib.util.spec_from_file_location("onnx_coverage", ROOT / "tools" / "onnx_coverage.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["onnx_coverage"] = module
    spec.loader.exec_module(module)
    module.all_tests = lru_cache(maxsize=1)(module.all_tests)
    return module
