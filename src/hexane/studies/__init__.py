"""One question asked of many programs: which weights to compress, and how far."""

from hexane.lowering.formats import WeightFormat
from hexane.studies.compress import compress
from hexane.studies.figures import study

__all__ = ["WeightFormat", "compress", "study"]
