"""L2 as a managed memory: what stays there between tasks, and where."""

from hexane.codegen.residency.choice import ResidencyProgram
from hexane.codegen.residency.depth import Cuts
from hexane.codegen.residency.detours import Cause, Detour, detours
from hexane.codegen.residency.hazards import complete
from hexane.codegen.residency.memo import Memo
from hexane.codegen.residency.pairs import Locks, lock_pairs
from hexane.codegen.residency.search import TRIES, cheapest
from hexane.codegen.residency.stay import keep_in_l2
from hexane.codegen.residency.values import Stored

__all__ = [
    "TRIES",
    "Cause",
    "Cuts",
    "Detour",
    "Locks",
    "Memo",
    "ResidencyProgram",
    "Stored",
    "cheapest",
    "complete",
    "detours",
    "keep_in_l2",
    "lock_pairs",
]
