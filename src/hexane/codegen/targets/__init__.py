"""Targets of the compiler, one file a generation (limits, choices, spellings, headers, channels)."""

from hexane.codegen.targets.base import Places, Target
from hexane.codegen.targets.table import target_named, target_of, targets

__all__ = ["Places", "Target", "target_named", "target_of", "targets"]
