"""Whole programs out of programs: link some one behind the other, cut tasks out of one.

Source: docs/reference/engine-h13.md 12.

The tasks themselves are joined and numbered by `hexane.isa.link`; here the constants, the scratch buffer and the
surfaces follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexane import isa
from hexane.errors import UnsupportedError, UsageError
from hexane.image.ident import Ident
from hexane.image.image import Image, build_image
from hexane.image.placement import CONST_ALIGNMENT
from hexane.image.rebuild import buildable_dialect
from hexane.image.selectors import channels_used, renumbered
from hexane.image.surface import Surface
from hexane.isa import Task
from hexane.isa.channels import CHANNELS, CONST, FIRST_SURFACE
from hexane.isa.roles import STREAMS, roles_of
from hexane.rounding import align

_CONST_OFFSETS = {
    "source1": ("TileDMASrc.BaseAddr.Addr",),
    "source2": ("TileDMASrc.Src2BaseAddr.Addr",),
    "kernel": tuple(f"KernelDMASrc.CoeffBaseAddr[{i}].Addr" for i in range(STREAMS)),
}
"""Offsets of H13 that count from a side's channel, for the sides that read constants."""


def link(*images: Image) -> Image:
    """One program that runs the programs one after the other.

    Surfaces of equal name are one surface: what an earlier program writes, a later one reads. Equal constants are
    stored once. The scratch buffer is as large as the largest of them. A surface that any task writes is an output.

    Raises `UsageError` for surfaces of equal name and different shape, and for more surfaces than channels.
    """
    if not images:
        raise UsageError("nothing to link")
    for image in images:
        _check(image)
    surfaces = _merged_surfaces(images)
    const, shifts = _merged_constants(images)
    parts: dict[int, list[Task]] = {}  # one image may be linked many times; its tasks are prepared once
    programs = []
    for image, shift in zip(images, shifts):
        if id(image) not in parts:
            numbers = {s.channel: surfaces[s.label].channel for s in image.surfaces}
            mapping = {old: new for old, new in numbers.items() if old is not None and new is not None}
            parts[id(image)] = [_shifted(task, shift) for task in renumbered(image.tasks, mapping)]
        programs.append(parts[id(image)])
    first = images[0]
    tasks = isa.link(*programs)
    _wait_for_earlier_programs(tasks, images)
    return build_image(
        tasks,
        const,
        list(surfaces.values()),
        first.generation,
        max(image.scratch_bytes for image in images),
        dialect=buildable_dialect(first),
        ident=_joined_ident(images),
        procedure=first.procedure,
    )


def _wait_for_earlier_programs(tasks: Sequence[Task], images: Sequence[Image]) -> None:
    """The first task of a program that reads what an earlier one wrote waits for the task before it.

    Source: docs/reference/hazards.md 1.
    """
    at, channels = 0, set[str]()
    for image in images:
        if at and channels & {s.label for s in image.surfaces if s.role == "input"}:
            tasks[at].set("TileDMASrc.DMAConfig.DependencyMode", 1)
        channels |= {s.label for s in image.surfaces if s.role == "output"}
        at += len(image.tasks)


def cut(image: Image, start: int, stop: int | None = None) -> Image:
    """Tasks ``start`` to ``stop`` (exclusive; None: the one task) of a program as a program of their own.

    Surfaces that no remaining task uses are left out; one that is only read is an input. Constants and scratch stay
    whole. What an earlier task left in L2 or in scratch is not there any more: cut where data pass through DRAM.
    """
    _check(image)
    tasks = isa.cut(image.tasks, start, stop)
    channels = channels_used(tasks)
    surfaces = [
        replace(s, role="output" if "output" in channels[s.channel] else "input")
        for s in image.surfaces
        if s.channel is not None and s.channel in channels
    ]
    return image.replace(tasks=tasks, surfaces=surfaces)


LINKABLE_GENERATIONS = ("h13",)
"""Generations whose programs are joined: from H14 on pages, tags and slots of all tasks would change."""


def _check(image: Image) -> None:
    if image.generation not in LINKABLE_GENERATIONS:
        raise UnsupportedError(
            f"programs for {image.generation} cannot be linked or cut",
            hint=f"hexane links programs for {', '.join(LINKABLE_GENERATIONS)}; hexane.isa.link joins task streams",
        )


def _merged_surfaces(images: Sequence[Image]) -> dict[str, Surface]:
    """All surfaces by label, with new channels in the order of their first use."""
    merged: dict[str, Surface] = {}
    channels: set[int] = set()
    for image in images:
        if id(image) in channels:
            continue
        channels.add(id(image))
        for surface in image.surfaces:
            first = merged.setdefault(surface.label, surface)
            if (first.shape, first.strides, first.dtype) != (surface.shape, surface.strides, surface.dtype):
                raise UsageError(
                    f"surface {surface.label!r} is {first.shape} {first.dtype} in one program "
                    f"and {surface.shape} {surface.dtype} in another",
                    hint="rename one of them with image.with_surface(name, name=...)",
                )
            if surface.role == "output":
                merged[surface.label] = replace(first, role="output")
    if len(merged) > CHANNELS - FIRST_SURFACE:
        raise UsageError(f"{len(merged)} surfaces, and a program has {CHANNELS - FIRST_SURFACE} channels for them")
    order = sorted(merged.values(), key=lambda s: s.label)
    return {s.label: replace(s, channel=FIRST_SURFACE + i) for i, s in enumerate(order)}


def _merged_constants(images: Sequence[Image]) -> tuple[bytes, list[int]]:
    """One constant section and where the section of each image begins in it."""
    const = b""
    places: dict[bytes, int] = {}
    shifts = []
    for image in images:
        own = image.const
        if own not in places:
            padded = const.ljust(align(len(const), CONST_ALIGNMENT), b"\0")
            places[own], const = len(padded), padded + own
        shifts.append(places[own])
    return const, shifts


def _shifted(task: Task, shift: int) -> Task:
    """The task with every offset into the constant section moved by ``shift`` bytes; a multiple of 64."""
    if shift:
        roles = roles_of(task.generation)
        for side, offsets in _CONST_OFFSETS.items():
            if roles.channel(task, side) == CONST:
                for offset in offsets:
                    if task.written(offset):
                        task.set(offset, task.get(offset) + (shift >> 6))
    return task


def _joined_ident(images: Sequence[Image]) -> Ident:
    """The first program's identification with the kernel names of all; constants that are stored once count once."""
    by_const = {image.const: image.ident.kernel_names for image in reversed(images)}
    order = dict.fromkeys(image.const for image in images)
    return replace(images[0].ident, kernel_names=tuple(name for const in order for name in by_const[const]))
