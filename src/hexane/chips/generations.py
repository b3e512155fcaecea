"""Limits of a generation of the engine: the table inside Apple's compiler.

Source: docs/reference/generations.md 1.1, 1.4, 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hexane.chips.evidence import Evidence
from hexane.errors import UsageError

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Generation:
    """One engine generation. Extents are in elements, sizes in bytes; evidence APPLE unless a field says otherwise.

    ``kernel_width_fp16`` and its neighbours are the table's (large, small) profile pairs; ``kernel_width_measured`` is
    what the compiler accepted when asked (docs/reference/limits.md 3), None where nobody published it. Fields behind
    ``evidence`` are no limits: what compilers and measurements of a generation have of their own (docs/timing.md). A
    new row of ``_later`` has what the newest has.

    Attributes
    ----------
    max_norm_channels : window of a local response norm in channels; None: any.
    tasks_are_numbered : a program has room for 255 tasks, whose tags hold their number.
    small_source_tokens : tokens up to which a sum of products is a task of a small source.
    shifted_kernels : kernels 9 to 15 wide run as two shifted copies at stride 2.
    pixel_unit : pixels (rows of a product) that the array takes at least.
    joins_engines : one program runs on all engines of a chip, and its calls end by a path of their own.
    whole_indices : palette indices of 3 and 6 bits take the time of 4 and 8.
    slow_power_of_two : wide 1x1 layers of 4096, 8192 ... channels stream slowly.
    folds_int8 : weights of 8 bits with fp16 operands are folded to fp16 by some compilers.
    int8_timed : somebody has timed products of 8-bit operands.
    caches_maps : element-wise data go through a system cache at a rate of its own.
    coreml_copies : Core ML copies what a call hands over.
    wake_us : what the first call after a pause of 100 ms costs on top.
    placement_rates : GFLOP/s of the engine and of the CPU that Core ML's segmenter assumes; ``placement_evidence``.
    """

    name: str
    descriptor_version: int
    cpu_subtypes: tuple[int, ...]
    feature_level: int
    max_width: int
    max_height: int
    max_depth: int
    max_channels: int
    max_batch: int
    max_groups: int
    kernel_width_fp16: tuple[int, int]
    kernel_height: tuple[int, int]
    kernel_width_measured: int | None
    max_pool_window: int
    task_alignment_bytes: int
    reduce_by_transpose: int
    texture_engine: bool
    random: bool
    fp8: bool
    l2_bytes: int = 2 * MIB
    kernel_bytes_per_core: int = 64 * KIB
    cores: int = 16
    dma_granule_bytes: int = 64
    max_contraction: int = 32768
    evidence: Evidence = Evidence.APPLE
    max_norm_channels: int | None = None
    tasks_are_numbered: bool = False
    small_source_tokens: int = 8
    shifted_kernels: bool = False
    pixel_unit: int = 64
    joins_engines: bool = False
    whole_indices: bool = False
    slow_power_of_two: bool = False
    folds_int8: bool = False
    int8_timed: bool = False
    caches_maps: bool = False
    coreml_copies: bool = True
    wake_us: float = 500.0
    placement_rates: tuple[float, float] = (12e3, 729.0)
    placement_evidence: Evidence = Evidence.INFERRED

    def beyond(self, extents: Mapping[str, int]) -> tuple[str, int, int] | None:
        """The first axis of a tensor (``N``, ``D``, ``C``, ``H``, ``W``) that is too long: axis, extent, limit."""
        longest = self.longest
        return next(((axis, size, longest[axis]) for axis, size in extents.items() if size > longest[axis]), None)

    @cached_property
    def longest(self) -> dict[str, int]:
        """The longest tensor along each axis."""
        return {
            "N": self.max_batch,
            "D": self.max_depth,
            "C": self.max_channels,
            "H": self.max_height,
            "W": self.max_width,
        }

    def is_from(self, name: str) -> bool:
        """True where this is the generation of that name or a later one."""
        return self.feature_level >= generation(name).feature_level

    @property
    def family(self) -> str:
        """``early`` (to H14), ``middle`` (H15, H16) or ``late`` (H17 on): for shared rates."""
        return "early" if self.feature_level <= 5 else "middle" if self.feature_level <= 7 else "late"


def _early(name: str, version: int, subtypes: tuple[int, ...], level: int) -> Generation:
    return Generation(
        name=name,
        descriptor_version=version,
        cpu_subtypes=subtypes,
        feature_level=level,
        max_width=16384,
        max_height=16384,
        max_depth=1,
        max_channels=65536,
        max_batch=4096,
        max_groups=8191,
        kernel_width_fp16=(13, 7),
        kernel_height=(29, 15),
        kernel_width_measured=None,
        max_pool_window=29,
        task_alignment_bytes=256,
        reduce_by_transpose=0,
        texture_engine=False,
        random=False,
        fp8=False,
        cores=8,
    )


def _later(name: str, version: int, subtypes: tuple[int, ...], level: int, *, extent: int, **more: Any) -> Generation:
    number = int(name[1:])
    first, from_15, from_16, from_19 = number == 13, number >= 15, number >= 16, number >= 19
    return Generation(
        name=name,
        descriptor_version=version,
        cpu_subtypes=subtypes,
        feature_level=level,
        max_width=extent,
        max_height=extent,
        max_depth=extent,
        max_channels=65536,
        max_batch=65536,
        max_groups=131071 if from_16 else 8191,
        kernel_width_fp16=(13, 7) if first else (16, 8),
        kernel_height=(29, 15) if first else (32, 16),
        max_pool_window=29 if first else 31,
        task_alignment_bytes=256 if first else 16,
        reduce_by_transpose=384 if from_15 else 192,
        texture_engine=not first,
        random=level >= 6,
        fp8=level >= 9,
        max_norm_channels=15 if first else None,
        tasks_are_numbered=not first,
        small_source_tokens=8 if first else 64,
        shifted_kernels=from_16,
        pixel_unit=16 if number >= 18 else 64,
        joins_engines=from_19,
        whole_indices=from_19,
        slow_power_of_two=number == 16,
        folds_int8=first,
        int8_timed=number == 16 or number >= 18,
        caches_maps=from_19,
        coreml_copies=not from_19,
        wake_us=5000.0 if from_19 else 500.0,
        placement_rates=(19.4e3, 754.5) if from_15 else (12e3, 729.0),
        placement_evidence=Evidence.APPLE if number == 16 or from_19 else Evidence.INFERRED,
        **more,
    )


GENERATIONS: tuple[Generation, ...] = (
    _early("h11", 5, (0, 1), 2),
    _early("h12", 6, (3,), 3),
    _later("h13", 7, (4,), 4, extent=16384, kernel_width_measured=13),
    _later("h14", 11, (5,), 5, extent=16384, kernel_width_measured=None),
    _later("h15", 8, (6,), 6, extent=16384, kernel_width_measured=None),
    _later("h16", 17, (7,), 7, extent=65536, kernel_width_measured=15),
    _later("h17", 19, (9,), 8, extent=65536, kernel_width_measured=15),
    _later("h18", 20, (10,), 9, extent=65536, kernel_width_measured=15),
    _later("h19", 24, (11,), 10, extent=65536, kernel_width_measured=15),
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
KERNEL_BYTES_EVERYWHERE = min(generation.kernel_bytes_per_core for generation in GENERATIONS)
"""Kernel memory that a core of every generation has."""

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


def target_names() -> str:
    """The names of Apple's compiler, with commas."""
    return ", ".join(_BY_TARGET)


def generation_of_target(target: str) -> Generation | None:
    """The generation behind a name of Apple's compiler (``"h16g"``, any case); None for others."""
    return _BY_TARGET.get(target.lower())
