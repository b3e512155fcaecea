"""Request of one task, read from its registers by role: dimensions, operands, result (docs/emulator.md).

Nothing is executed here. Every value whose effect is not known is an error that names its field.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from typing import TypeVar

from hexane.emulator.ends import TaskResult, TaskSource, result, sources
from hexane.emulator.once import once
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent
from hexane.frozen import dict_init


class PEKind(IntEnum):
    """Common.Cfg.PEKind (docs/reference/engine-h13.md 4.3)."""

    UNARY = 2
    BINARY = 3
    SCALE_SHIFT = 4
    REDUCE = 5
    BINARY_REDUCE = 6


@dict_init
@dataclass(frozen=True)
class EngineTask:
    """One task descriptor, understood; ``form``, if it is another of the form of one before, is that one."""

    registers: Registers
    unit: str  # "NE" or "PE"
    pe_kind: PEKind | None
    groups: int
    depth: int
    cin: int
    hin: int
    win: int
    cout: int
    hout: int
    wout: int
    tile_height: int
    source1: TaskSource
    source2: TaskSource | None
    result: TaskResult
    form: EngineTask | None = None

    @property
    def index(self) -> int:
        return self.registers.index

    def at(self, registers: Registers) -> EngineTask:
        """The same of another task of its form (``Registers.form``)."""
        task = object.__new__(EngineTask)
        task.__dict__.update(self.__dict__, registers=registers, form=self)
        return task


Answer = TypeVar("Answer")


def of_form(question: Callable[[EngineTask], Answer]) -> Callable[[EngineTask], Answer]:
    """A question about a task that has one answer for all tasks of its form; it is asked of the first of them."""
    name = f"{question.__module__}.{question.__qualname__}"

    @wraps(question)
    def asked(task: EngineTask) -> Answer:
        answers = vars(task.form or task)
        if name not in answers:
            answers[name] = question(task.form or task)
        answer: Answer = answers[name]
        return answer

    return asked


def understand(r: Registers) -> EngineTask:
    """Read a task's registers. Raises EmulationError for a value that has no known effect."""
    pe_kind = _kind(r)
    on_ne = pe_kind is None
    sizes = r.several(_SIZES)
    if 0 in sizes:
        raise r.error("size 0 hangs the engine", _SIZES[sizes.index(0)])  # docs/reference/engine-h13.md 4.10
    groups, din, dout, cin, cout, hin, win, hout, wout, tile_height = sizes
    data = Extent(groups, din, cin, hin, win)
    ends = sources(r, data, two=pe_kind in TWO_OPERANDS, rows=pe_kind is PEKind.SCALE_SHIFT)
    _require_holdable(r, data, "Common.InDim.Win")
    out = Extent(groups, dout, cout, hout, wout * r["Common.ConvCfg.Ox"] if on_ne else wout)
    if not on_ne and out != data:
        raise r.error(f"a planar engine task keeps its size: input {data}, output {out}", "Common.OutDim.Wout")
    _require_holdable(r, out, "Common.OutDim.Wout")
    if pe_kind in (PEKind.REDUCE, PEKind.BINARY_REDUCE):
        out = out._replace(d=1, h=1, w=1)
    return EngineTask(
        r, "NE" if on_ne else "PE", pe_kind, groups, din, cin, hin, win, cout, hout, wout, tile_height,
        ends.source1, ends.source2, result(r, out, on_ne=on_ne),
    )  # fmt: skip


@once
def _kind(r: Registers) -> PEKind | None:
    if r.flag("Common.TaskInfo.NID"):
        r.one_of("Common.Cfg.PEKind", (0,), "neural core task")
        return None
    return PEKind(r.one_of("Common.Cfg.PEKind", tuple(PEKind), "kind of planar engine task"))


_SIZES = (
    "Common.GroupConvCfg.NumGroups",
    "Common.InDepth.Din",
    "Common.OutDepth.Dout",
    "Common.Cin.Cin",
    "Common.Cout.Cout",
    "Common.InDim.Hin",
    "Common.InDim.Win",
    "Common.OutDim.Hout",
    "Common.OutDim.Wout",
    "Common.TileCfg.TileHeight",
)
TWO_OPERANDS = (PEKind.BINARY, PEKind.SCALE_SHIFT, PEKind.BINARY_REDUCE)


MOST_ELEMENTS = 1 << 27
"""Elements of one operand that the emulator holds; strides of 0 could ask for any number."""


def _require_holdable(r: Registers, extent: Extent, register: str) -> None:
    if math.prod(extent) > MOST_ELEMENTS:
        raise r.error(f"a map of {extent} elements is more than the emulator holds", register)
