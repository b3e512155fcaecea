"""Programs that the specification lists as registers (engine-h13 appendix A), read from its text."""

from __future__ import annotations

import re
from pathlib import Path

from emulator import tasks as make
from hexane import isa

SPEC = Path("spec") / "engine-h13.md"
_TASK = re.compile(r"^ +T(\d+) (NE|PE) hdr (.*)$")
_GROUPS = {"C": 0, "S": 0, "D": 0, "L": 0, "P": 0, "N": 0}


def listing(text: str, start: str) -> list[isa.Task]:
    """The tasks listed under the comment line that starts with ``start``."""
    lines = iter(text[text.index(f"\n# {start}") + 1 :].splitlines()[1:])
    found: list[tuple[str, list[int], dict[str, dict[int, int]], str]] = []
    for line in lines:
        if not line.startswith(" ") or line.strip().startswith("("):
            break
        head = _TASK.match(line)
        if head:
            words = [int(word, 16) for word in head.group(3).split()]
            found.append((head.group(2), words, {}, ""))
            continue
        unit, words, groups, kernel = found[-1]
        for part in line.split("|"):
            kernel = _part(part.strip(), groups, [entry[2] for entry in found[:-1]]) or kernel
        found[-1] = (unit, words, groups, kernel)
    return [_task(*entry) for entry in found]


def _part(part: str, groups: dict[str, dict[int, int]], before: list[dict[str, dict[int, int]]]) -> str:
    """One group of a line: values, or "as T0"; returns the kernel description when it is one."""
    same = re.match(r"^([A-Z](?:, [A-Z])*) as T(\d+)$", part)
    if same:
        for name in same.group(1).split(", "):
            groups[name] = before[int(same.group(2))][name]
        return ""
    name, _, rest = part.partition(" ")
    if name == "K":
        return rest
    values = (item.split("=") for item in rest.split())
    groups[name] = {int(address, 16): int(value, 16) for address, value in values}
    return ""


def _task(unit: str, words: list[int], groups: dict[str, dict[int, int]], kernel: str) -> isa.Task:
    task = make.blank(unit)
    if unit == "PE":
        task.set("Common.ChCfg", 0x2A)
    else:
        task.set("Header[8].ENE", 0)
    make.put(task, {"TileDMASrc.Fmt": 0x01002031, "TileDMADst.Fmt": 0x01302031, "TileDMASrc.Unk13840.Bit8": 1})
    make.put(task, {"L2.SourceCfg": 0, "L2.ResultCfg": 0})
    for index, word in enumerate(words):
        task.set(f"Header[{index}]", word)
    table = task._family.table
    for values in groups.values():
        for address, value in values.items():
            task.set(table.register(address)[0], value)
    if kernel:
        _kernel(task, kernel)
    return task


def _kernel(task: isa.Task, text: str) -> None:
    fields = dict(item.split("=") for item in text.split() if "=" in item)
    task.set("KernelDMASrc.MasterConfig", int(fields["1f800"], 16))
    base, step, size = (int(fields.get(name, "0"), 16) for name in ("base", "step", "size"))
    for core in range(int(fields["cores"])):
        task.set(f"KernelDMASrc.CoeffDMAConfig[{core}].En", 1)
        task.set(f"KernelDMASrc.CoeffBaseAddr[{core}]", base + core * step)
        task.set(f"KernelDMASrc.CoeffBfrSize[{core}]", size)
