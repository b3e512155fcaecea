"""A task in a line (docs/reference/engine-h13.md 4.3, 4.7, 4.8). For people: nothing computes from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.isa.kinds import NE_NONLINEAR, NE_OP, PE_KIND, PE_NONLINEAR, PE_OP

if TYPE_CHECKING:
    from hexane.isa.task import Task


def headline(task: Task) -> str:
    """``h13 #0 NE bypass relu, 1x1x77 -> 1x1x77, 157 words``: shapes are C x H x W per group."""
    shape = " -> ".join("x".join(str(n) for n in side) for side in shapes(task))
    return f"{task.generation} #{task.get('Header[0].TID')} {operation(task)}, {shape}, {task.layout.size} words"


def runs_on_ne(task: Task) -> bool:
    """True where the neural cores run the task; otherwise the planar engine does (docs/reference/engine-h13.md 1)."""
    return task.get("Common.TaskInfo.NID") != 0


def shapes(task: Task) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """C, H, W of input and output, per group."""
    get = task.get
    if task.generation in ("h13", "h14", "h15"):
        width, height = ("Common.InDim.Win", "Common.OutDim.Wout"), ("Common.InDim.Hin", "Common.OutDim.Hout")
    else:
        width, height = ("Common.Win.Win", "Common.Wout.Wout"), ("Common.Hin.Hin", "Common.Hout.Hout")
    return (
        (get("Common.Cin.Cin"), get(height[0]), get(width[0])),
        (get("Common.Cout.Cout"), get(height[1]), get(width[1])),
    )


def operation(task: Task) -> str:
    """Unit and operation, ``NE sum 3x3 relu`` or ``PE binary add``."""
    get = task.get
    if runs_on_ne(task):
        kernel = f"{get('Common.ConvCfg.Kw')}x{get('Common.ConvCfg.Kh')}"
        words = ["NE", NE_OP.name(get("NE.MACCfg.OpMode")) or "?", "" if kernel == "1x1" else kernel]
        return " ".join([*filter(None, words), *_unless_none(NE_NONLINEAR.name(get("NE.MACCfg.NonlinearMode")))])
    fields = task.handle("PE.Cfg").register.by_name
    kind = get("Common.Cfg.PEKind")
    words = ["PE", PE_KIND.name(kind) or "?"]
    if kind in (3, 6):
        words.append("sub" if get("PE.Cfg.SecSrc") == 3 else PE_OP.name(get("PE.Cfg.OpMode")) or "?")
    if "NonlinearMode" in fields:
        words += _unless_none(PE_NONLINEAR.name(get("PE.Cfg.NonlinearMode")))
    return " ".join([*words, *(["relu"] if "ReluEn" in fields and get("PE.Cfg.ReluEn") else [])])


def _unless_none(name: str | None) -> list[str]:
    return [] if name == "none" else [name or "?"]
