"""Graph to tasks to image: partition, selection, tiling, placement on chip, linking."""

from hexane.codegen.driver import compile

__all__ = ["compile"]
