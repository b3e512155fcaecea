"""Graphs of PyTorch's ATen operators, as ``torch.export`` and AOT autograd capture them, translated into MIL ops."""

from hexane.frontends.aten.translate import KEPT, decompositions, is_known, translate

__all__ = ["KEPT", "decompositions", "is_known", "translate"]
