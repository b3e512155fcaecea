"""Core ML: packages, models and compiled models, read and written."""

from hexane.formats.coreml.reader import load_coreml as load
from hexane.formats.coreml.writer import save_package as save

__all__ = ["load", "save"]
