"""The order of axes in memory, chosen for whole regions of a network."""

from hexane.passes.layouts.rewrite import choose_layouts

__all__ = ["choose_layouts"]
