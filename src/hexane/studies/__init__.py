"""One question asked of many programs: which weights to compress, and how far."""

from hexane.studies.compress import compress
from hexane.studies.formats import WeightFormat

__all__ = ["WeightFormat", "compress"]
