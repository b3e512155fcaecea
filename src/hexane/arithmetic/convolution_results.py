"""Results of convolutions by all that they depend on, for a second evaluation of a network on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from hexane.arithmetic.multiply import Activation

MOST_BYTES = 1 << 29
"""Results that are remembered; of what comes later each evaluation computes its own."""


@dataclass(frozen=True, eq=False)
class ConvolutionCall:
    """Operands and parameters of `arithmetic.conv2d`, dilations apart."""

    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray | None
    strides: tuple[int, int]
    pads: tuple[int, ...]
    groups: int
    post_scale: float
    activation: Activation
    form: str

    @property
    def digest(self) -> bytes:
        """A number for its operands' bits and its parameters."""
        rest = (self.x.shape, self.w.shape, *self.strides, *self.pads, self.groups, float(self.post_scale), self.form)
        name = self.activation if isinstance(self.activation, str) else ""
        digest = sha256(f"{rest} {name}".encode())
        for array in (self.x, self.w, self.bias, None if name else self.activation):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
        return digest.digest()


class ConvolutionResults:
    """Results (N, O, OH, OW) float16 that nobody changes any more."""

    def __init__(self) -> None:
        self._results: dict[bytes, np.ndarray] = {}
        self._bytes = 0

    def add(self, convolution: ConvolutionCall, result: np.ndarray) -> None:
        """Remember a result, axes of groups and depth in whatever shape, as long as there is room."""
        self._bytes += result.nbytes
        if self._bytes <= MOST_BYTES:
            shape = (len(convolution.x), -1, *result.shape[-2:])
            self._results[convolution.digest] = result.reshape(shape)

    def get(self, convolution: ConvolutionCall) -> np.ndarray | None:
        """The result of a convolution of the same bits, or None."""
        return self._results.get(convolution.digest) if self._results else None
