"""Which channels tasks name, and how to give surfaces other channels (spec/engine-h13 §4.2 word 8 and 9, §5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hexane.image.surface import Surface
from hexane.isa import Task
from hexane.isa.channels import FIRST_SURFACE


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


def channels_used(tasks: Iterable[Task]) -> dict[int, set[str]]:
    """Channels of surfaces that tasks read or write, with ``"input"`` and ``"output"`` as they are used."""
    used: dict[int, set[str]] = {}
    for task in tasks:
        for selector in SELECTORS:
            if task.get(selector.enable):
                used.setdefault(task.get(selector.channel), set()).add(selector.role)
    return {channel: roles for channel, roles in used.items() if channel >= FIRST_SURFACE}


def renumbered(tasks: Iterable[Task], channels: Mapping[int, int]) -> list[Task]:
    """Copies of the tasks with other channel numbers; each task keeps its place in the stream."""
    copies = []
    for task in tasks:
        copy = task.copy()
        copy.place = task.place
        for selector in SELECTORS:
            if copy.get(selector.enable):
                old = copy.get(selector.channel)
                copy.set(selector.channel, channels.get(old, old))
        copies.append(copy)
    return copies


def surfaces_as_used(surfaces: Sequence[Surface], tasks: Sequence[Task]) -> tuple[Surface, ...]:
    """Surfaces of a package with role and type as the tasks use them: the header has no types, and its order of roles
    has misled readers (spec/engine-h13 §2.6).
    """
    roles = channels_used(tasks)
    types = _types(tasks)
    found = []
    for surface in surfaces:
        used = roles.get(surface.channel or 0, set())
        role = next(iter(used)) if len(used) == 1 else surface.role
        dtype = types.get(surface.channel or 0, surface.dtype)
        element = {"float16": 2}.get(dtype, 1)
        n, c, h, _ = surface.strides  # type: ignore[misc]
        found.append(replace(surface, role=role, dtype=dtype, strides=(n, c, h, element)))
    return tuple(sorted(found, key=lambda s: s.role == "output"))


def _types(tasks: Iterable[Task]) -> dict[int, str]:
    """Element type of each channel, from the first DMA that moves it."""
    types: dict[int, str] = {}
    for task in tasks:
        for selector in SELECTORS[:3]:
            code = task.get(_FORMAT_FIELDS[selector.channel], None)
            if task.get(selector.enable) and code in _MEMORY_FORMATS:
                types.setdefault(task.get(selector.channel), _MEMORY_FORMATS[code])
    return types
