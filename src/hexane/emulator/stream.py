"""The task manager of H14 and later: tasks one behind the other, no links (docs/emulator.md).

A task's size stands in its own header; it starts at the next 16 bytes behind the task before. Every task starts from
reset values: a register that it does not write does not keep what the task before wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

from hexane import isa
from hexane.emulator.once import once
from hexane.emulator.registers import RegisterReader, Registers
from hexane.errors import EmulationError, HexaneError


def walk(text: bytes, generation: str, *, count: int | None, read: RegisterReader = Registers) -> Iterator[Registers]:
    """Every task in the order of the stream.

    ``count`` is the number of tasks that the program states; None where it is not known; ``read``: see ``chain.walk``.

    Raises EmulationError for bytes that are no stream, for a wrong task number, a wrong tag, and a mark of the last
    task that another task has or the last one lacks.
    """
    try:
        tasks = isa.decode_stream(text, generation)
    except HexaneError as error:
        raise EmulationError(f"not a task stream: {error}") from error
    if not tasks:
        raise EmulationError("the stream has no task")
    if count is not None and count != len(tasks):
        raise EmulationError(f"the stream has {len(tasks)} tasks, the program states {count}", task=len(tasks))
    for index, task in enumerate(tasks):
        r = read(index, task)
        _require_position(r, index, last=index == len(tasks) - 1)
        yield r


_MASTER = "KernelDMASrc.MasterConfig"


@once
def _tagged(r: Registers) -> tuple[str, ...]:
    """Names of the tags of DMA switches that are on and carry the task's number; two of them at least, for one read."""
    switches = ["TileDMASrc.Src2DMAConfig", "TileDMADst.DMAConfig"]
    if r.channel("source1") is not None:  # on H14 the same switch is on for source 2 alone, without a number
        switches.append("TileDMASrc.DMAConfig")
    if r.flag(f"{_MASTER}.MasterEnable"):
        switches += [f"KernelDMASrc.CoeffDMAConfig[{core}]" for core in range(16)]
        switches.append(r.roles.field("KernelDMASrc.TableDMAConfig.En").removesuffix(".En"))
    tags = tuple(f"{switch}.Tag" for switch in switches if r.flag(f"{switch}.En"))
    return tags and (tags[0], *tags)


@once
def _require_marks(r: Registers, last: bool) -> None:
    flags = f"Header[{r.roles.family.flags_word}]"
    for name in (f"{_MASTER}.LastTask", f"{flags}.LastTask"):
        _expect_if_there(r, name, int(last))
    if not r.flag(f"{flags}.TSR"):
        raise r.error("0, and every task has it set", f"{flags}.TSR")
    if r[f"{_MASTER}.KernelStream"] != r[f"{_MASTER}.MasterEnable"]:
        raise r.error("does not agree with MasterEnable", f"{_MASTER}.KernelStream")


def _require_position(r: Registers, index: int, *, last: bool) -> None:
    """Place of a task in its stream: number, tags, mark of the last one."""
    if r["Task.TID"] != index:
        raise r.error(f"task number {r['Task.TID']} at place {index} of the stream", "Task.TID")
    _require_marks(r, last)
    tags = _tagged(r)
    for name, tag in zip(tags, r.several(tags)) if tags else ():
        if tag != index:
            raise r.error(f"tag {tag}, and the task is number {index}", name)
    tag = index + 1 if r.flag(f"{_MASTER}.MasterEnable") else 0
    if r[f"{_MASTER}.Tag"] != tag:
        raise r.error(f"tag {r[f'{_MASTER}.Tag']}, and the task is number {index}: {tag}", f"{_MASTER}.Tag")


def _expect_if_there(r: Registers, name: str, value: int) -> None:
    register, _, field = name.rpartition(".")
    if field in r.roles.handle(register).register.by_name and r[name] != value:
        raise r.error(f"{r[name]}, and this is {'' if value else 'not '}the last task", name)
