"""Programs that are known as registers only (``tests/data/listings.json``)."""

from __future__ import annotations

from typing import Any

from emulator import tasks as make
from facts import packed
from hexane import isa


def listing(name: str) -> list[isa.Task]:
    """The tasks of a listed program."""
    return [_task(**entry) for entry in packed("listings.json")[name]]


def _task(unit: str, header: list[str], registers: dict[str, str], kernel: dict[str, Any]) -> isa.Task:
    task = make.blank(unit)
    if unit == "PE":
        task.set("Common.ChCfg", 0x2A)
    else:
        task.set("Header[8].ENE", 0)
    make.put(task, {"TileDMASrc.Fmt": 0x01002031, "TileDMADst.Fmt": 0x01302031, "TileDMASrc.Unk13840.Bit8": 1})
    make.put(task, {"L2.SourceCfg": 0, "L2.ResultCfg": 0})
    for index, word in enumerate(header):
        task.set(f"Header[{index}]", int(word, 16))
    table = task._family.table
    for address, value in registers.items():
        task.set(table.register(int(address, 16))[0], int(value, 16))
    if kernel:
        _kernel(task, kernel)
    return task


def _kernel(task: isa.Task, fields: dict[str, str]) -> None:
    task.set("KernelDMASrc.MasterConfig", int(fields["1f800"], 16))
    base, step, size = (int(fields.get(name, "0"), 16) for name in ("base", "step", "size"))
    for core in range(int(fields["cores"])):
        task.set(f"KernelDMASrc.CoeffDMAConfig[{core}].En", 1)
        task.set(f"KernelDMASrc.CoeffBaseAddr[{core}]", base + core * step)
        task.set(f"KernelDMASrc.CoeffBfrSize[{core}]", size)
