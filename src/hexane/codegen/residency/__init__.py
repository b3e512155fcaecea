"""L2 as a managed memory: what stays there between tasks, and where."""

from hexane.codegen.residency.stay import Policy, Program, keep_in_l2, under
from hexane.codegen.residency.values import Stored

__all__ = ["Policy", "Program", "Stored", "keep_in_l2", "under"]
