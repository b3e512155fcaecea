"""Channels (slots, from H14 on) that tasks name, and how to give surfaces other ones (docs/images.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hexane.image.surface import Surface
from hexane.isa import Task
from hexane.isa.channels import FIRST_SURFACE
from hexane.isa.records import ADDRESS, Record
from hexane.isa.roles import SLOT_WORDS, roles_of
from hexane.kernels import is_runtime


@dataclass(frozen=True)
class Selector:
    """One channel number of a task's header with its enable bit. ``role`` says what the DMA does with the channel."""

    channel: str
    enable: str
    role: str


SELECTORS = (
    Selector("Header[8].RBase0", "Header[8].RBE0", "input"),
    Selector("Header[8].RBase1", "Header[8].RBE1", "input"),
    Selector("Header[8].WBase", "Header[8].WBE", "output"),
    *(Selector(f"Header[9].KBase{i}", f"Header[9].KBE{i}", "input") for i in range(4)),
)

_MEMORY_FORMATS = {0: "uint8", 1: "int8", 2: "float16"}
_FORMAT_FIELDS = {
    "Header[8].RBase0": "TileDMASrc.Fmt.MemFmt",
    "Header[8].RBase1": "TileDMASrc.Src2Fmt.MemFmt",
    "Header[8].WBase": "TileDMADst.Fmt.MemFmt",
}


_SIDES = {"source1": "input", "source2": "input", "result": "output", "kernel": "input"}
_FORMATS_LATER = {
    "source1": "TileDMASrc.Fmt.MemFmt",
    "source2": "TileDMASrc.Src2Fmt.MemFmt",
    "result": "TileDMADst.Fmt.MemFmt",
}


def _used(task: Task) -> Iterator[tuple[int, str, str | None]]:
    """Channel (slot, from H14 on), role, and the field of the element type, for every DMA of tensors that is on."""
    if task.family.linked:
        for selector in SELECTORS:
            if task.get(selector.enable):
                yield task.get(selector.channel), selector.role, _FORMAT_FIELDS.get(selector.channel)
        return
    roles = roles_of(task.generation)
    for side, role in _SIDES.items():
        channel = roles.channel(task, side)
        if channel is not None and (side != "kernel" or is_runtime(task)):
            yield channel, role, _FORMATS_LATER.get(side)


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
        for selector in SELECTORS if task.family.linked else ():
            if copy.get(selector.enable):
                old = copy.get(selector.channel)
                copy.set(selector.channel, channels.get(old, old))
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
