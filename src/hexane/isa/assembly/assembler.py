"""Assembly text to tasks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from hexane.errors import HexaneError, SyntaxProblem, UsageError
from hexane.isa.assembly.syntax import (
    Directive,
    DirectiveLine,
    Expression,
    LineProblem,
    Path,
    RecordLine,
    RegisterLine,
    TaskLine,
    ZeroLine,
    parse_line,
)
from hexane.isa.generations import Family, family_of
from hexane.isa.numbers import f19_bits, fp16_bits, fp32_bits
from hexane.isa.records import ADDRESS, SCATTER, Record
from hexane.isa.schema import Handle, Unit
from hexane.isa.stream import next_offset
from hexane.isa.task import Task, TaskPlace

_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}

DirectiveHandler = Callable[[Directive], None]


@dataclass
class Assembly:
    """Contents of a text: ``encode_stream(assembly.tasks, assembly.generation)`` are its bytes."""

    generation: str
    tasks: list[Task] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # label -> index of the task


def assemble(
    text: str,
    generation: str | None = None,
    directives: Mapping[str, DirectiveHandler] | None = None,
    name: str = "line",
) -> Assembly:
    """Assemble a text.

    Parameters
    ----------
    generation : used until a ``.generation`` line says otherwise; None: the text must say it.
    directives : what to call for directives that are not this language's own, by name without the dot.
    name : the file's name, for messages.

    Raises
    ------
    SyntaxProblem : with line and column, for everything that is wrong with the text.
    """
    reader = _Reader(generation, dict(directives or {}), name)
    for number, line in enumerate(text.split("\n"), 1):
        reader.line, reader.source = number, line.rstrip("\r")
        try:
            reader.take(parse_line(reader.source))
        except LineProblem as error:
            raise reader.problem(error.message, error.column, error.hint) from None
        except RecursionError:
            raise reader.problem("an expression that is nested too deep", 1) from None
    return reader.finish()


@dataclass
class _Draft:
    """A task under construction: its register writes by record, and the fields that wait for labels."""

    label: str
    line: int
    source: str
    column: int
    header: list[int]
    records: list[tuple[RecordLine | None, int, list[tuple[int, int]]]] = field(default_factory=list)
    waiting: list[tuple[Handle, Expression, int, str]] = field(default_factory=list)
    org: int | None = None
    written: set[int] = field(default_factory=set)

    @property
    def explicit(self) -> bool:
        return any(line is not None for line, _, _ in self.records)


class _Reader:
    def __init__(self, generation: str | None, directives: dict[str, DirectiveHandler], name: str) -> None:
        self.generation = generation
        self.directives = directives
        self.name = name
        self.line, self.source = 0, ""
        self.drafts: list[_Draft] = []
        self.labels: dict[str, int] = {}
        self.evaluated: dict[str, list[tuple[int, int, int]]] = {}  # lines without labels: key, value, column
        self.org: int | None = None
        self.frame: tuple[int, ...] | None = None
        self.tail = 0
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    @property
    def family(self) -> Family:
        assert self.generation is not None
        return family_of(self.generation)

    def problem(self, message: str, column: int, hint: str | None = None) -> SyntaxProblem:
        return SyntaxProblem(
            message, line=self.line, column=column, source=self.source.expandtabs(1), name=self.name, hint=hint
        )

    # -- lines ---------------------------------------------------------------------------------------------------------

    def take(self, line: Any) -> None:
        text = self.evaluated.get(self.source)
        if text is not None and self.drafts:  # programs repeat themselves
            self.write_all(text)
            return
        match line:
            case None:
                return
            case DirectiveLine():
                self.directive(line)
            case TaskLine():
                self.task(line)
            case RecordLine():
                self.record(line)
            case ZeroLine():
                self.write_all([(h.key, 0, path.column) for path in line.paths for h in self.registers(path)])
            case RegisterLine():
                self.register(line)

    def directive(self, line: DirectiveLine) -> None:
        own = {"generation": self._generation, "org": self._org, "frame": self._frame, "tail": self._tail}
        if line.name in own:
            own[line.name]([self.plain(value) for value in line.arguments], line)
        elif line.name in self.directives:
            options = {name: self.plain(value) for name, value in line.options}
            if len(options) != len(line.options):
                raise LineProblem(f".{line.name} has an option twice", line.column)
            arguments = tuple(self.plain(value) for value in line.arguments)
            self.directives[line.name](
                Directive(line.name, arguments, options, self.line, line.column, self.source, self.name)
            )
        else:
            near = get_close_matches(line.name, [*own, *self.directives], 1)
            raise LineProblem(
                f"unknown directive .{line.name}", line.column, f"did you mean .{near[0]}?" if near else None
            )

    def _generation(self, arguments: list[Any], line: DirectiveLine) -> None:
        if self.drafts or len(arguments) != 1 or not isinstance(arguments[0], str):
            raise LineProblem(".generation takes one name and stands before all tasks", line.column)
        try:
            family_of(arguments[0])
        except HexaneError as error:
            raise LineProblem(error.message, line.arguments[0].column, error.hint) from None
        self.generation = arguments[0]

    def _org(self, arguments: list[Any], line: DirectiveLine) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], int) or not 0 <= arguments[0] < 1 << 32:
            raise LineProblem(".org takes a byte offset", line.column)
        if arguments[0] % 4:
            raise LineProblem(".org takes a multiple of 4", line.column)
        self.org = arguments[0]

    def _frame(self, arguments: list[Any], line: DirectiveLine) -> None:
        if not all(isinstance(word, int) and 0 <= word < 1 << 32 for word in arguments) or len(arguments) != 4:
            raise LineProblem(".frame takes four 32-bit words", line.column)
        self.frame = tuple(arguments)

    def _tail(self, arguments: list[Any], line: DirectiveLine) -> None:
        if len(arguments) != 1 or not isinstance(arguments[0], int) or not 0 <= arguments[0] < 1 << 32:
            raise LineProblem(".tail takes a number of bytes", line.column)
        self.tail = arguments[0]

    def task(self, line: TaskLine) -> None:
        if self.generation is None:
            raise LineProblem("a task before the generation is known", line.column, "start with .generation h13")
        if line.label in self.labels:
            raise LineProblem(f"a second task {line.label}", line.column)
        self.labels[line.label] = len(self.drafts)
        family = family_of(self.generation)
        header = [0] * len(family.table.header)
        self.drafts.append(_Draft(line.label, self.line, self.source, line.column, header, org=self.org))
        self.org = None

    def draft(self, column: int) -> _Draft:
        if not self.drafts:
            raise LineProblem("a register outside of every task", column, "start the task with: task NAME:")
        return self.drafts[-1]

    def record(self, line: RecordLine) -> None:
        draft = self.draft(line.column)
        if draft.records and not draft.explicit:
            raise LineProblem("registers stand before the first record line of the task", line.column)
        slot = 0
        if line.form != "dense" and not self.family.packed:
            raise LineProblem(f"{self.generation} has no {line.form} records", line.column)
        if line.slot is not None:
            slot = self.plain(line.slot)
            if not isinstance(slot, int) or not 0 <= slot <= 0xFF:
                raise LineProblem("a slot is a number from 0 to 255", line.slot.column)
        draft.records.append((line, slot, []))

    def registers(self, path: Path) -> list[Handle]:
        self.draft(path.column)
        table = self.family.table
        names = [path.name]
        if path.first is not None and path.last is not None:
            names = [f"{path.name}[{i}]" for i in range(path.first, path.last + 1)]
        try:
            return [table.handle(name) for name in names]
        except UsageError as error:
            raise LineProblem(error.message, path.column, error.hint) from None

    def register(self, line: RegisterLine) -> None:
        handles = self.registers(line.path)
        totals = [0] * len(handles)
        names: set[str] = set()
        waits = False
        table = self.family.table
        for name, value, column in line.fields:
            if name in names:
                raise LineProblem(f"{name} twice in one line", column)
            names.add(name)
            values = value.parts if value.kind == "list" else (value,) * len(handles)
            if len(values) != len(handles):
                raise LineProblem(f"a list of {len(values)} values for {len(handles)} registers", column)
            for i, (handle, one) in enumerate(zip(handles, values)):
                try:
                    target = table.handle(f"{handle.name}.{name}") if name else handle
                except UsageError as error:
                    raise LineProblem(error.message, column, error.hint) from None
                if _has_label(one):
                    waits = True
                    self.drafts[-1].waiting.append((target, one, self.line, self.source))
                else:
                    totals[i] |= self.number(target, one) << target.shift
        self.write_all([(h.key, total, line.path.column) for h, total in zip(handles, totals)], keep=not waits)

    def write_all(self, writes: list[tuple[int, int, int]], keep: bool = True) -> None:
        if keep:
            self.evaluated[self.source] = writes
        for key, value, column in writes:
            self.write(key, value, column)

    def write(self, key: int, value: int, column: int) -> None:
        draft = self.drafts[-1]
        if key < 0:
            draft.header[-1 - key] = value
            return
        if not draft.records:
            draft.records.append((None, 0, []))
        line, _, writes = draft.records[-1]
        if line is None:
            if key in draft.written:
                raise LineProblem("the register is written twice", column, "record lines allow that")
            draft.written.add(key)
        elif writes:
            step = key - writes[-1][0]
            if line.form == SCATTER:
                if step <= 0 or key - writes[0][0] > 64 or step % 4:
                    raise LineProblem("a scatter record reaches 16 registers behind its first, in order", column)
            elif step != 4:
                raise LineProblem("the register does not follow the one before it in the record", column)
            elif len(writes) == 64:
                raise LineProblem("a record has room for 64 registers", column)
        writes.append((key, value))

    # -- values --------------------------------------------------------------------------------------------------------

    def plain(self, value: Expression) -> Any:
        """An argument of a directive."""
        if value.kind in ("name", "text"):
            return value.parts[0]
        if value.kind == "list":
            return [self.plain(item) for item in value.parts]
        return self.evaluate(value, None)

    def number(self, handle: Handle, value: Expression) -> int:
        result = self.evaluate(value, handle)
        if not isinstance(result, int):
            raise LineProblem(f"{handle.name} takes an integer", value.column, "fp16(x), fp32(x) and f19(x) give bits")
        if not 0 <= result <= handle.limit:
            raise LineProblem(
                f"{result:#x} does not fit the {handle.limit.bit_length()} bits of {handle.name}", value.column
            )
        return result

    def evaluate(self, value: Expression, handle: Handle | None) -> Any:
        kind, parts = value.kind, value.parts
        if kind in ("number", "real"):
            return parts[0]
        if kind == "name":
            return self.constant(value, handle)
        if kind == "call":
            return self.call(value, handle)
        if kind in ("text", "list"):
            raise LineProblem("a number is wanted here", value.column)
        left, right = (self.evaluate(part, handle) for part in parts)
        if kind in ("<<", "|"):
            if not (isinstance(left, int) and isinstance(right, int)) or (kind == "<<" and not 0 <= right < 64):
                raise LineProblem(f"{kind} takes integers", value.column)
            result = left << right if kind == "<<" else left | right
        else:
            result = _ARITHMETIC[kind](left, right)
        if isinstance(result, int) and abs(result) >= 1 << 128:
            raise LineProblem("the value is too large", value.column)
        return result

    def constant(self, value: Expression, handle: Handle | None) -> int:
        name = value.parts[0]
        names = handle.values.names if handle else {}
        code = next((code for code, text in names.items() if text == name), None)
        if code is not None:
            return code
        choices = ", ".join(names.values())
        where = f" of {handle.name}" if handle else ""
        raise LineProblem(f"{name} is no value{where}", value.column, f"known are {choices}" if choices else None)

    def call(self, value: Expression, handle: Handle | None) -> int:
        name, *arguments = value.parts
        if len(arguments) != 1:
            raise LineProblem(f"{name} takes one argument", value.column)
        argument = arguments[0]
        if name in ("offset", "words"):
            label = argument.parts[0] if argument.kind == "name" else None
            if label not in self.labels:
                raise LineProblem(f"no task {label or 'of that name'}", argument.column)
            index = self.labels[label]
            if not self.offsets:
                raise LineProblem(f"{name}() stands only in fields of tasks", value.column)
            return self.offsets[index] if name == "offset" else self.sizes[index]
        formats = {"fp16": fp16_bits, "fp32": fp32_bits, "f19": f19_bits}
        number = self.evaluate(argument, handle)
        if name in formats:
            return formats[name](float(number))
        if name == "bytes":
            unit = handle.field.kind if handle and handle.field else None
            scale = unit.scale if isinstance(unit, Unit) else 0
            if not scale or not isinstance(number, int) or number % scale:
                raise LineProblem(
                    f"{number} bytes are no whole steps" if scale else "the field does not count bytes",
                    value.column,
                    f"it counts steps of {scale} bytes" if scale else None,
                )
            return number // scale
        raise LineProblem(f"unknown function {name}", value.column, "known are fp16, fp32, f19, bytes, offset, words")

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> Assembly:
        if self.generation is None:
            self.line, self.source = 1, ""
            raise self.problem("the text does not say its generation", 1, "start with .generation h13")
        family = family_of(self.generation)
        tasks = [self.build(draft) for draft in self.drafts]
        end = 4 * len(family.frame)
        for draft, task in zip(self.drafts, tasks):
            at = next_offset(end, task.size, self.generation) if draft.org is None else draft.org
            self.offsets.append(at)
            self.sizes.append(task.layout.size)
            end = at + task.size
        for draft, task in zip(self.drafts, tasks):
            for handle, value, self.line, self.source in draft.waiting:
                try:
                    task.write(handle, self.number(handle, value))
                except LineProblem as error:
                    raise self.problem(error.message, error.column, error.hint) from None
        for i, task in enumerate(tasks):
            frame = (family.frame if self.frame is None else self.frame) if i == 0 else ()
            task.place = TaskPlace(self.offsets[i], frame, self.tail if i == len(tasks) - 1 else 0)
        return Assembly(self.generation, tasks, dict(self.labels))

    def build(self, draft: _Draft) -> Task:
        family = self.family
        extended = family.extended(draft.header[family.flags_word])
        header = draft.header[: family.header_words + extended]
        self.line, self.source = draft.line, draft.source
        if any(draft.header[len(header) :]):
            raise self.problem(f"Header[{len(header)}] is there only when the task's flags say so", draft.column)
        size = header[0] >> 16 & 0x7FF if family.packed else 0
        try:
            if draft.explicit:
                task = Task.from_records(family.generation, header, [_record(*entry) for entry in draft.records])
            else:
                task = Task.from_registers(
                    family.generation, header, dict(draft.records[0][2]) if draft.records else {}
                )
        except UsageError as error:
            raise self.problem(error.message, draft.column, error.hint) from None
        if size and size != task.layout.size:
            raise self.problem(f"Size={size}, but the task has {task.layout.size} words", draft.column, "leave it out")
        return task


def _record(line: RecordLine | None, slot: int, writes: list[tuple[int, int]]) -> tuple[Record, list[int]]:
    assert line is not None
    if not writes:
        raise UsageError(f"a {line.form} record without registers")
    form = line.form
    return Record(form, tuple(key for key, _ in writes), slot if form == ADDRESS else 0), [v for _, v in writes]


def _has_label(value: Expression) -> bool:
    if value.kind == "call":
        return value.parts[0] in ("offset", "words")
    return any(isinstance(part, Expression) and _has_label(part) for part in value.parts)
