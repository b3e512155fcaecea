"""The chips: generation, cores, clocks, memories, limits and measured constants, each with its evidence."""

from hexane.chips.evidence import Evidence, weakest
from hexane.chips.generations import (
    GENERATIONS,
    KERNEL_BYTES_EVERYWHERE,
    Generation,
    generation,
    generation_of_subtype,
    generation_of_target,
    target_names,
)
from hexane.chips.names import get, of_generation, parse_list
from hexane.chips.table import CHIPS, Chip, winograd_on

__all__ = [
    "CHIPS",
    "GENERATIONS",
    "KERNEL_BYTES_EVERYWHERE",
    "Chip",
    "Evidence",
    "Generation",
    "generation",
    "generation_of_subtype",
    "generation_of_target",
    "get",
    "of_generation",
    "parse_list",
    "target_names",
    "weakest",
    "winograd_on",
]
