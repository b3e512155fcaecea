"""What one task asks for, read from its registers by role: dimensions, operands, result (docs/emulator.md).

Nothing is executed here. Every value whose effect is not known is an error that names its field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from hexane.emulator.ends import Operand, Result, result, sources
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent


class PEKind(IntEnum):
    """Common.Cfg.PEKind (docs/reference/engine-h13.md 4.3)."""

    UNARY = 2
    BINARY = 3
    SCALE_SHIFT = 4
    REDUCE = 5
    BINARY_REDUCE = 6


@dataclass(frozen=True)
class Task:
    """One task descriptor, understood."""

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
    source1: Operand
    source2: Operand | None
    result: Result

    @property
    def index(self) -> int:
        return self.registers.index


def understand(r: Registers) -> Task:
    """Read a task's registers. Raises EmulationError for a value that has no known effect."""
    on_ne = r.flag("Common.TaskInfo.NID")
    pe_kind = None if on_ne else PEKind(r.one_of("Common.Cfg.PEKind", tuple(PEKind), "kind of planar engine task"))
    if on_ne:
        r.one_of("Common.Cfg.PEKind", (0,), "neural core task")
    sizes = {name: _size(r, field) for name, field in _SIZES.items()}
    groups, cin, cout = sizes["groups"], sizes["cin"], sizes["cout"]
    data = Extent(groups, sizes["din"], cin, sizes["hin"], sizes["win"])
    two = pe_kind in TWO_OPERANDS
    ends = sources(r, data, two=two, rows=pe_kind is PEKind.SCALE_SHIFT)
    _require_holdable(r, data, "Common.InDim.Win")
    out = Extent(groups, sizes["dout"], cout, sizes["hout"], sizes["wout"])
    if on_ne:
        out = out._replace(w=out.w * r["Common.ConvCfg.Ox"])
    elif out != data:
        raise r.error(f"a planar engine task keeps its size: input {data}, output {out}", "Common.OutDim.Wout")
    _require_holdable(r, out, "Common.OutDim.Wout")
    if pe_kind in (PEKind.REDUCE, PEKind.BINARY_REDUCE):
        out = out._replace(d=1, h=1, w=1)
    return Task(
        registers=r,
        unit="NE" if on_ne else "PE",
        pe_kind=pe_kind,
        groups=groups,
        depth=sizes["din"],
        cin=cin,
        hin=sizes["hin"],
        win=sizes["win"],
        cout=cout,
        hout=sizes["hout"],
        wout=sizes["wout"],
        tile_height=_size(r, "Common.TileCfg.TileHeight"),
        source1=ends.source1,
        source2=ends.source2,
        result=result(r, out, on_ne=on_ne),
    )


_SIZES = {
    "groups": "Common.GroupConvCfg.NumGroups",
    "din": "Common.InDepth.Din",
    "dout": "Common.OutDepth.Dout",
    "cin": "Common.Cin.Cin",
    "cout": "Common.Cout.Cout",
    "hin": "Common.InDim.Hin",
    "win": "Common.InDim.Win",
    "hout": "Common.OutDim.Hout",
    "wout": "Common.OutDim.Wout",
}
TWO_OPERANDS = (PEKind.BINARY, PEKind.SCALE_SHIFT, PEKind.BINARY_REDUCE)


MOST_ELEMENTS = 1 << 27
"""Elements of one operand that the emulator holds; strides of 0 could ask for any number."""


def _require_holdable(r: Registers, extent: Extent, register: str) -> None:
    if math.prod(extent) > MOST_ELEMENTS:
        raise r.error(f"a map of {extent} elements is more than the emulator holds", register)


def _size(r: Registers, name: str) -> int:
    """A size of 0 hangs the engine (docs/reference/engine-h13.md 4.10)."""
    value = r[name]
    if value == 0:
        raise r.error("size 0 hangs the engine", name)
    return value
