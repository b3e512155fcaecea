"""tinygrad: a function of tensors becomes a network, from the tensor graph, before tinygrad cuts kernels."""

from hexane.frontends.tinygrad.trace import from_tinygrad

__all__ = ["from_tinygrad"]
