"""What a generation of the engine can hold: the table inside Apple's compiler.

Source: docs/reference/generations.md 1.1, 1.4, 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexane.chips.evidence import Evidence
from hexane.errors import UsageError

KIB = 1024
MIB = 1024 * KIB

L2_BYTES = 2 * MIB
KERNEL_BYTES_PER_CORE = 64 * KIB
CORES = 16
"""On-chip memory, kernel memory of a core, and cores of one engine: the same in every generation's table."""


@dataclass(frozen=True)
class Generation:
    """One engine generation. Extents are in elements, sizes in bytes; evidence APPLE unless a field says otherwise.

    ``kernel_width_fp16`` and its neighbours are the table's (large, small) profile pairs; ``kernel_width_measured`` is
    what the compiler accepted when asked (docs/reference/limits.md 3), None where nobody published it.
    """

    name: str
    descriptor_version: int
    cpu_subtypes: tuple[int, ...]
    feature_level: int
    legality_family: int
    max_width: int
    max_height: int
    max_depth: int
    max_channels: int
    max_batch: int
    max_groups: int
    kernel_width_fp16: tuple[int, int]
    kernel_width_other: tuple[int, int]
    kernel_height: tuple[int, int]
    kernel_width_measured: int | None
    max_pool_window: int
    task_alignment_bytes: int
    resident_buffer_bytes: int
    reduce_by_transpose: int
    interchange_formats: int
    texture_engine: bool
    square_after_reduction: bool
    random: bool
    fp8: bool
    l2_bytes: int = L2_BYTES
    l2_banks: int = 64
    l2_granule_bytes: int = 16
    kernel_bytes_per_core: int = KERNEL_BYTES_PER_CORE
    kernel_bytes_streamed: int = 16 * MIB
    cores: int = CORES
    dma_granule_bytes: int = 64
    surface_granule_bytes: int = 16 * KIB
    max_kernel_depth: int = 16
    max_contraction: int = 32768
    evidence: Evidence = Evidence.APPLE

    def beyond(self, extents: Mapping[str, int]) -> tuple[str, int, int] | None:
        """The first axis of a tensor (``N``, ``D``, ``C``, ``H``, ``W``) that is too long: axis, extent, limit."""
        limits = {
            "N": self.max_batch,
            "D": self.max_depth,
            "C": self.max_channels,
            "H": self.max_height,
            "W": self.max_width,
        }
        return next(((axis, size, limits[axis]) for axis, size in extents.items() if size > limits[axis]), None)

    @property
    def family(self) -> str:
        """``early`` (to H14), ``middle`` (H15, H16) or ``late`` (H17 on): for shared rates."""
        return "early" if self.feature_level <= 5 else "middle" if self.feature_level <= 7 else "late"


def _early(name: str, version: int, subtypes: tuple[int, ...], level: int, family: int) -> Generation:
    return Generation(
        name=name,
        descriptor_version=version,
        cpu_subtypes=subtypes,
        feature_level=level,
        legality_family=family,
        max_width=16384,
        max_height=16384,
        max_depth=1,
        max_channels=65536,
        max_batch=4096,
        max_groups=8191,
        kernel_width_fp16=(13, 7),
        kernel_width_other=(29, 15),
        kernel_height=(29, 15),
        kernel_width_measured=None,
        max_pool_window=29,
        task_alignment_bytes=256,
        resident_buffer_bytes=0,
        reduce_by_transpose=0,
        interchange_formats=0,
        texture_engine=False,
        square_after_reduction=False,
        random=False,
        fp8=False,
        max_kernel_depth=1,
        cores=8,
    )


def _later(
    name: str, version: int, subtypes: tuple[int, ...], level: int, family: int, *, extent: int, resident: int, **more
) -> Generation:
    first = name == "h13"
    return Generation(
        name=name,
        descriptor_version=version,
        cpu_subtypes=subtypes,
        feature_level=level,
        legality_family=family,
        max_width=extent,
        max_height=extent,
        max_depth=extent,
        max_channels=65536,
        max_batch=65536,
        max_groups=8191 if name in ("h13", "h14", "h15") else 131071,
        kernel_width_fp16=(13, 7) if first else (16, 8),
        kernel_width_other=(29, 15) if first else (32, 16),
        kernel_height=(29, 15) if first else (32, 16),
        max_pool_window=29 if first else 31,
        task_alignment_bytes=256 if first else 16,
        resident_buffer_bytes=resident,
        reduce_by_transpose=192 if name in ("h13", "h14") else 384,
        texture_engine=not first,
        square_after_reduction=not first,
        random=level >= 6,
        fp8=level >= 9,
        **more,
    )


GENERATIONS: tuple[Generation, ...] = (
    _early("h11", 5, (0, 1), 2, 1),
    _early("h12", 6, (3,), 3, 2),
    _later("h13", 7, (4,), 4, 3, extent=16384, resident=0, interchange_formats=3, kernel_width_measured=13),
    _later("h14", 11, (5,), 5, 4, extent=16384, resident=0, interchange_formats=13, kernel_width_measured=None),
    _later("h15", 8, (6,), 6, 4, extent=16384, resident=32 * KIB, interchange_formats=16, kernel_width_measured=None),
    _later("h16", 17, (7,), 7, 4, extent=65536, resident=256 * KIB, interchange_formats=14, kernel_width_measured=15),
    _later("h17", 19, (9,), 8, 5, extent=65536, resident=256 * KIB, interchange_formats=14, kernel_width_measured=15),
    _later("h18", 20, (10,), 9, 7, extent=65536, resident=256 * KIB, interchange_formats=14, kernel_width_measured=15),
    _later("h19", 24, (11,), 10, 7, extent=65536, resident=256 * KIB, interchange_formats=14, kernel_width_measured=15),
)

TARGETS: dict[str, tuple[str, ...]] = {
    "h11": ("h11",),
    "h12": ("h12",),
    "h13": ("h13", "h13g", "t1"),
    "h14": ("h14", "h14g", "h14c"),
    "h15": ("h15", "h15g", "h15c"),
    "h16": ("h16", "h16g", "h16s", "h16c"),
    "h17": ("h17", "h17a", "h17g", "h17s", "h17c", "h17d"),
    "h18": ("h18",),
    "h19": ("h19", "h18g"),
}
"""The names that Apple's compiler takes for the engines of a generation: they share task descriptors."""

ROWS_EVERYWHERE = min(generation.max_height for generation in GENERATIONS)
"""Rows of a map that every generation takes."""

_BY_NAME = {generation.name: generation for generation in GENERATIONS}
_BY_TARGET = {target: _BY_NAME[name] for name, targets in TARGETS.items() for target in targets}
_BY_SUBTYPE = {subtype: generation for generation in GENERATIONS for subtype in generation.cpu_subtypes}


def generation(name: str) -> Generation:
    """The generation called ``name`` (``"h13"``); raises :class:`UsageError` that lists the known ones."""
    try:
        return _BY_NAME[name.lower()]
    except KeyError:
        raise UsageError(f"unknown engine generation {name!r}", hint=f"known: {', '.join(_BY_NAME)}") from None


def generation_of_subtype(subtype: int) -> Generation | None:
    """The generation whose programs carry this CPU subtype (docs/reference/generations.md 1.1); None for others."""
    return _BY_SUBTYPE.get(subtype)


def generation_of_target(target: str) -> Generation | None:
    """The generation behind a name of Apple's compiler (``"h16g"``, any case); None for others."""
    return _BY_TARGET.get(target.lower())
