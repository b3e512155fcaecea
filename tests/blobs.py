"""Weight files of networks for tests."""

from __future__ import annotations

import numpy as np

from hexane.formats.blob import BlobWriter
from hexane.graph.types import TensorType


def blob_bytes(tensors: list[tuple[np.ndarray, str]]) -> bytes:
    """A weight file of these (array, dtype name) tensors, one after the other; the first record lies at 64."""
    writer = BlobWriter()
    for array, dtype in tensors:
        writer.add(array, TensorType(dtype, array.shape))
    return writer.to_bytes()
