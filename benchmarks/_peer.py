"""The peer of the benchmarks: models of one node in onnxruntime, float32, on as many threads as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx
    import onnxruntime


def one_node(node: onnx.NodeProto, shape: tuple[int, ...], w: np.ndarray) -> bytes:
    """The model ``y = node(x, w)`` with ``x`` of ``shape`` as its input and ``w`` as a float32 weight."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w.astype(np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def options(threads: int) -> onnxruntime.SessionOptions:
    """Settings of a session whose threads rest between calls, so that they take nothing from ours."""
    import onnxruntime

    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = threads
    made.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return made


def session(node: onnx.NodeProto, x: np.ndarray, w: np.ndarray, threads: int) -> Callable[[], object]:
    """A model of one node on ``x``, as a call."""
    import onnxruntime

    run = onnxruntime.InferenceSession(one_node(node, x.shape, w), options(threads), providers=["CPUExecutionProvider"])
    feed = {"x": x.astype(np.float32)}
    return lambda: run.run(None, feed)
