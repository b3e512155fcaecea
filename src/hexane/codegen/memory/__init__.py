"""L2 as a managed memory: what stays there between tasks, and where."""

from hexane.codegen.memory.facts import FactCache
from hexane.codegen.memory.hazards import complete
from hexane.codegen.memory.pipelining import PairPolicy, pipeline_pairs
from hexane.codegen.memory.placement import keep_in_l2
from hexane.codegen.memory.search import TRIES, cheapest
from hexane.codegen.memory.selection import ResidencyProgram
from hexane.codegen.memory.spills import Cause, Spill, spills
from hexane.codegen.memory.striping import Cuts
from hexane.codegen.memory.values import Stored

__all__ = [
    "TRIES",
    "Cause",
    "Cuts",
    "FactCache",
    "PairPolicy",
    "ResidencyProgram",
    "Spill",
    "Stored",
    "cheapest",
    "complete",
    "keep_in_l2",
    "pipeline_pairs",
    "spills",
]
