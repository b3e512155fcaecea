"""Differences between two engine programs: field by field, task by task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UnsupportedError
from hexane.image.image import Image
from hexane.image.kernels import read_kernels
from hexane.isa import Task

NOT_WRITTEN = "not written"
MISSING = "missing"


@dataclass(frozen=True)
class ImageDifference:
    """One value that differs: where it stands, and what it is in the first and in the second program.

    ``names`` has the names of both values where the field gives its values names.
    """

    where: str
    left: Any
    right: Any
    names: tuple[str, str] | None = None


def diff_images(left: Image, right: Image) -> list[ImageDifference]:
    """All differences in values; where there are none and the files still differ, those of the containers' parts.

    An empty list means that both programs, written from their parts, are the same bytes.
    """
    differences = [
        *_values(left, right),
        *_surfaces(left, right),
        *_tasks(left, right),
        *_kernels(left, right),
        *_bytes("const", left.const, right.const),
    ]
    return differences or list(diff_containers(left, right))


def diff_containers(left: Image, right: Image) -> Iterator[ImageDifference]:
    """Every field of the two containers' parts that differs."""
    yield from _parts("container", left.parts, right.parts)


def _values(left: Image, right: Image) -> Iterator[ImageDifference]:
    for name in ("generation", "dialect", "procedure", "scratch_bytes"):
        yield from _value(name, getattr(left, name), getattr(right, name))
    for name in ("target", "input_path", "output_path", "kernel_names", "text"):
        yield from _value(f"ident.{name}", getattr(left.ident, name), getattr(right.ident, name))


def _surfaces(left: Image, right: Image) -> Iterator[ImageDifference]:
    ours, theirs = ({s.name: s for s in image.surfaces} for image in (left, right))
    for name in dict.fromkeys((*ours, *theirs)):
        where = f"surface[{name}]"
        if name not in ours or name not in theirs:
            yield ImageDifference(where, str(ours.get(name, MISSING)), str(theirs.get(name, MISSING)))
            continue
        for item in fields(ours[name]):
            if item.name != "address":  # addresses follow from shapes and names
                yield from _value(
                    f"{where}.{item.name}", getattr(ours[name], item.name), getattr(theirs[name], item.name)
                )


def _tasks(left: Image, right: Image) -> Iterator[ImageDifference]:
    try:
        ours, theirs = left.tasks, right.tasks
    except UnsupportedError:
        yield from _bytes("text", left.contents.text, right.contents.text)
        return
    for i in range(max(len(ours), len(theirs))):
        if i >= len(ours) or i >= len(theirs):
            a, b = (repr(tasks[i]) if i < len(tasks) else MISSING for tasks in (ours, theirs))
            yield ImageDifference(f"task[{i}]", a, b)
        elif left.generation == right.generation:
            yield from diff_tasks(ours[i], theirs[i], f"task[{i}]")
    if ours == theirs:
        for i, (mine, other) in enumerate(zip(ours, theirs)):
            yield from _value(f"task[{i}].offset", mine.offset, other.offset)


def diff_tasks(left: Task, right: Task, where: str = "task") -> Iterator[ImageDifference]:
    """Every field that differs; a register that is not written differs from one that is written 0."""
    if left == right:
        return
    ours, theirs = left.fields(), right.fields()
    count = 0
    for name in dict.fromkeys((*ours, *theirs)):
        a, b = (_field(task, values, name) for task, values in ((left, ours), (right, theirs)))
        if a != b:
            count += 1
            yield ImageDifference(f"{where}.{name}", a, b, _names(left, name, a, b))
    if not count:
        yield ImageDifference(f"{where}.records", _record_heads(left), _record_heads(right))


def _field(task: Task, values: dict[str, int], name: str) -> int | str:
    """The field's value; fields that `Task.fields` leaves out are 0 where the register is written."""
    if name in values:
        return values[name]
    return task.get(name) if task.written(name) else NOT_WRITTEN


def _names(task: Task, name: str, *values: int | str) -> tuple[str, str] | None:
    """The names of both values, where the field has any."""
    kind = task.handle(name).values
    first, second = ((kind.name(v) or "") if isinstance(v, int) else "" for v in values)
    return (first, second) if kind.names else None


def _record_heads(task: Task) -> str:
    return " ".join(f"{head:08x}" for _, head in task.layout.heads)


def _value(where: str, left: Any, right: Any) -> Iterator[ImageDifference]:
    if left != right:
        yield ImageDifference(where, left, right)


def _kernels(left: Image, right: Image) -> Iterator[ImageDifference]:
    """Of each part of a task's kernel that differs: the first element, both values, how many, by how much."""
    if left.const == right.const and left.kernel_section == right.kernel_section:
        return
    try:
        ours, theirs = ({r.task: r.arrays for r in read_kernels(image)} for image in (left, right))
    except HexaneError:
        return
    for task in sorted(ours.keys() & theirs.keys()):
        for part in (name for name in ours[task] if name in theirs[task]):
            a, b = ours[task][part], theirs[task][part]
            if a.shape != b.shape:
                yield ImageDifference(f"task[{task}].{part}.shape", list(a.shape), list(b.shape))
                continue
            bits = [np.ascontiguousarray(one).view(f"u{one.itemsize}") for one in (a, b)]
            differ = np.argwhere(bits[0] != bits[1]) if a.dtype == b.dtype else np.empty((0, a.ndim))
            if len(differ):
                first = tuple(map(int, differ[0]))
                apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
                most = f", by {np.nanmax(apart[np.isfinite(apart)], initial=0):g} at most" if len(differ) > 1 else ""
                where = f"task[{task}].{part}[{','.join(map(str, first))}]"
                yield ImageDifference(
                    f"{where} ({len(differ)} of {a.size} elements differ{most})", a[first].item(), b[first].item()
                )


def _bytes(where: str, left: bytes, right: bytes) -> Iterator[ImageDifference]:
    if left == right:
        return
    if len(left) != len(right):
        yield ImageDifference(f"{where}.size", len(left), len(right))
    shared = min(len(left), len(right))
    differs = np.flatnonzero(np.frombuffer(left[:shared], np.uint8) != np.frombuffer(right[:shared], np.uint8))
    if len(differs):
        first = int(differs[0])
        row = first // 16 * 16
        yield ImageDifference(
            f"{where}[{row:#x}:{row + 16:#x}] ({len(differs)} bytes differ from {first:#x} on)",
            left[row : row + 16].hex(" ", 2),
            right[row : row + 16].hex(" ", 2),
        )


def _parts(where: str, left: Any, right: Any) -> Iterator[ImageDifference]:
    if left == right:
        return
    if type(left) is not type(right):
        yield ImageDifference(where, type(left).__name__, type(right).__name__)
    elif is_dataclass(left):
        for item in fields(left):
            yield from _parts(f"{where}.{item.name}", getattr(left, item.name), getattr(right, item.name))
    elif isinstance(left, tuple):
        if len(left) != len(right):
            yield ImageDifference(f"{where}.count", len(left), len(right))
        for i, (a, b) in enumerate(zip(left, right)):
            yield from _parts(f"{where}[{i}]", a, b)
    elif isinstance(left, bytes):
        yield from _bytes(where, left, right)
    else:
        yield ImageDifference(where, left, right)
