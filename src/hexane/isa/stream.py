"""Task streams: a text section to tasks and back, byte for byte.

Source: docs/reference/engine-h13.md 4.1, docs/reference/generations.md 4.

``decode_stream`` looks at sizes and record heads only. A task keeps a view of its bytes, takes fields out of it when
they are asked for, and copies it when it is changed for the first time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hexane.errors import FormatError, UsageError
from hexane.isa.generations import Family, family_of
from hexane.isa.granules import PAGE
from hexane.isa.records import Layout, RecordHeads
from hexane.isa.task import Task, TaskPlace
from hexane.rounding import align

_NOT_ZERO = re.compile(rb"[^\0]")


def decode_stream(data: bytes | bytearray | memoryview, generation: str) -> list[Task]:
    """Tasks of a text section, in the order in which the engine runs them.

    Parameters
    ----------
    data : the section from its byte 0, with the gaps between tasks (and, from H14 on, the frame in front).
    generation : ``"h13"`` .. ``"h19"``, or a name of Apple's compiler (``"h16g"``); any case.

    An H13 stream does not say where its first task ends: it ends where only zeros follow. (So a first task whose last
    record writes 0 to address 0 and nothing else would lose that record; none does.)

    Raises
    ------
    FormatError : with the byte offset, where the bytes are no such stream.
    UnsupportedError : for H11 and H12.
    """
    family = family_of(generation)
    try:
        raw = data if isinstance(data, bytes) else memoryview(data).tobytes()
    except TypeError:
        raise UsageError(f"a task stream is bytes, not {type(data).__name__}") from None
    if any(raw[len(raw) & ~3 :]):
        raise FormatError("the stream ends inside a word", offset=len(raw) & ~3)
    decode = _decode_packed if family.packed else _decode_linked
    return decode(family, raw)


def encode_stream(tasks: Iterable[Task], generation: str) -> bytes:
    """The text section that holds these tasks.

    A decoded task stands at its own offset again; a new one stands where the generation's rule puts it behind the
    task before. Links between H13 tasks are written as the tasks have them: ``link`` sets them.

    Raises
    ------
    UsageError : tasks of another generation, tasks that overlap, an H13 task whose NextPointer is not where the next
        task stands.
    """
    family = family_of(generation)
    listed = task_list(tasks, family.generation)
    if not listed:
        return b""
    offsets = place(listed, family.generation)
    if not family.packed:
        _check_links(listed, offsets)
    tail = listed[-1].place.tail if listed[-1].place else 0
    result = bytearray(max(at + task.size for at, task in zip(offsets, listed)) + tail)
    frame = listed[0].place.frame if listed[0].place else family.frame
    result[: 4 * len(frame)] = struct.pack(f"<{len(frame)}I", *frame)
    for at, task in zip(offsets, listed):
        result[at : at + task.size] = task.to_bytes()
    return bytes(result)


def task_list(tasks: Iterable[Task], generation: str | None = None) -> list[Task]:
    """The tasks as a list, all of one generation: the one given, or that of the first. Raises UsageError."""
    if isinstance(tasks, Task) or not isinstance(tasks, Iterable):
        raise UsageError(f"a list of tasks is needed, not a {type(tasks).__name__}")
    listed = list(tasks)
    for i, task in enumerate(listed):
        if not isinstance(task, Task):
            raise UsageError(f"a {type(task).__name__} among the tasks", where=f"task[{i}]")
        generation = generation or task.generation
        if task.generation != generation:
            raise UsageError(f"a task of {task.generation} among tasks of {generation}", where=f"task[{i}]")
    return listed


def place(tasks: Sequence[Task], generation: str) -> list[int]:
    """Byte offset of every task: its own where it has one, else by rule.

    H13: the next multiple of 0x100, and the next page where the task would straddle one [APPLE 242/242].
    H14 and later: the next multiple of 16, behind a frame of 16 bytes.
    """
    family = family_of(generation)
    end = 4 * len(family.frame)
    offsets = []
    for task in tasks:
        at = task.place.offset if task.place else next_offset(end, task.size, generation)
        offsets.append(at)
        end = at + task.size
    reached = 0
    for at, i in sorted((at, i) for i, at in enumerate(offsets)):
        if at < reached:
            raise UsageError(
                f"the task at byte {at:#x} overlaps the one before it, which ends at {reached:#x}",
                where=f"task[{i}]",
                hint="link() lays tasks out anew",
            )
        reached = at + tasks[i].size
    return offsets


def next_offset(end: int, size: int, generation: str) -> int:
    """Place of a new task of ``size`` bytes when the one before ends at byte ``end``."""
    family = family_of(generation)
    at = align(end, family.alignment)
    if not family.packed and at // PAGE != (at + size - 1) // PAGE:
        at = align(end, PAGE)
    return at


def task_from_words(words: Sequence[int] | memoryview, generation: str, layouts: Layouts | None = None) -> Task:
    """One task from its words alone (header first), which must be used up by its records. Raises FormatError.

    ``layouts`` holds those of the program's other tasks: what is known of a layout is then worked out once.
    """
    family = family_of(generation)
    try:
        view = words if isinstance(words, memoryview) else memoryview(struct.pack(f"<{len(words)}I", *words)).cast("I")
    except (struct.error, TypeError) as error:
        raise UsageError(f"words are integers of 32 bits ({error})") from None
    if len(view) < family.header_words:
        raise FormatError(f"a task of {len(view)} words; its header has {family.header_words}", offset=0)
    layout = _layout(family, view, 0, len(view), layouts or Layouts(), False)
    if layout.size != len(view):
        raise FormatError(f"the records end after {layout.size} of {len(view)} words", offset=4 * layout.size)
    return Task.from_layout(family, layout, view)


@lru_cache(1024)
def _shared(family: RecordHeads, header_words: int, heads: tuple[int, ...]) -> Layout:
    """A layout for all streams: what is worked out for its tasks, such as the places of fields, is worked out once."""
    return Layout(family, header_words, [family.read(head) for head in heads])


class Layouts:
    """Layouts met so far in one stream: tasks of one program share a few."""

    def __init__(self) -> None:
        self.last: Layout | None = None
        self.known: dict[tuple, Layout] = {}

    def intern(self, family: RecordHeads, header_words: int, heads: tuple[int, ...]) -> Layout:
        key = (header_words, heads)
        layout = self.known.get(key)
        if layout is None:
            layout = self.known[key] = _shared(family, *key)
        return layout


def _layout(family: Family, words: memoryview, start: int, stop: int, layouts: Layouts, open_end: bool) -> Layout:
    """Walk the record heads of the task at word ``start``.

    With ``open_end`` the task's size is not known: it ends where only zeros follow up to ``stop``.
    """
    header_words = family.header_words + family.extended(words[start + family.flags_word])
    if start + header_words > stop:
        raise FormatError("the task's header does not fit its size", offset=4 * start)
    last = layouts.last
    if (
        last is not None
        and not open_end
        and last.header_words == header_words
        and last.size == stop - start
        and last.fits(words, start)
    ):
        return last
    at = start + header_words
    heads: list[int] = []
    while at < stop:
        head = words[at]
        if open_end and head == 0 and not any(words[at:stop]):
            break
        try:
            record = family.heads.read(head)
        except FormatError as error:
            raise FormatError(error.message, offset=4 * at) from None
        end = at + 1 + len(record.addresses)
        if end > stop:
            raise FormatError(
                f"a record of {len(record.addresses)} values where {stop - at - 1} words are left", offset=4 * at
            )
        heads.append(head)
        at = end
    layout = layouts.last = layouts.intern(family.heads, header_words, tuple(heads))
    return layout


def _word_view(raw: bytes) -> memoryview:
    view = memoryview(raw)[: len(raw) & ~3]
    return view.cast("I")


def _decode_linked(family: Family, raw: bytes) -> list[Task]:
    """H13: a list linked by NextPointer and NextSize; the first task, at byte 0, ends after its last record."""
    tasks: list[Task] = []
    layouts = Layouts()
    spans: dict[int, int] = {}
    at, size = 0, 0
    words = _word_view(raw)
    total, length = len(words), len(raw)
    while True:
        if at + family.header_words > total:
            raise FormatError("the stream ends inside a task header", offset=4 * at)
        pointer = words[at + 7]
        if pointer % 4:
            raise FormatError(f"NextPointer {pointer:#x} is no multiple of 4", offset=4 * (at + 7))
        stop = at + size if size else min(total, pointer // 4) if pointer // 4 > at else total
        if stop > total:
            raise FormatError(f"a task of {size} words; the stream ends after {total - at}", offset=4 * at)
        if at + family.header_words > stop:
            raise FormatError(f"a task of {stop - at} words; its header has {family.header_words}", offset=4 * at)
        layout = _layout(family, words, at, stop, layouts, not size)
        end = at + layout.size
        tasks.append(Task.from_layout(family, layout, words[at:end], TaskPlace(4 * at)))
        spans[at] = end
        if not pointer:
            break
        if pointer // 4 >= total:
            raise FormatError(f"NextPointer {pointer:#x} leaves the stream of {length:#x} bytes", offset=4 * (at + 7))
        if pointer // 4 in spans:
            raise FormatError(f"NextPointer {pointer:#x} goes back to an earlier task: a loop", offset=4 * (at + 7))
        at, size = pointer // 4, (words[at + 1] >> 16 & 0x1FF) + 1
    _check_gaps(words, spans, 0)
    _note_tail(tasks, length - 4 * max(spans.values()))
    return tasks


def _decode_packed(family: Family, raw: bytes) -> list[Task]:
    """H14 and later: a frame of four words, then tasks on 16-byte boundaries; header word 0 has a task's size."""
    tasks: list[Task] = []
    layouts = Layouts()
    words = _word_view(raw)
    total, length = len(words), len(raw)
    frame_words = len(family.frame)
    if total < frame_words:
        raise FormatError(f"a stream of {length} bytes has no room for its frame of 16", offset=0)
    frame = tuple(words[:frame_words])
    if frame[0] > 1 or any(frame[1:]):
        raise FormatError("the frame in front of the first task is neither 0 nor 1, 0, 0, 0", offset=0)
    at = end = frame_words
    while at < total:
        size = words[at] >> 16 & 0x7FF
        if not size and not any(words[at : at + 4]):  # a frame of zeros, or many
            match = _NOT_ZERO.search(raw, 4 * at)
            at = match.start() // 16 * 4 if match else total
            continue
        if size < family.header_words:
            raise FormatError(f"a task of {size} words; its header has {family.header_words}", offset=4 * at)
        if at + size > total:
            raise FormatError(f"a task of {size} words; the stream ends after {total - at}", offset=4 * at)
        layout = _layout(family, words, at, at + size, layouts, False)
        end = at + size
        tasks.append(Task.from_layout(family, layout, words[at:end], TaskPlace(4 * at)))
        at = align(end, 4)
        if any(words[end : min(at, total)]):
            raise FormatError("bytes that are not 0 between two tasks", offset=4 * end)
    if tasks:
        first = tasks[0]
        first.place = TaskPlace(first.place.offset, frame)  # type: ignore[union-attr]
        _note_tail(tasks, length - 4 * end)
    return tasks


def _check_gaps(words: memoryview, spans: dict[int, int], end: int) -> None:
    """Tasks must not overlap, and what lies between them must be 0."""
    for at in sorted(spans):
        if at < end:
            raise FormatError(f"a task overlaps the one before it, which ends at {4 * end:#x}", offset=4 * at)
        _check_zero(words, end, at)
        end = spans[at]
    _check_zero(words, end, len(words))


def _check_zero(words: memoryview, start: int, stop: int) -> None:
    gap = words[start:stop].tobytes()
    if gap.strip(b"\0"):
        first = len(gap) - len(gap.lstrip(b"\0"))
        raise FormatError("a byte that is not 0 outside every task", offset=4 * start + first)


def _note_tail(tasks: list[Task], tail: int) -> None:
    last = tasks[-1]
    assert last.place is not None
    last.place = TaskPlace(last.place.offset, last.place.frame, tail)


def _check_links(tasks: list[Task], offsets: list[int]) -> None:
    following = [*zip(offsets[1:], tasks[1:]), None]
    for i, (task, after) in enumerate(zip(tasks, following)):
        pointer, size = task.get("Header[7].NextPointer"), task.get("Header[1].NextSize")
        expected = (after[0], after[1].layout.size - 1) if after else (0, 0)
        if pointer != expected[0] or (after and size != expected[1]):
            raise UsageError(
                f"NextPointer {pointer:#x} and NextSize {size:#x}, but "
                + (
                    f"the next task is {expected[1] + 1} words at {expected[0]:#x}"
                    if after
                    else "there is no next task"
                ),
                where=f"task[{i}]",
                hint="link() sets them",
            )
