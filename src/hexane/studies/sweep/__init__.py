"""A cross product of networks, chips, formats and options, and a question asked of each."""

from hexane.studies.sweep.run import sweep
from hexane.studies.sweep.spec import Spec, SweepPoint, read_spec

__all__ = ["Spec", "SweepPoint", "read_spec", "sweep"]
