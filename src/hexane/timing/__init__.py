"""Tasks or a graph to microseconds and millijoules."""

from hexane.cost.work import Parts
from hexane.timing.estimate import Estimate, OpEstimate, estimate, estimates
from hexane.timing.placement import Placement, place

__all__ = ["Estimate", "OpEstimate", "Parts", "Placement", "estimate", "estimates", "place"]
