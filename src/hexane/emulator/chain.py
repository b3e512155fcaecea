"""The task manager of H13: walk the linked list of task descriptors in memory (docs/reference/engine-h13.md 4.1, 4.2).

Only the text bytes count here: sizes come from NextSize, places from NextPointer, and every check is one that
makes the real task manager stop or hang.
"""

from __future__ import annotations

from collections.abc import Iterator

from hexane import isa
from hexane.emulator.registers import RegisterReader, Registers
from hexane.errors import EmulationError, HexaneError
from hexane.isa.stream import Layouts

ALIGNMENT = 0x100
MOST_TASKS = 0x10000  # per operation (docs/reference/engine-h13.md 4.2)


def walk(
    text: bytes, generation: str, *, first_words: int | None, count: int | None, read: RegisterReader = Registers
) -> Iterator[Registers]:
    """Every task in the order of the links.

    Parameters
    ----------
    text : the text section.
    first_words : length of the first task in 32-bit words, which the program header states; None where it is not known.
    count : number of tasks that the program header states; None where it is not known.
    read : what makes registers of a task's place in the chain and its descriptor.

    Raises EmulationError for a broken link, a wrong task number, or a size that does not fit the records.
    """
    offset, words = 0, first_words
    layouts = Layouts()
    data = memoryview(text)[: len(text) & ~3].cast("I")
    for index in range(MOST_TASKS):
        r = read(index, _task(data, generation, index, offset, words, layouts))
        last = r.flag("Header[0].EON")
        _require_numbers(r, index, last=last)
        yield r
        if last:
            if count is not None and count != index + 1:
                raise r.error(f"the chain ends after {index + 1} tasks, the program states {count}", "Header[0].EON")
            return
        offset, words = _link(r, len(text)), r["Header[1].NextSize"] + 1
    raise EmulationError(f"the chain has more than {MOST_TASKS} tasks", task=MOST_TASKS)


def _task(data: memoryview, generation: str, index: int, offset: int, words: int | None, layouts: Layouts) -> isa.Task:
    size = _length(data, offset, index)
    if words is not None and words != size:
        where = "Header[1].NextSize" if index else "first task"
        raise EmulationError(
            f"the size given for this task is {words} words, its header and records have {size}",
            task=index,
            register=where,
            address=offset,
        )
    try:
        task = isa.task_from_words(data[offset // 4 : offset // 4 + size], generation, layouts)
    except HexaneError as error:
        raise EmulationError(f"not a task descriptor: {error}", task=index, address=offset) from error
    _require_blocks(task, index)
    return task


def _length(data: memoryview, offset: int, index: int) -> int:
    """Words of the task at an offset: its header, then records while they follow the order of the blocks."""
    start, stop = offset // 4, len(data)
    if start + 10 > stop:
        raise EmulationError(
            f"the task starts at {offset:#x} of the text, which has {4 * stop:#x} bytes", task=index, address=offset
        )
    at = start + (11 if data[start + 6] >> 24 & 1 else 10)
    while at < stop:
        head = data[at]
        end = at + (head >> 26) + 2
        if head == 0 or end > stop:
            break
        at = end
        if head & 0x3FFFFFF == _LAST_BLOCK:
            return at - start
    raise EmulationError("the task's records run out before the last block", task=index, address=4 * at)


_LAST_BLOCK = 0x17800  # the tile DMA writer's record closes a task (docs/reference/engine-h13.md 4.1)


def _require_blocks(task: isa.Task, index: int) -> None:
    """Every block whole and in order, as in all programs; what the engine makes of less is not known (§17 (20))."""
    records = task.layout.shape
    if records not in _RECORDS:
        for record, expected in zip(records, _RECORDS[len(records) == len(_RECORDS[1])]):
            if record != expected:
                raise EmulationError(
                    f"a record of {record[1]} words for {record[0]:#x} where "
                    f"{expected[1]} words for {expected[0]:#x} belong",
                    task=index,
                    register="record head",
                )
        raise EmulationError(f"the task has {len(records)} records", task=index, register="record head")


_BLOCKS = ((0x0, 16), (0x13800, 28), (0x4800, 18), (0x8800, 4), (0xC800, 5), (0x17800, 7))
_RECORDS = (((0x1F800, 62), *_BLOCKS), ((0x1F800, 18), (0x1F8C8, 12), *_BLOCKS))


def _require_numbers(r: Registers, index: int, *, last: bool) -> None:
    if r["Header[0].TID"] != index:
        raise r.error(f"task number {r['Header[0].TID']} at place {index} of the chain", "Header[0].TID")
    if r["Header[0].LNID"] != (index > 0):
        raise r.error("must be 0 in the first task and 1 in all others", "Header[0].LNID")
    expected = {
        "Header[8].TBase": 0,
        "Header[8].TBE": int(not last),
        **({"Header[1].NextSize": 0, "Header[7].NextPointer": 0} if last else {}),
    }
    for name, value in expected.items():
        if r[name] != value:
            raise r.error(f"value {r[name]:#x} in the {'last' if last else 'middle'} of a chain, not {value:#x}", name)


def _link(r: Registers, size: int) -> int:
    target = r["Header[7].NextPointer"]
    if target == 0 or target % ALIGNMENT or target >= size:
        raise r.error(
            f"link to {target:#x}: the next task must start at a multiple of {ALIGNMENT:#x} inside the text",
            "Header[7].NextPointer",
            address=target,
        )
    return target
