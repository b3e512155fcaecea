"""The engine as a back end of ``onnx.backend.base``, and a session with onnxruntime's look."""

from importlib.util import find_spec as _find_spec

from hexane.errors import UnsupportedError as _UnsupportedError

if _find_spec("onnx") is None:
    raise _UnsupportedError("hexane.onnx_backend needs onnx, which is not installed", hint="pip install 'hexane[onnx]'")

from hexane.integrations.onnx import *  # noqa: F403
