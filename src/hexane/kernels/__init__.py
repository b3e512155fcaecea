"""Weights and look-up tables to and from the engine's kernel streams."""

from hexane.kernels.layout import KernelLayout, Pass
from hexane.kernels.packing import Kernel, PackedKernel, pack, unpack

__all__ = ["Kernel", "KernelLayout", "PackedKernel", "Pass", "pack", "unpack"]
