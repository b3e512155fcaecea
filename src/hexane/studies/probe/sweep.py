"""One field of an engine program through many values, on the emulator or on a device, with rules for when to stop.

A value that the emulator refuses is never sent to a device: such programs hang engines. The program as it was runs
before the first value, and after each one: a device that answers otherwise then is not asked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hexane.counts import counted
from hexane.emulator import emulate
from hexane.errors import HexaneError, UsageError
from hexane.image import Image
from hexane.image.edit import edited
from hexane.program.load import program_of
from hexane.program.run import Device, Session
from hexane.runtime.devices import device_named
from hexane.studies.probe.ask import STOPS

Arrays = Mapping[str, np.ndarray]
SAME, OTHER, REFUSED, FAILED, NOT_ASKED = "same", "other", "refused", "failed", "not asked"
MOST = 4096
"""Values of one sweep."""
_PATH = re.compile(r"(?:task\[)?(\d{1,9})\]?\.(.+)")


@dataclass(frozen=True)
class SweepRow:
    """``state``: the same bits as the program gives as it is, others, refused by the emulator (the device was not
    asked), failed on the device, or not asked after a stop. ``differ`` of ``of`` values differ, at most by ``largest``.
    """

    value: int
    name: str
    state: str
    why: str = ""
    differ: int = 0
    of: int = 0
    largest: float = 0.0


@dataclass(frozen=True)
class FieldSweep:
    """A row for each value; ``stopped`` says after which one nothing more was asked, and why."""

    field: str
    device: str
    before: int
    rows: tuple[SweepRow, ...]
    stopped: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data (schema ``hexane-probe-sweep/1``)."""
        return {"schema": "hexane-probe-sweep/1", **asdict(self)}


def values_of(image: Image, path: str, text: str) -> list[int]:
    """``1,2,0x10``, ``0..7``, names of values, or ``all`` (every named value, else every one that fits).

    UsageError lists what the field takes.
    """
    task, name = _place(image, path)
    handle = image.tasks[task].handle(name)
    names = handle.values.names
    by_name = {n: v for v, n in names.items()}
    takes = ", ".join(f"{n} = {v}" for v, n in names.items()) or f"0 to {handle.limit:#x}"
    numbers: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            if part.strip() == "all":
                numbers += sorted(names) if names else range(min(handle.limit, MOST) + 1)
            elif dots:
                values = range(int(first, 0), int(last, 0) + 1)
                numbers += values[: MOST + 1]  # more are refused below
                numbers += values[-1:]
            else:
                numbers.append(by_name[first] if first in by_name else int(first, 0))
        except ValueError:
            raise UsageError(f"--values {part!r}", hint=f"{handle.name} takes {takes}") from None
    numbers = list(dict.fromkeys(numbers))
    wrong = next((value for value in numbers if not 0 <= value <= handle.limit), None)
    if wrong is not None or not numbers:
        raise UsageError(f"--values {text!r}: {wrong} does not fit", hint=f"{handle.name} takes {takes}")
    if len(numbers) > MOST:
        raise UsageError(f"{len(numbers)} values", hint=f"at most {MOST} in one sweep; give a range, FIRST..LAST")
    return numbers


def sweep_field(
    image: Image,
    path: str,
    values: Iterable[int],
    inputs: Arrays,
    device: str | Device = "emulator",
    on_row: Callable[[SweepRow], None] | None = None,
) -> FieldSweep:
    """Run the program with each value of a field (``task[0].Common.TileCfg.TileHeight``, or ``0.Common...``).

    Raises UsageError for an unknown field, and what the emulator or the device says of the program as it is.
    """
    task, name = _place(image, path)
    handle = image.tasks[task].handle(name)
    engine = device_named(device) if isinstance(device, str) else device
    is_emulator = engine.name == "emulator"
    expected = emulate(image, inputs)
    if not is_emulator:
        _require_same(_on(engine, image, inputs), expected)
    rows: list[SweepRow] = []
    stopped = ""
    for value in values:
        label = handle.values.name(value) or ""
        if stopped:
            row = SweepRow(value, label, NOT_ASKED)
        else:
            row, stopped = _row(engine, edited(image, [f"task[{task}].{name}={value}"]), inputs, expected, value, label)
            if not stopped and not is_emulator and row.state != REFUSED:
                stopped = _still_right(engine, image, inputs, expected, value)
        rows.append(row)
        if on_row is not None:
            on_row(row)
    title = device if isinstance(device, str) else engine.name
    return FieldSweep(f"task[{task}].{handle.name}", title, image.tasks[task].read(handle), tuple(rows), stopped)


def _place(image: Image, path: str) -> tuple[int, str]:
    match = _PATH.fullmatch(path)
    if match is None or int(match[1]) >= len(image.tasks):
        raise UsageError(
            f"--sweep {path!r}",
            hint=f"task[N].BLOCK.REGISTER.FIELD; the program has {counted(len(image.tasks), 'task')}",
        )
    try:
        image.tasks[int(match[1])].handle(match[2])
    except HexaneError as error:
        raise UsageError(error.message, where=path, hint=error.hint or "hexane registers NAME") from None
    return int(match[1]), match[2]


def _row(
    engine: Device, image: Image, inputs: Arrays, expected: Arrays, value: int, label: str
) -> tuple[SweepRow, str]:
    """A value's row, and why no other one may be asked ("" where it may)."""
    try:
        results = emulate(image, inputs)
    except HexaneError as error:
        return SweepRow(value, label, REFUSED, str(error).splitlines()[0]), ""
    if engine.name != "emulator":
        try:
            results = _on(engine, image, inputs)
        except HexaneError as error:
            words = error.message.splitlines()[0]
            stops = getattr(error, "errno", 0) in STOPS
            return SweepRow(value, label, FAILED, words), f"at {value}: {words}" if stops else ""
    differ, of, largest = _difference(results, expected)
    return SweepRow(value, label, OTHER if differ else SAME, "", differ, of, largest), ""


def _on(engine: Device, image: Image, inputs: Arrays) -> dict[str, np.ndarray]:
    with Session(program_of(image, "sweep"), engine) as session:
        return {name: array.copy() for name, array in session.run(dict(inputs)).items()}


def _still_right(engine: Device, image: Image, inputs: Arrays, expected: Arrays, value: int) -> str:
    """Reason to ask no more after a value: the program as it was fails, or gives other bits."""
    try:
        _require_same(_on(engine, image, inputs), expected)
    except HexaneError as error:
        return f"after {value} the program as it was: {error.message.splitlines()[0]}"
    return ""


def _require_same(results: Arrays, expected: Arrays) -> None:
    differ, of, _ = _difference(results, expected)
    if differ:
        raise HexaneError(
            f"{differ} of {of} values differ from the emulator's",
            hint="hexane verify --report keeps what is needed to say why",
        )


def _difference(results: Arrays, expected: Arrays) -> tuple[int, int, float]:
    """Number of values that differ in bits, of how many, and by how much at most (infinite where one is no number)."""
    differ = of = 0
    largest = 0.0
    for name, reference in expected.items():
        array = np.asarray(results[name]).reshape(reference.shape)
        places = array.view(f"u{array.itemsize}") != reference.view(f"u{reference.itemsize}")
        differ, of = differ + int(places.sum()), of + reference.size
        if places.any():
            with np.errstate(all="ignore"):
                gap = np.abs(array[places].astype(np.float64) - reference[places].astype(np.float64)).max()
            largest = max(largest, float(gap) if np.isfinite(gap) else float("inf"))
    return differ, of, largest
