"""Tasks to assembly text, with comments that say what the bits mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from hexane.errors import UsageError
from hexane.isa.describe import headline
from hexane.isa.explain import explain
from hexane.isa.generations import Family, family_of
from hexane.isa.numbers import f19_bits, f19_value, fp16_bits, fp16_value, fp32_bits, fp32_value
from hexane.isa.records import ADDRESS, Record
from hexane.isa.schema import F19, FP16, FP32, Field, Register, Unit, Values
from hexane.isa.stream import next_offset
from hexane.isa.task import Task

_NAME_WIDTH = 36
_COMMENT_COLUMN = 80

_FLOATS = {
    FP16: ("fp16", fp16_value, fp16_bits),
    FP32: ("fp32", fp32_value, fp32_bits),
    F19: ("f19", f19_value, f19_bits),
}


def disassemble(
    tasks: Sequence[Task],
    generation: str | None = None,
    labels: Sequence[str] | None = None,
    comments: bool = True,
    head: bool = True,
    offsets: bool = False,
) -> str:
    """Assembly text of a program; ``assemble`` gives the same tasks at the same places.

    Parameters
    ----------
    generation : needed only where there is no task.
    labels : a name per task; ``t0``, ``t1``, .. where not given.
    comments : say in comments what units, operations, registers and byte counts are.
    offsets : say in comments at which byte of its task each line's first word stands.
    head : begin with the ``.generation`` line.
    """
    name = generation or (tasks[0].generation if tasks else None)
    if name is None:
        raise UsageError("no tasks, and no generation named")
    family = family_of(name)
    names = list(labels) if labels is not None else [f"t{i}" for i in range(len(tasks))]
    if len(names) != len(tasks) or len(set(names)) != len(names) or not all(n.isidentifier() for n in names):
        raise UsageError("labels must be one identifier per task, all different")
    lines = [f".generation {name}"] if head else []
    lines += _placed(family, tasks, names, comments, offsets)
    return "\n".join(lines) + "\n"


def format_directive(name: str, /, *arguments: Any, **options: Any) -> str:
    """A directive line: integers in decimal, floats, strings in quotes where they must be, lists in brackets."""
    parts = [f".{name}", *(_argument(value) for value in arguments)]
    parts += [f"{key}={_argument(value)}" for key, value in options.items()]
    return " ".join(parts)


def _argument(value: Any) -> str:
    if isinstance(value, str):
        if value.isidentifier() and value.isascii():
            return value
        escaped = value.encode("unicode_escape").decode().replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_argument(item) for item in value) + "]"
    return str(value)


def _placed(family: Family, tasks: Sequence[Task], names: list[str], comments: bool, explained: bool) -> Iterator[str]:
    end = 4 * len(family.frame)
    first = tasks[0].place if tasks else None
    if first and first.frame != family.frame:
        yield ".frame " + " ".join(f"{word:#x}" for word in first.frame)
    offsets = []
    for task in tasks:
        rule = next_offset(end, task.size, family.generation)
        offsets.append(task.place.offset if task.place else rule)
        end = offsets[-1] + task.size
    end = 4 * len(family.frame)
    for i, task in enumerate(tasks):
        yield ""
        if offsets[i] != next_offset(end, task.size, family.generation):
            yield f".org {offsets[i]:#x}"
        end = offsets[i] + task.size
        after = (names[i + 1], offsets[i + 1], tasks[i + 1].layout.size) if i + 1 < len(tasks) else None
        note = f"{headline(task)}, byte {offsets[i]:#x}" if comments else ""
        yield _line(f"task {names[i]}:", note, 0)
        yield from _task(family, task, after, comments, explained)
    last = tasks[-1].place if tasks else None
    if last and last.tail:
        yield ""
        yield f".tail {last.tail}"


def _line(text: str, comment: str, indent: int = 4) -> str:
    line = " " * indent + text
    return f"{line:<{_COMMENT_COLUMN}}  ; {comment}" if comment else line


def _at(line: str, word: int, explained: bool) -> str:
    """A line with the byte of its task in a comment, behind what is said there."""
    if not explained:
        return line
    return f"{line}; byte {4 * word:#x}" if "  ; " in line else f"{line:<{_COMMENT_COLUMN}}  ; byte {4 * word:#x}"


def _task(
    family: Family, task: Task, after: tuple[str, int, int] | None, comments: bool, explained: bool
) -> Iterator[str]:
    table = family.table
    for i, word in enumerate(task.words()[: task.layout.header_words]):
        lines = _fields(table.header[i], [word], after if not family.packed else None)
        if family.packed and i == 0:  # the size follows from the text
            lines = _fields(table.header[i], [word & ~(0x7FF << 16)])
        if lines:
            note = explain(f"{table.generation} Header[{i}]", table.header[i], [word]) if comments else ""
            yield _at(_line(f"{f'Header[{i}]':<{_NAME_WIDTH}} {lines}", note), i, explained)
    explicit = family.packed or not task.is_canonical
    block = ""
    for (head, _), (record, values) in zip(task.layout.heads, task.records()):
        if explicit:
            slot = f" {record.slot}" if record.form == ADDRESS else ""
            note = f"offsets from slot {record.slot / 4:g} of the loader's address table" if slot else ""
            yield _line(record.form + slot, note if comments else "", 2)
        for here, line, word in _record(family, record, tuple(values), comments):
            if comments and here != block:
                block = here
                meaning = table.by_name[block].meaning if block in table.by_name else "registers outside every block"
                yield f"    ; {block}: {meaning[0].lower() + meaning[1:]}"
            yield _at(line, head + 1 + word, explained)


def _words(name: str) -> int:
    """Number of words that ``Block.Register`` or ``Block.Register[2..5]`` names."""
    first, dots, last = name.partition("[")[2].rstrip("]").partition("..")
    return int(last) - int(first) + 1 if dots else 1


@lru_cache(1 << 12)
def _record(
    family: Family, record: Record, record_values: tuple[int, ...], comments: bool
) -> list[tuple[str, str, int]]:
    """Lines of a record, each with its block's name and the number of its first word. Programs repeat themselves, so
    the lines are kept."""
    lines, word = [], 0
    for names, register, values in _groups(family, record, list(record_values)):
        block = names[0].partition(".")[0]
        for line in _register(names, register, values, comments):
            lines.append((block, line, word))
            text = names if register is not None else line.strip().removeprefix("zero ").rstrip(",").split(", ")
            word += sum(map(_words, text))
    return lines


def _register(names: list[str], register: Register | None, values: list[int], comments: bool) -> Iterator[str]:
    if register is None:
        text = "zero"
        for i, name in enumerate(names):
            piece = f" {name}" + ("," if i + 1 < len(names) else "")
            if len(text) + len(piece) > 100:
                yield _line(text.rstrip(","), "")
                text = "zero"
            text += piece
        yield _line(text, "")
        return
    comment = explain(names[0], register, values) if comments else ""
    yield _line(f"{names[0]:<{_NAME_WIDTH}} {_fields(register, values)}".rstrip(), comment)


def _groups(
    family: Family, record: Record, record_values: list[int]
) -> Iterator[tuple[list[str], Register | None, list[int]]]:
    """Writes of a record by line: array elements in a row together, registers written 0 together (then no register)."""
    rows: list[tuple[str, Register, list[int]]] = []
    last = None
    for key, value in zip(record.addresses, record_values):
        dotted, register = family.table.register(key)
        if register.count:
            base, _, index = dotted.partition("[")
            number = int(index[:-1])
            if last == (base, number - 1):
                name, register, values = rows[-1]
                first = name.partition("[")[2].partition("..")[0].rstrip("]")
                rows[-1] = (f"{base}[{first}..{number}]", register, [*values, value])
            else:
                rows.append((dotted, register, [value]))
            last = (base, number)
        else:
            rows.append((dotted, register, [value]))
            last = None
    zeros: list[str] = []
    for name, register, values in rows:
        if any(values) or record.form == ADDRESS:
            if zeros:
                yield zeros, None, []
                zeros = []
            yield [name], register, values
        else:
            if zeros and zeros[-1].partition(".")[0] != name.partition(".")[0]:
                yield zeros, None, []
                zeros = []
            zeros.append(name)
    if zeros:
        yield zeros, None, []


def _fields(register: Register, words: list[int], after: tuple[str, int, int] | None = None) -> str:
    parts = []
    for row in register.fields:
        values = [word >> row.low & row.limit for word in words]
        if not any(values):
            continue
        if after and row.name == "NextPointer" and values[0] == after[1]:
            text = f"offset({after[0]})"
        elif after and row.name == "NextSize" and values[0] == after[2] - 1:
            text = f"words({after[0]})-1"
        elif len(set(values)) == 1:
            text = _value(row, values[0])
        else:
            text = "[" + ", ".join(_value(row, value) for value in values) + "]"
        parts.append(f"{row.name}={text}")
    return " ".join(parts)


def _value(row: Field, value: int) -> str:
    kind = row.kind
    if isinstance(kind, Values):
        return kind.name(value) or str(value)
    if kind in _FLOATS:
        name, number, bits = _FLOATS[kind]
        real = number(value)
        text = f"{name}({_argument(float(real))})"
        return text if math.isfinite(real) and bits(real) == value and real != 0 else f"{value:#x}"
    hexadecimal = (isinstance(kind, Unit) and kind.name == "bytes") or (kind is None and row.width > 18)
    return f"{value:#x}" if hexadecimal and value > 9 else str(value)
