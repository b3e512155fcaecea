"""ONNX's two faces: a session with onnxruntime's look, and a back end of ``onnx.backend.base``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hexane.integrations.onnx.binding import IOBinding, OrtValue
from hexane.integrations.onnx.session import PROVIDER, InferenceSession
from hexane.integrations.onnx.signature import ModelMetadata, NodeArg

if TYPE_CHECKING:
    from hexane.integrations.onnx.backend import (
        HexaneBackend,
        HexaneRep,
        Refused,
        is_compatible,
        prepare,
        run_model,
        run_node,
        supports_device,
    )

__all__ = [
    "PROVIDER",
    "HexaneBackend",
    "HexaneRep",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "Refused",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in __all__:  # these derive from classes of onnx, which a session does without until it reads a file
            return getattr(import_module("hexane.integrations.onnx.backend"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
