"""Programs out of tasks: set what follows from a task's position, and cut tasks out.

Source: docs/reference/engine-h13.md 4.2, 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hexane.errors import UsageError
from hexane.isa.generations import family_of
from hexane.isa.stream import next_offset, task_list
from hexane.isa.task import Task, TaskPlace

LINK_FIELDS = (
    "Header[0].LNID",
    "Header[0].EON",
    "Header[1].NextSize",
    "Header[7].NextPointer",
    "Header[8].TBase",
    "Header[8].TBE",
)
"""What an H13 task says of the next one."""


def link(*programs: Iterable[Task]) -> list[Task]:
    """Join tasks, or whole programs one behind the other, to one program.

    Returns copies with new places in the stream, in which only what follows from the position is set:

    * every generation: TID, and DTID where it names a task of the same program;
    * H13: LNID, EON, NextSize, NextPointer, and TBase with TBE, the channel of the next task;
    * H16 and later: the flag of the last task.

    Everything else, event words and L2 groups included, stays as it is.

    Raises UsageError for tasks of several generations and for tasks that no stream can hold.
    """
    parts = [task_list(program) for program in programs]
    tasks = task_list(task.copy() for part in parts for task in part)
    if not tasks:
        return []
    generation = tasks[0].generation
    _number(parts, tasks)
    family = family_of(generation)
    if family.packed:
        _mark_last(tasks)
    offsets = _lay_out(tasks, generation)
    if not family.packed:
        _chain(tasks, offsets)
    for i, (task, offset) in enumerate(zip(tasks, offsets)):
        task.place = TaskPlace(offset, family.frame if i == 0 else ())
    return tasks


def cut(tasks: Sequence[Task], start: int, stop: int | None = None) -> list[Task]:
    """Tasks ``start`` to ``stop`` (exclusive; None: the one task) of a program, linked as a program of their own."""
    stop = start + 1 if stop is None else stop
    if not 0 <= start < stop <= len(tasks):
        raise UsageError(f"cannot cut tasks {start} to {stop} out of {len(tasks)}")
    return link(tasks[start:stop])


def _number(parts: list[list[Task]], tasks: list[Task]) -> None:
    tid = tasks[0].handle("Header[0].TID")
    if len(tasks) - 1 > tid.limit:
        raise UsageError(f"{len(tasks)} tasks; the task index has room for {tid.limit + 1}")
    dtid = tasks[0].handle(f"Header[{family_of(tasks[0].generation).header_words}].DTID")
    at = 0
    for part in parts:
        renumbered = {task.read(tid): at + i for i, task in enumerate(part)}
        for i, old in enumerate(part):
            task = tasks[at + i]
            if task.written(dtid.name) and len(renumbered) == len(part):
                task.write(dtid, renumbered.get(old.read(dtid), old.read(dtid)))
            task.write(tid, at + i)
        at += len(part)


def _lay_out(tasks: list[Task], generation: str) -> list[int]:
    family = family_of(generation)
    offsets = []
    end = 4 * len(family.frame)
    for i, task in enumerate(tasks):
        if not family.packed and i and task.layout.size > 0x200:
            raise UsageError(f"{task.layout.size} words; NextSize has room for 512", where=f"task[{i}]")
        at = next_offset(end, task.size, generation)
        offsets.append(at)
        end = at + task.size
    return offsets


def _chain(tasks: list[Task], offsets: list[int]) -> None:
    last = len(tasks) - 1
    lnid, eon, next_size, next_pointer, tbase, tbe = map(tasks[0].handle, LINK_FIELDS)
    for i, task in enumerate(tasks):
        task.write(lnid, i > 0)
        task.write(eon, i == last)
        task.write(next_size, tasks[i + 1].layout.size - 1 if i < last else 0)
        task.write(next_pointer, offsets[i + 1] if i < last else 0)
        task.write(tbase, 0)
        task.write(tbe, i < last)


def _mark_last(tasks: list[Task]) -> None:
    table = tasks[0].table
    flags = f"Header[{family_of(table.generation).flags_word}]"
    if "LastTask" not in table.handle(flags).register.by_name:
        return
    for i, task in enumerate(tasks):
        task.set(f"{flags}.LastTask", int(i == len(tasks) - 1))
