"""Compiled H13 tasks as work: what the registers say that an engine will do, in the same layers as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hexane.errors import UnsupportedError
from hexane.isa import Task
from hexane.timing.work import Layer, Unit, Work

NE_TASK = 1  # Common.TaskInfo.NID in tasks that run on the neural cores (docs/reference/engine-h13.md 1)
BYPASS, MAXIMUM, PAIRWISE = 4, 3, {2: "NE product", 3: "NE maximum"}
"""NE.MACCfg.OpMode of tasks that do not sum products: copies and tables, products and maxima over channels."""
_WIDTH = {0: 1, 1: 1, 2: 2}  # bytes by format code (docs/reference/engine-h13.md 4.3)
_PLANAR: dict[int, Unit] = {1: "pool", 2: "unary", 3: "binary", 4: "unary", 5: "reduce", 6: "reduce"}


def work_of_tasks(tasks: Sequence[Task], name: str = "task") -> Work:
    """The work of a linked list of tasks; UnsupportedError for generations other than H13."""
    layers = []
    for index, task in enumerate(tasks):
        if task.generation != "h13":
            raise UnsupportedError(
                f"hexane times tasks of H13 only, this one is for {task.generation}",
                hint="estimate the network instead",
            )
        layers.append(_layer(task, f"{name}[{index}]"))
    return Work(
        tuple(layers),
        host_in_bytes=sum(layer.in_bytes for layer in layers if layer.reads_input),
        host_out_bytes=sum(layer.out_bytes for layer in layers if layer.writes_output),
    )


def _layer(task: Task, name: str) -> Layer:
    get = task.get
    groups = max(get("Common.GroupConvCfg.NumGroups"), 1)
    win, hin = get("Common.InDim.Win"), get("Common.InDim.Hin")
    wout, hout = get("Common.OutDim.Wout"), get("Common.OutDim.Hout")
    depth = max(get("Common.InDepth.Din"), 1)
    cin, cout = get("Common.Cin.Cin") * groups, get("Common.Cout.Cout") * groups
    in_width, out_width = _WIDTH.get(get("Common.ChCfg.InFmt"), 2), _WIDTH.get(get("Common.ChCfg.OutFmt"), 2)
    in_bytes = float(win * hin * depth * cin * in_width)
    out_bytes = float(wout * hout * depth * cout * out_width)
    shared: dict[str, Any] = dict(
        name=name,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        reads_input=bool(get("Header[6].SrcLoc")),
        writes_output=bool(get("Header[6].DstLoc")),
    )
    if get("Common.TaskInfo.NID") != NE_TASK:
        kind = _PLANAR.get(get("Common.Cfg.PEKind"), "unary")
        operands = 2 if kind == "binary" or get("Common.Cfg.PEKind") == 6 else 1
        shared["in_bytes"] = in_bytes * operands
        return Layer(
            **shared,
            op=f"PE kind {get('Common.Cfg.PEKind')}",
            unit=kind,
            elements=max(in_bytes / in_width, out_bytes / out_width),
            operands=operands,
        )
    stream = _kernel_bytes(task)
    operation = get("NE.MACCfg.OpMode")
    if operation == BYPASS:
        unit: Unit = "unary" if get("NE.MACCfg.NonlinearMode") == 2 else "move"
        return Layer(
            **shared, op="NE table" if unit == "unary" else "NE copy", unit=unit, elements=out_bytes / out_width
        )
    kh, kw = max(get("Common.ConvCfg.Kh"), 1), max(get("Common.ConvCfg.Kw"), 1)
    if operation == MAXIMUM and kh * kw > 1:
        return Layer(**shared, op="NE pool", unit="pool", elements=in_bytes / in_width, extrapolated=True)
    if operation in PAIRWISE:
        return Layer(**shared, op=PAIRWISE[operation], unit="reduce", elements=in_bytes / in_width)
    runtime = _is_runtime(task)
    unicast = bool(get("Common.GroupConvCfg.UnicastEn"))
    dense = float(cin * cout * kh * kw * 2) / (groups * (cin if unicast else 1))
    stored = "sparse" if get("NE.KernelCfg.SparseFmt") else "palette" if get("NE.KernelCfg.PalettizedEn") else "fp16"
    return Layer(
        **shared,
        op="NE matmul" if runtime else "NE conv",
        unit="runtime" if runtime else "mac",
        pixels=wout * hout * depth,
        cin=cin,
        cout=cout,
        kh=kh,
        kw=kw,
        stride=max(get("Common.ConvCfg.Sx"), 1),
        groups=groups * (cin // groups if unicast else 1),
        weight_bytes=float(stream),
        dense_bytes=dense,
        weight_format=stored,
        extrapolated=unicast or groups > 1,
    )


def _kernel_bytes(task: Task) -> int:
    total = 0
    for core in range(16):
        if task.get(f"KernelDMASrc.CoeffDMAConfig[{core}].En"):
            total += task.get(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize") * 64
    return total


def _is_runtime(task: Task) -> bool:
    """Kernels from scratch (channel 3) or from a surface (channel 4 on) are operands, not constants (§4.2, word 9)."""
    return bool(task.get("Header[9].KBE0")) and task.get("Header[9].KBase0") >= 3
