"""Tasks or a graph to microseconds and millijoules."""

from hexane.timing.estimate import Estimate, OpEstimate, estimate, estimates
from hexane.timing.placement import Placement, place
from hexane.timing.work import Parts

__all__ = ["Estimate", "OpEstimate", "Parts", "Placement", "estimate", "estimates", "place"]
