"""The engine as a back end of ``onnx.backend.base``, and a session with onnxruntime's look."""

from hexane.integrations.onnx import *  # noqa: F403
