"""Channels (slots, from H14 on) that tasks name, and how to give surfaces other ones (docs/images.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hexane.image.surface import Surface
from hexane.isa import Task
from hexane.isa.channels import FIRST_SURFACE
from hexane.isa.records import ADDRESS, Record
from hexane.isa.roles import HEADER_CHANNELS, SLOT_WORDS, roles_of
from hexane.kernels import is_runtime

_MEMORY_FORMATS = {0: "uint8", 1: "int8", 2: "float16"}
_SIDES = {
    "source1": ("input", "TileDMASrc.Fmt.MemFmt"),
    "source2": ("input", "TileDMASrc.Src2Fmt.MemFmt"),
    "result": ("output", "TileDMADst.Fmt.MemFmt"),
    "kernel": ("input", None),
}
"""What the DMA of a side does with its channel, and the field of the element type."""
_IN_HEADER = (
    *((place.number, place.enable, *_SIDES[side]) for side, place in HEADER_CHANNELS.items()),
    *((f"Header[9].KBase{i}", f"Header[9].KBE{i}", "input", None) for i in range(1, 4)),
)
"""Channel numbers of a linked task's header: the field, its enable bit, and as of the side."""


def _used(task: Task) -> Iterator[tuple[int, str, str | None]]:
    """Channel (slot, from H14 on), role, and the field of the element type, for every DMA of tensors that is on."""
    if task.family.linked:
        for number, enable, role, format_field in _IN_HEADER:
            if task.get(enable):
                yield task.get(number), role, format_field
        return
    roles = roles_of(task.generation)
    for side, (role, format_field) in _SIDES.items():
        channel = roles.channel(task, side)
        if channel is not None and (side != "kernel" or is_runtime(task)):
            yield channel, role, format_field


def channels_used(tasks: Iterable[Task]) -> dict[int, set[str]]:
    """Channels of surfaces that tasks read or write, with ``"input"`` and ``"output"`` as they are used."""
    roles_by_channel: dict[int, set[str]] = {}
    for task in tasks:
        for channel, role, _ in _used(task):
            roles_by_channel.setdefault(channel, set()).add(role)
    return {channel: roles for channel, roles in roles_by_channel.items() if channel >= FIRST_SURFACE}


def renumbered(tasks: Iterable[Task], channels: Mapping[int, int]) -> list[Task]:
    """Copies of the tasks with other channel numbers; each task keeps its place in the stream."""
    copies = []
    for task in tasks:
        copy = task.copy() if task.family.linked else _with_slots(task, channels)
        copy.place = task.place
        for number, enable, *_ in _IN_HEADER if task.family.linked else ():
            if copy.get(enable):
                old = copy.get(number)
                copy.set(number, channels.get(old, old))
        copies.append(copy)
    return copies


def _with_slots(task: Task, slots: Mapping[int, int]) -> Task:
    """The task with other slots in the address records of its tensors and sections; DMA switches keep theirs."""
    roles = roles_of(task.generation)
    bases = {task.handle(place.base).key for place in roles.channels.values()}
    records = []
    for record, values in task.records():
        if record.form == ADDRESS and record.base in bases:
            slot = record.slot // SLOT_WORDS
            record = Record(ADDRESS, record.addresses, SLOT_WORDS * slots.get(slot, slot))
        records.append((record, values))
    header = [task.get(f"Header[{i}]") for i in range(task.layout.header_words)]
    return Task.from_records(task.generation, header, records)


def surfaces_as_used(surfaces: Sequence[Surface], tasks: Sequence[Task]) -> tuple[Surface, ...]:
    """Surfaces of a package with role and type as the tasks use them: the header has no types, and its order of roles
    has misled readers (docs/reference/engine-h13.md 2.6).
    """
    roles = channels_used(tasks)
    types = _types(tasks)
    renamed = []
    for surface in surfaces:
        directions = roles.get(surface.channel or 0, set())
        role = next(iter(directions)) if len(directions) == 1 else surface.role
        dtype = types.get(surface.channel or 0, surface.dtype)
        element = {"float16": 2}.get(dtype, 1)
        n, c, h, _ = surface.strides  # type: ignore[misc]
        renamed.append(replace(surface, role=role, dtype=dtype, strides=(n, c, h, element)))
    return tuple(sorted(renamed, key=lambda s: s.role == "output"))


def _types(tasks: Iterable[Task]) -> dict[int, str]:
    """Element type of each channel, from the first DMA that moves it."""
    types: dict[int, str] = {}
    for task in tasks:
        for channel, _, field in _used(task):
            code = None if field is None else task.get(field, None)
            if code in _MEMORY_FORMATS:
                types.setdefault(channel, _MEMORY_FORMATS[code])
    return types
