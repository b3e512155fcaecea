"""Core ML: packages, models and compiled models, read and written."""

from hexane.formats.coreml.reader import load_coreml
from hexane.formats.coreml.writer import save_package

__all__ = ["load_coreml", "save_package"]
