"""L2 as a managed memory: what stays there between tasks, and where."""

from hexane.codegen.residency.depth import Cuts
from hexane.codegen.residency.pairs import lock_pairs
from hexane.codegen.residency.search import in_bands
from hexane.codegen.residency.stay import Policy, Program, keep_in_l2, under
from hexane.codegen.residency.values import Stored

__all__ = ["Cuts", "Policy", "Program", "Stored", "in_bands", "keep_in_l2", "lock_pairs", "under"]
