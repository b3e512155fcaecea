"""Core ML's protobuf classes, taken from coremltools without importing coremltools itself.

The package's own ``__init__`` takes seconds, prints about missing macOS parts, and loads every framework that it
converts from. Its ``proto`` subpackage needs none of that: it is imported below a stand-in parent, which is taken away
again, so that a later ``import coremltools`` still gets the real package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import lru_cache
from types import ModuleType
from typing import Any

from hexane.errors import UnsupportedError

_NAMES = ("Model_pb2", "MIL_pb2", "FeatureTypes_pb2", "NeuralNetwork_pb2")


class Protos:
    """The generated modules: ``model``, ``mil``, ``features``, ``network``."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self.model: Any = modules["Model_pb2"]
        self.mil: Any = modules["MIL_pb2"]
        self.features: Any = modules["FeatureTypes_pb2"]
        self.network: Any = modules["NeuralNetwork_pb2"]


@lru_cache(maxsize=1)
def protos() -> Protos:
    """Core ML's message classes; UnsupportedError where coremltools is not installed."""
    if "coremltools" in sys.modules:
        return Protos({name: importlib.import_module(f"coremltools.proto.{name}") for name in _NAMES})
    spec = importlib.util.find_spec("coremltools")
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedError(
            "Core ML packages need coremltools, which is not installed",
            hint="pip install 'hexane[coreml]' (Linux on x86-64, and macOS); a .mlmodelc or .mil file needs nothing",
        )
    parent = ModuleType("coremltools")
    parent.__path__ = list(spec.submodule_search_locations)
    sys.modules["coremltools"] = parent
    try:
        return Protos({name: importlib.import_module(f"coremltools.proto.{name}") for name in _NAMES})
    except ImportError as error:
        raise UnsupportedError(f"coremltools is there, and its protobuf classes are not ({error})") from error
    finally:
        for name in [name for name in sys.modules if name == "coremltools" or name.startswith("coremltools.proto")]:
            del sys.modules[name]
