"""Compiled tasks as work: what the registers say that an engine will do, in the same layers as a graph.

Every generation whose tasks are known is read by role (``hexane.isa.roles``): the same facts under the names of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hexane.cost.task import OPERATIONS, TWO_OPERANDS, TaskFacts, layer_of, operand_bytes
from hexane.cost.work import Work
from hexane.errors import UnsupportedError
from hexane.isa import Task
from hexane.isa.generations import WRITTEN
from hexane.isa.kinds import ELEMENT
from hexane.isa.roles import roles_of

NE_TASK = 1  # Common.TaskInfo.NID in tasks that run on the neural cores (docs/reference/engine-h13.md 1)
TABLE = 2  # NE.MACCfg.NonlinearMode
FOLLOWS_NE, FOLLOWS_PE = 1, 2  # L2.SourceCfg.Dependent; from H15 on source 2 has its own
STRIPS = 3  # L2.SourceCfg.SourceType
FIRST_COMPUTED = 3
"""Kernels from scratch (channel 3) or from a surface (4 on) are operands; from H14 on surfaces begin later."""
_WIDTH = {0: 1, 1: 1, 2: 2}  # bytes by format code (docs/reference/engine-h13.md 4.3)


def work_of_tasks(tasks: Sequence[Task], name: str = "task") -> Work:
    """The work of the tasks of one program, in order; UnsupportedError for generations whose tasks are not known."""
    layers = []
    for index, task in enumerate(tasks):
        if task.generation not in WRITTEN:
            raise UnsupportedError(
                f"hexane times tasks of {WRITTEN[0].upper()} to {WRITTEN[-1].upper()}, this one is for "
                f"{task.generation.upper()}",
                hint="estimate the network instead",
            )
        layers.append(layer_of(facts_of(task), f"{name}[{index}]"))
    return Work(
        tuple(layers),
        host_in_bytes=sum(layer.in_bytes for layer in layers if layer.reads_input),
        host_out_bytes=sum(layer.out_bytes for layer in layers if layer.writes_output),
    )


def facts_of(task: Task) -> TaskFacts:
    """Registers of a task that speak of its cost."""
    roles = roles_of(task.generation)
    values = roles.values(task)

    def get(role: str) -> int:
        return values.get(role, 0)

    neural = get("Common.TaskInfo.NID") == NE_TASK
    kind = get("Common.Cfg.PEKind")
    in_width, out_width = (_WIDTH.get(get(f"Common.ChCfg.{name}"), 2) for name in ("InFmt", "OutFmt"))
    staged = not roles.family.packed and bool(get("Header[6].SPC"))
    first, second, result, kernel = (roles.channel(task, side) for side in ("source1", "source2", "result", "kernel"))
    sources = (first is not None and not staged, second is not None)
    sent = result is not None and (roles.family.packed or bool(get("Header[6].DstLoc")))
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
        read_bytes=_read_bytes(values, sources, in_width),
        writes=sent,
        kernel_bytes=_kernel_bytes(values) if neural else 0,
        computed=neural and kernel is not None and _is_computed(task, values, kernel),
        unicast=bool(get("Common.GroupConvCfg.UnicastEn")),
        stored=_stored(values) if neural else "fp16",
        table=get("NE.MACCfg.NonlinearMode") == TABLE and neural,
        follows=(FOLLOWS_PE if neural else FOLLOWS_NE) in (get("L2.SourceCfg.Dependent"), get("L2.Src2Cfg.Dependent"))
        or get("L2.SourceCfg.SourceType") == STRIPS,
    )


def _stored(values: Mapping[str, int]) -> str:
    if values.get("NE.KernelCfg.SparseFmt"):
        return "sparse"
    if values.get("NE.KernelCfg.PalettizedEn"):
        return "palette"
    return "int8" if values.get("NE.KernelCfg.KernelFmt") == ELEMENT.value("int8") else "fp16"


def _read_bytes(values: Mapping[str, int], sources: tuple[bool, bool], width: int) -> float | None:
    """Bytes of both operands from memory; None where nothing comes."""
    if not any(sources):
        return None
    shape = (
        values.get("Common.InDim.Win", 0),
        values.get("Common.InDim.Hin", 0),
        max(values.get("Common.InDepth.Din", 0), 1),
        values.get("Common.Cin.Cin", 0),
        max(values.get("Common.GroupConvCfg.NumGroups", 0), 1),
    )
    total = 0
    if sources[0]:
        total += operand_bytes(shape, values.get("Common.PECfg.Src1Broadcast", 0), width)
    if sources[1] and values.get("Common.Cfg.PEKind") in TWO_OPERANDS:
        total += operand_bytes(shape, values.get("Common.PECfg.Src2Broadcast", 0), width)
    return float(total)


def _kernel_bytes(values: Mapping[str, int]) -> int:
    return sum(
        values.get(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize", 0) * 64
        for core in range(16)
        if values.get(f"KernelDMASrc.CoeffDMAConfig[{core}].En")
    )


def _is_computed(task: Task, values: Mapping[str, int], channel: int) -> bool:
    """Kernels that a task or the host writes. On H13 their channel says so; later their blocks are aligned, as only
    those of a task with a table in a channel of its own are too."""
    roles = roles_of(task.generation)
    if not roles.family.packed:
        return channel >= FIRST_COMPUTED
    return bool(values.get("NE.KernelCfg.KernelAlign")) and roles.channel(task, "table") is None
