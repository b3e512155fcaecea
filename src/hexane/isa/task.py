"""A task descriptor as an object: registers and fields by name, words as in the stream.

>>> task = Task("h13")
>>> task.NE.MACCfg.NonlinearMode = "table"
>>> task.NE.MACCfg.NonlinearMode
2
>>> task.set("Header[8].RBase0", 5)
>>> task.written("NE.MACCfg"), task.written("NE.KernelCfg")
(True, False)

A register that a task does not write differs from one that it writes 0: the first is missing from ``words()`` and from
``fields()``, and reads as its reset value where the table knows one (H14 and later), else as 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from hexane.errors import UsageError
from hexane.isa.fields import FieldPlan, FieldRow, Numbers
from hexane.isa.generations import Family, family_of
from hexane.isa.records import ADDRESS, DENSE, Layout, Record, canonical
from hexane.isa.schema import OUTSIDE, FieldError, Handle, Table
from hexane.isa.views import BlockView, HeaderView, OutsideView


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Place of a decoded task: ``encode_stream`` puts it there again."""

    offset: int  # bytes from the start of the text section
    frame: tuple[int, ...] = ()  # the words in front of the first task (H14 and later)
    tail: int = 0  # zero bytes behind the last task


class Task:
    """One task descriptor.

    Parameters
    ----------
    generation : ``"h13"`` .. ``"h19"``; a new task has a header of zeros and writes no register.

    Attributes
    ----------
    place : where a decoded task stood in its stream, None for a new one.
    """

    # A task is either laid out (``_layout`` and ``_words``: as decoded, or as last written) or open: ``_words`` is the
    # header and ``_open`` maps register keys to values, in no order. Adding or removing a register opens it.
    __slots__ = ("_family", "_layout", "_open", "_slots", "_words", "place")

    _family: Family
    _layout: Layout | None
    _words: Any  # a list of ints, or a memoryview of the stream until the first change
    _open: dict[int, int]
    _slots: dict[int, int]
    place: TaskPlace | None

    def __init__(self, generation: str) -> None:
        family = family_of(generation)
        self._family = family
        self._layout = canonical(family.heads, family.header_words, (), ())
        self._words = [0] * family.header_words
        self._open = {}
        self._slots = {}
        self.place = None
        self._fit_size()

    # -- making ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_layout(cls, family: Family, layout: Layout, words: Any, place: TaskPlace | None = None) -> Task:
        """A task over existing words (a list, or a memoryview of 32-bit words that is copied at the first change)."""
        task = cls.__new__(cls)
        task._family, task._layout, task._words, task._open, task._slots = family, layout, words, {}, {}
        task.place = place
        return task

    @classmethod
    def from_records(
        cls, generation: str, header: Sequence[int], records: Sequence[tuple[Record, Sequence[int]]]
    ) -> Task:
        """A task with just these records in this order, each with its values."""
        family = family_of(generation)
        layout = Layout(family.heads, len(header), [record for record, _ in records])
        words = [*header]
        for (_, head), (record, values) in zip(layout.heads, records):
            if len(values) != len(record.addresses):
                raise UsageError(f"a record of {len(record.addresses)} registers with {len(values)} values")
            words += [head, *values]
        task = cls.from_layout(family, layout, words)
        task._fit_size()
        return task

    @classmethod
    def from_registers(cls, generation: str, header: Sequence[int], registers: Mapping[int, int]) -> Task:
        """A task with this header that writes these registers (byte address -> value) in the records of a new task."""
        task = cls(generation)
        task._open = dict(registers)
        task._words = list(header)
        task._layout = None
        task._close()
        return task

    @classmethod
    def from_fields(cls, generation: str, fields: Mapping[str, int | str]) -> Task:
        """A task that writes the registers of these dotted names; the reverse of ``fields()`` in a new layout."""
        task = cls(generation)
        for name, value in fields.items():
            task.set(name, value)
        return task

    def copy(self) -> Task:
        """The same task, free to change. Its place in a stream is not copied."""
        words = self._words if isinstance(self._words, memoryview) else list(self._words)
        task = Task.from_layout(self._family, self._layout, words)  # type: ignore[arg-type]
        task._open, task._slots = dict(self._open), dict(self._slots)
        return task

    __copy__ = copy

    def with_words(self, words: list[int]) -> Task:
        """A task of the same records with other values; its words are this list, which it keeps."""
        return Task.from_layout(self._family, self.layout, words)

    def __deepcopy__(self, memo: object) -> Task:
        return self.copy()

    def __reduce__(self) -> tuple:
        header = list(self.words()[: self.layout.header_words])
        return (_rebuild, (self.generation, header, self.records(), self.place))

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> str:
        return self._family.table.generation

    @property
    def family(self) -> Family:
        """Layout of this generation's tasks in a stream."""
        return self._family

    @property
    def table(self) -> Table:
        """The register table of the task's generation."""
        return self._family.table

    @property
    def offset(self) -> int | None:
        """Byte offset in the text section that the task was read from."""
        return self.place.offset if self.place else None

    @property
    def layout(self) -> Layout:
        """The task's records; a task whose registers changed gets its new layout here."""
        if self._layout is None:
            self._close()
        return self._layout  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Length in bytes."""
        return 4 * self.layout.size

    def words(self) -> list[int]:
        """All 32-bit words as in the stream: header, then record heads and values."""
        if self._layout is None:
            self._close()
        return list(self._words)

    def to_bytes(self) -> bytes:
        """The words in little-endian order."""
        if self._layout is None:
            self._close()
        words = self._words
        return words.tobytes() if isinstance(words, memoryview) else struct.pack(f"<{len(words)}I", *words)

    def stands_in(self, data: bytes) -> bool:
        """True where the task was decoded from this very object and has not been changed or moved since."""
        return isinstance(self._words, memoryview) and self._words.obj is data and self.place is not None

    def records(self) -> list[tuple[Record, list[int]]]:
        """The records in order, each with the values that it writes."""
        layout = self.layout
        pairs = []
        for (at, _), record in zip(layout.heads, layout.records):
            pairs.append((record, list(self._words[at + 1 : at + 1 + len(record.addresses)])))
        return pairs

    def registers(self) -> dict[str, int]:
        """Dotted name of every register written, header first, to its 32-bit value; the last write counts."""
        table = self._family.table
        return {table.register(key)[0]: value for key, value in self._values()}

    def fields(self) -> dict[str, int]:
        """Dotted name to value for every field of every word written.

        Bits that the table does not name are listed when they are not 0, or when the word has no other field.
        """
        layout, key = self.layout, (self.generation, False)
        plan = layout.plans.get(key)
        if plan is None:
            plan = layout.plans[key] = FieldPlan(self.rows(), layout.size)
        return dict(plan(self._words))

    @property
    def number(self) -> int:
        """All words as one number, the first in its lowest bits."""
        return int.from_bytes(self.to_bytes(), "little")

    def value_of(self, row: FieldRow) -> int:
        """The field of a row of the task's layout."""
        return int(self._words[row.at]) >> row.shift & row.limit

    def read_all(self, plan: FieldPlan) -> Numbers:
        """Reader of a plan for the task's layout."""
        return plan(self._words)

    def rows(self) -> list[FieldRow]:
        """All fields in the order of the words."""
        table = self._family.table
        plan = []
        for key, at in self.layout.position.items():
            name, register = table.register(key)
            rows = register.fields
            always = {row.name for row in register.rows} or {row.name for row in rows}
            plan += [FieldRow(f"{name}.{row.name}", at, row.low, row.limit, row.name in always) for row in rows]
        return plan

    @property
    def is_canonical(self) -> bool:
        """True where the task has the records of a new task that writes the same registers."""
        layout = self.layout
        return layout.records == self._canonical_for(layout.position, layout.slots, layout.header_words).records

    def slots(self) -> dict[str, int]:
        """Registers that address records write (H14 and later) to the slot field whose address is added."""
        table = self._family.table
        slots = self._slots if self._layout is None else self._layout.slots
        return {table.register(key)[0]: slot for key, slot in slots.items()}

    # -- reading and writing by name -----------------------------------------------------------------------------------

    def handle(self, name: str) -> Handle:
        """Resolve a dotted name once, for ``read`` and ``write`` in a hot loop."""
        return self._family.table.handle(name)

    def read(self, handle: Handle) -> int:
        """The field's value; its reset value, or 0, where the task does not write the register."""
        layout = self._layout
        if layout is None:
            value = self._read_open(handle.key)
        else:
            at = layout.position.get(handle.key)
            value = None if at is None else self._words[at]
        if value is None:
            value = handle.register.reset or 0
        return value >> handle.shift & handle.limit

    def read_each(self, name: str, handles: Sequence[Handle]) -> list[int]:
        """``read`` of many handles, which have a name: their words are looked up once a layout."""
        layout = self.layout
        if name not in layout.readers:
            layout.readers[name] = [_reader(layout.position.get(handle.key), handle) for handle in handles]
        words = self._words
        return [words[at] >> shift & limit | reset for at, shift, limit, reset in layout.readers[name]]

    def write(self, handle: Handle, value: int) -> None:
        """Set a field; the register's other bits stay, or are 0 when it was not written before."""
        if value < 0 or value > handle.limit:
            raise FieldError(
                f"{value:#x} does not fit the {handle.limit.bit_length()} bits of {handle.name}",
                hint=f"the largest value is {handle.limit:#x}",
            )
        key = handle.key
        keep = ~(handle.limit << handle.shift)
        value <<= handle.shift
        if key < 0:
            self._write_header(-1 - key, keep, value)
            return
        if self._layout is not None:
            at = self._layout.position.get(key)
            if at is not None:
                words = self._own_words()
                words[at] = words[at] & keep | value
                return
            if not self._reopen():
                self._append(Record(DENSE, (key,)), value)
                return
        self._open[key] = self._open.get(key, 0) & keep | value

    @overload
    def get(self, name: str) -> int: ...
    @overload
    def get(self, name: str, default: int) -> int: ...
    @overload
    def get(self, name: str, default: None) -> int | None: ...
    def get(self, name: str, default: Any = ...) -> int | None:
        """Value of a field (``Common.InDim.Win``) or of a whole register (``Common.InDim``).

        Where the task does not write the register: ``default`` if given, else the reset value, else 0.
        """
        handle = self._family.table.handle(name)
        if default is not ... and not self._writes(handle.key):
            return default
        return self.read(handle)

    def set(self, name: str, value: int | str) -> None:
        """Set a field, or a whole register; a field with named values takes the name too.

        Raises FieldError for a name that the generation does not have and a value that does not fit.
        """
        handle = self._family.table.handle(name)
        if isinstance(value, str):
            value = _named(handle, value)
        self.write(handle, _integer(handle, value))

    def written(self, name: str) -> bool:
        """True where the task writes the register (a field's name stands for its register)."""
        return self._writes(self._family.table.handle(name).key)

    def clear(self, name: str) -> None:
        """Take a register out of the task, so that it is not written any more."""
        key = self._family.table.handle(name).key
        if key < 0:
            raise FieldError(f"{name}: a header word cannot be left out")
        if self._writes(key):
            self._remove(key)

    def slot(self, name: str) -> int | None:
        """Slot field of the address record that writes the register (4 per table entry); None for a plain write."""
        key = self._family.table.handle(name).key
        return (self._slots if self._layout is None else self._layout.slots).get(key)

    def set_address(self, name: str, slot: int, offset: int = 0) -> None:
        """Write a register through an address record (H14 and later): the loader adds the address of ``slot``."""
        handle = self._family.table.handle(name)
        if not self._family.packed:
            raise FieldError(f"{name}: {self.generation} has no address records", hint="set the channels of Header[8]")
        if handle.key < 0 or handle.shift or not 0 <= slot <= 0xFF or not 0 <= offset <= handle.limit:
            raise FieldError(f"{name}: slot {slot} and offset {offset:#x} must fit 8 and 32 bits of a register")
        if self._writes(handle.key):
            self._remove(handle.key)
        if not self._reopen():
            self._append(Record(ADDRESS, (handle.key,), slot), offset)
            return
        self._open[handle.key] = offset
        self._slots[handle.key] = slot

    # -- dotted access -------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name == "Header":
            return HeaderView(self)
        if name.startswith("_"):
            raise AttributeError(name)
        table = self._family.table
        block = table.by_name.get(name)
        if block is not None:
            return BlockView(self, block)
        if name == OUTSIDE:
            return OutsideView(self)
        raise FieldError(
            f"{table.generation} has no block {name}", hint="the blocks are Header, " + ", ".join(table.by_name)
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "Header", *self._family.table.by_name]

    def __eq__(self, other: object) -> bool:
        """Same generation and same words; the place in a stream does not count."""
        if not isinstance(other, Task):
            return NotImplemented
        return self._family is other._family and self.words() == other.words()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """One line: which task, which unit, what shape."""
        from hexane.isa.describe import headline

        return f"<Task {headline(self)}>"

    def __str__(self) -> str:
        """Every register written, a line each, fields that are 0 left out."""
        table = self._family.table
        lines = [repr(self)]
        for key, value in self._values():
            name, register = table.register(key)
            texts = [f"{r.name}={value >> r.low & r.limit:#x}" for r in register.fields if value >> r.low & r.limit]
            lines.append(f"  {name:<40} {value:08x}  {' '.join(texts)}".rstrip())
        return "\n".join(lines)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _values(self) -> Iterator[tuple[int, int]]:
        layout = self.layout
        words = self._words
        for i in range(layout.header_words):
            yield -1 - i, words[i]
        position = layout.position
        for key, at in position.items():
            if key >= 0:
                yield key, words[at]

    def _writes(self, key: int) -> bool:
        if self._layout is not None:
            return key in self._layout.position
        return key in self._open if key >= 0 else -1 - key < len(self._words)

    def _read_open(self, key: int) -> int | None:
        if key >= 0:
            return self._open.get(key)
        if key == -1 and self._family.packed:
            self._close()  # the size stands in this word
        return self._words[-1 - key] if -1 - key < len(self._words) else None

    def _own_words(self) -> list[int]:
        if isinstance(self._words, memoryview):
            self._words = list(self._words)
        return self._words

    def _write_header(self, index: int, keep: int, value: int) -> None:
        family = self._family
        words = self._own_words()
        header_words = len(words) if self._layout is None else self._layout.header_words
        if index >= header_words:
            if not value:
                return
            words[family.flags_word] |= family.extension
            self._resize_header(family.header_words + 1)
            words = self._words
        words[index] = words[index] & keep | value
        if index == 0 and self._layout is not None:
            self._fit_size()  # whatever was written: the size is that of the records
        if index == family.flags_word:
            self._resize_header(family.header_words + family.extended(words[index]))

    def _resize_header(self, count: int) -> None:
        """Put the extension word in, or take it out, as the flags say."""
        layout = self._layout
        old = len(self._words) if layout is None else layout.header_words
        if count == old:
            return
        words = self._own_words()
        words[old:old] = [0] * (count - old)
        del words[count:old]
        if layout is not None:
            self._layout = Layout(layout.family, count, layout.records)
            self._fit_size()

    def _canonical_for(self, key_order: Iterable[int], slots: Mapping[int, int], header_words: int) -> Layout:
        rank = self._family.table.rank
        beyond = len(rank)
        keys = sorted((key for key in key_order if key >= 0), key=lambda key: (rank.get(key, beyond), key))
        return canonical(self._family.heads, header_words, tuple(keys), tuple(sorted(slots.items())))

    def _reopen(self) -> bool:
        """Turn a task in the layout of a new one into an open one; False where the layout is its own."""
        layout = self._layout
        if layout is None:
            return True
        if not self.is_canonical:
            return False
        words = self._words
        self._open = {key: words[at] for key, at in layout.position.items() if key >= 0}
        self._slots = dict(layout.slots)
        self._words = list(words[: layout.header_words])
        self._layout = None
        return True

    def _close(self) -> None:
        layout = self._canonical_for(self._open, self._slots, len(self._words))
        words = self._words
        for (_, head), record in zip(layout.heads, layout.records):
            words.append(head)
            words += [self._open[address] for address in record.addresses]
        self._layout, self._open, self._slots = layout, {}, {}
        self._fit_size()

    def _append(self, record: Record, value: int) -> None:
        header = list(self._words[: self.layout.header_words])
        self._become(Task.from_records(self.generation, header, [*self.records(), (record, [value])]))

    def _remove(self, key: int) -> None:
        if self._reopen():
            del self._open[key]
            self._slots.pop(key, None)
            return
        records: list[tuple[Record, Sequence[int]]] = []
        for record, values in self.records():
            pairs = [(a, v) for a, v in zip(record.addresses, values) if a != key]
            if len(pairs) == len(values):
                records.append((record, values))
            else:
                form = ADDRESS if record.form == ADDRESS else DENSE
                records += [(Record(form, (address,), record.slot), [value]) for address, value in pairs]
        self._become(Task.from_records(self.generation, list(self._words[: self.layout.header_words]), records))

    def _become(self, other: Task) -> None:
        self._layout, self._words, self._open, self._slots = other._layout, other._words, {}, {}

    def _fit_size(self) -> None:
        """Streams without a link say a task's size in its own header (docs/reference/generations.md 4.2)."""
        if self._family.packed:
            size = self.layout.size
            if size > 0x7FF:
                raise UsageError(f"a task of {size} words; {self.generation} has room for {0x7FF}")
            words = self._own_words()
            words[0] = words[0] & ~(0x7FF << 16) | size << 16


def _reader(at: int | None, handle: Handle) -> tuple[int, int, int, int]:
    """Word, shift and limit of a field; of one that is not written a limit of 0, and its reset value behind it."""
    if at is None:
        return 0, 0, 0, (handle.register.reset or 0) >> handle.shift & handle.limit
    return at, handle.shift, handle.limit, 0


def _rebuild(generation: str, header: list[int], records: list[Any], place: TaskPlace | None) -> Task:
    task = Task.from_records(generation, header, records)
    task.place = place
    return task


def _named(handle: Handle, name: str) -> int:
    value = handle.values.value(name)
    if value is None:
        names = ", ".join(handle.values.names.values())
        raise FieldError(
            f"{handle.name} has no value named {name!r}", hint=f"the names are {names}" if names else "give a number"
        )
    return value


def _integer(handle: Handle, value: Any) -> int:
    try:
        return value.__index__()
    except AttributeError:
        raise FieldError(f"{handle.name} takes an integer, not {value!r}") from None
