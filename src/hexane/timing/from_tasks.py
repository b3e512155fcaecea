"""Compiled H13 tasks as work: what the registers say that an engine will do, in the same layers as a graph."""

from __future__ import annotations

from collections.abc import Sequence

from hexane.cost.task import OPERATIONS, TWO_OPERANDS, TaskFacts, layer_of, operand_bytes
from hexane.cost.work import Work
from hexane.errors import UnsupportedError
from hexane.isa import Task

NE_TASK = 1  # Common.TaskInfo.NID in tasks that run on the neural cores (docs/reference/engine-h13.md 1)
TABLE = 2  # NE.MACCfg.NonlinearMode
FOLLOWS_NE, FOLLOWS_PE = 1, 2  # L2.SourceCfg.Dependent
STRIPS = 3  # L2.SourceCfg.SourceType
_WIDTH = {0: 1, 1: 1, 2: 2}  # bytes by format code (docs/reference/engine-h13.md 4.3)


def work_of_tasks(tasks: Sequence[Task], name: str = "task") -> Work:
    """The work of a linked list of tasks; UnsupportedError for generations other than H13."""
    layers = []
    for index, task in enumerate(tasks):
        if task.generation != "h13":
            raise UnsupportedError(
                f"hexane times tasks of H13 only, this one is for {task.generation}",
                hint="estimate the network instead",
            )
        layers.append(layer_of(facts_of(task), f"{name}[{index}]"))
    return Work(
        tuple(layers),
        host_in_bytes=sum(layer.in_bytes for layer in layers if layer.reads_input),
        host_out_bytes=sum(layer.out_bytes for layer in layers if layer.writes_output),
    )


def facts_of(task: Task) -> TaskFacts:
    """What a task's registers say of its cost."""
    get = task.get
    neural = get("Common.TaskInfo.NID") == NE_TASK
    kind = get("Common.Cfg.PEKind")
    in_width, out_width = (_WIDTH.get(get(f"Common.ChCfg.{name}"), 2) for name in ("InFmt", "OutFmt"))
    return TaskFacts(
        operation=OPERATIONS.get(get("NE.MACCfg.OpMode"), "sum") if neural else "planar",
        kind=kind,
        win=get("Common.InDim.Win"),
        hin=get("Common.InDim.Hin"),
        din=max(get("Common.InDepth.Din"), 1),
        cin=get("Common.Cin.Cin"),
        wout=get("Common.OutDim.Wout"),
        hout=get("Common.OutDim.Hout"),
        cout=get("Common.Cout.Cout"),
        groups=max(get("Common.GroupConvCfg.NumGroups"), 1),
        in_width=in_width,
        out_width=out_width,
        kh=max(get("Common.ConvCfg.Kh"), 1),
        kw=max(get("Common.ConvCfg.Kw"), 1),
        stride=max(get("Common.ConvCfg.Sx"), 1),
        read_bytes=_read_bytes(task, kind, in_width),
        writes=bool(get("Header[6].DstLoc")),
        kernel_bytes=_kernel_bytes(task) if neural else 0,
        computed=_is_computed(task),
        unicast=bool(get("Common.GroupConvCfg.UnicastEn")),
        stored=_stored(task) if neural else "fp16",
        table=get("NE.MACCfg.NonlinearMode") == TABLE and neural,
        follows=get("L2.SourceCfg.Dependent") == (FOLLOWS_PE if neural else FOLLOWS_NE)
        or get("L2.SourceCfg.SourceType") == STRIPS,
    )


def _stored(task: Task) -> str:
    if task.get("NE.KernelCfg.SparseFmt"):
        return "sparse"
    return "palette" if task.get("NE.KernelCfg.PalettizedEn") else "fp16"


def _read_bytes(task: Task, kind: int, width: int) -> float | None:
    """What both operands bring from memory; None where nothing comes."""
    get = task.get
    if not get("Header[6].SrcLoc"):
        return None
    shape = (
        get("Common.InDim.Win"),
        get("Common.InDim.Hin"),
        max(get("Common.InDepth.Din"), 1),
        get("Common.Cin.Cin"),
        max(get("Common.GroupConvCfg.NumGroups"), 1),
    )
    total = 0
    if get("Header[8].RBE0") and not get("Header[6].SPC"):
        total += operand_bytes(shape, get("Common.PECfg.Src1Broadcast"), width)
    if get("Header[8].RBE1") and kind in TWO_OPERANDS:
        total += operand_bytes(shape, get("Common.PECfg.Src2Broadcast"), width)
    return float(total)


def _kernel_bytes(task: Task) -> int:
    total = 0
    for core in range(16):
        if task.get(f"KernelDMASrc.CoeffDMAConfig[{core}].En"):
            total += task.get(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize") * 64
    return total


def _is_computed(task: Task) -> bool:
    """Kernels from scratch (channel 3) or from a surface (channel 4 on) are operands, not constants (§4.2, word 9)."""
    return bool(task.get("Header[9].KBE0")) and task.get("Header[9].KBase0") >= 3
