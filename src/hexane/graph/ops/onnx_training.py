"""Host ops of ONNX that belong to training and yet occur in files for inference."""

from __future__ import annotations

import numpy as np

from hexane.graph.registry import op
from hexane.graph.types import TensorType


def _with_mask(x: TensorType) -> tuple[TensorType, TensorType]:
    return x, x.with_dtype("bool")


@op("onnx.Dropout", "x:T ratio:M training:B seed:int", infer=_with_mask)
def dropout(x, ratio, training, seed):
    """x and a mask of True; where ``training`` holds, elements are zeroed with probability ``ratio``, others scaled.

    The draws are those of ONNX's reference: NumPy's Mersenne Twister, uniform, kept from ``ratio`` on.
    """
    ratio = float(ratio.reshape(()))
    if not training.reshape(()) or ratio == 0:
        return x, np.ones(x.shape, bool)
    mask = np.random.RandomState(seed & 0xFFFFFFFF).uniform(0, 1, x.shape) >= ratio
    return (mask * x * (1 / (1 - ratio))).astype(x.dtype), mask
