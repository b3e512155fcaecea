"""A cross product of networks, chips, formats and options, and a question asked of each."""

from hexane.studies.sweep.run import sweep
from hexane.studies.sweep.spec import Point, Spec, read_spec

__all__ = ["Point", "Spec", "read_spec", "sweep"]
