"""The one form in which a network is timed, whatever file it comes from: what every converter folds is folded.

A batch norm beside a convolution, GELU spelled out by erf, x * sigmoid(x): one network written in three ways takes one
time. coremltools writes this form; the measured networks are in it.
"""

from __future__ import annotations

from hexane import passes
from hexane.chips import Chip
from hexane.graph import Graph
from hexane.lowering.compilation import Compilation
from hexane.passes.apple_places import AS_GIVEN


def as_timed(graph: Graph, chip: Chip, *, as_apple: bool = False) -> Graph:
    """The network in the form that is timed; with ``as_apple`` its ops taken apart as Apple's compiler does."""
    names = [*AS_GIVEN, "leave_to_host", "apple_forms"] if as_apple else list(AS_GIVEN)
    return passes.run(graph, Compilation(chip, as_apple=as_apple), names)
