"""Change an engine program by named settings: ``task[0].Common.InDim.Win=32``, ``surface[x].shape=1x3x8x8``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from hexane import isa
from hexane.errors import HexaneError, UsageError
from hexane.image.image import Image
from hexane.image.surface import ALIGNMENT
from hexane.rounding import align

_TASK = re.compile(r"task\[(\d{1,9}|\*)\]\.(.+)")
_SURFACE = re.compile(r"surface\[([^\]]+)\]\.(\w+)")
UNWRITTEN = "unwritten"
"""The value that takes a register out of a task, which is not the same as setting it to 0."""

_PATHS = (
    "task[i].BLOCK.REGISTER.FIELD, surface[NAME].name|shape|strides|dtype|channel, "
    "scratch_bytes, procedure, ident.input_path|output_path"
)


def edited(image: Image, settings: Iterable[str]) -> Image:
    """The program with every ``PATH=VALUE`` applied in order; the image that was given stays as it is.

    Paths: ``task[i].Block.Register.Field`` (``task[*]`` for every task; ``=unwritten`` takes the register out),
    ``surface[name].name``, ``.shape`` (``1x3x8x8``), ``.strides`` (``n,c,h,w`` in bytes), ``.dtype``, ``.channel``,
    ``scratch_bytes``, ``procedure``, ``ident.input_path``, ``ident.output_path``. Numbers may be written ``0x20``;
    fields with named values take the name too.

    Raises `UsageError` that names the setting.
    """
    result = unshared(image)
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals:
            raise UsageError("a setting has the form PATH=VALUE", where=repr(setting), hint=f"paths are {_PATHS}")
        try:
            result = _apply(result, path.strip(), value.strip())
        except HexaneError as error:
            raise type(error)(error.message, where=repr(setting), hint=error.hint) from None
    return result


def unshared(image: Image) -> Image:
    """An image of the same parts, whose tasks can be changed without touching the first."""
    copy = Image(image.parts)
    if image.tasks_decoded:
        copy.__dict__["tasks"] = [_placed_copy(task) for task in image.tasks]
    return copy


def _placed_copy(task: isa.Task) -> isa.Task:
    copy = task.copy()
    copy.place = task.place
    return copy


def _apply(image: Image, path: str, value: str) -> Image:
    if match := _TASK.fullmatch(path):
        return _set_field(image, match.group(1), match.group(2), value)
    if match := _SURFACE.fullmatch(path):
        return _set_surface(image, match.group(1), match.group(2), value)
    if path == "scratch_bytes":
        return image.replace(scratch_bytes=_number(value))
    if path == "procedure":
        return image.replace(procedure=value)
    if path == "ident.input_path":
        return image.replace(ident=replace(image.ident, input_path=value))
    if path == "ident.output_path":
        return image.replace(ident=replace(image.ident, output_path=value))
    raise UsageError(f"nothing is called {path!r}", hint=f"paths are {_PATHS}")


def _set_field(image: Image, which: str, name: str, value: str) -> Image:
    tasks = image.tasks
    if which != "*" and int(which) >= len(tasks):
        raise UsageError(f"there is no task {which}; the program has {len(tasks)}")
    selection = tasks if which == "*" else [tasks[int(which)]]
    sizes = [task.size for task in tasks]
    for task in selection:
        if value == UNWRITTEN:
            task.clear(name)
        else:
            task.set(name, _number(value) if _is_number(value) else value)
    if [task.size for task in tasks] != sizes:
        return image.replace(tasks=isa.link(tasks))
    return image


def _set_surface(image: Image, name: str, attribute: str, value: str) -> Image:
    if attribute not in _SURFACE_VALUES:
        raise UsageError(f"a surface has no {attribute!r} to set", hint=f"it has {', '.join(_SURFACE_VALUES)}")
    return image.with_surface(name, **{attribute: _SURFACE_VALUES[attribute](value)})


def _is_number(value: str) -> bool:
    try:
        int(value, 0)
    except ValueError:
        return False
    return True


def _number(value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise UsageError(f"{value!r} is not a number", hint="write 32 or 0x20") from None


def _sizes(value: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in re.split(r"[x,]", value))


def _strides(value: str) -> tuple[int, ...]:
    """Bytes along n, c, h, w. A task's strides count 64 bytes, so a surface cannot have others (engine-h13.md 6)."""
    strides = tuple(_number(part) for part in value.split(","))
    if odd := [stride for stride in strides[:3] if stride % ALIGNMENT]:
        up = align(odd[0], ALIGNMENT)
        raise UsageError(
            f"a stride of {odd[0]} bytes is no multiple of {ALIGNMENT}, and no task can say it", hint=f"write {up}"
        )
    return strides


_SURFACE_VALUES: dict[str, Callable[[str], object]] = {
    "name": str,
    "shape": _sizes,
    "strides": _strides,
    "dtype": str,
    "channel": _number,
}
