"""Records: how a task's words name the registers that they write.

Source: docs/reference/engine-h13.md 4.1, docs/reference/generations.md 4.4.

A task is a header and a list of records; a record is one head word and the values it writes. There are two families:

* ``h13``: one form. Head = ``(count - 1) << 26 | byte address``.
* ``h14`` and later: word addresses (kept here as byte addresses) and three forms.
  *dense* writes consecutive registers; *scatter* writes its base and those of the sixteen registers behind it that a
  mask selects; *address* is dense, and its values are offsets from a slot of the loader's base-address table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from hexane.errors import FormatError, UsageError
from hexane.isa.fields import FieldPlan

DENSE, SCATTER, ADDRESS = "dense", "scatter", "address"


@dataclass(frozen=True, slots=True)
class Record:
    """One head word, taken apart: the form, the byte addresses written in order, and the slot of an address record."""

    form: str
    addresses: tuple[int, ...]
    slot: int = 0  # field value of the head: 4 per entry of the base-address table

    @property
    def base(self) -> int:
        return self.addresses[0]


class RecordHeads:
    """Head words of one family."""

    unit: int  # bytes that one step of the head's address is worth
    top: int  # first byte address that a head cannot say

    def __init__(
        self, unit: int, top: int, longest: int, read: Callable[[int], Record], write: Callable[[Record], int]
    ):
        self.unit, self.top, self.longest = unit, top, longest
        self.read = lru_cache(4096)(read)
        self.write = write


def _run(base: int, count: int) -> tuple[int, ...]:
    return tuple(range(base, base + 4 * count, 4))


def _read_h13(head: int) -> Record:
    if head & 3:
        raise FormatError(f"record head {head:#010x} has a byte address that is no multiple of 4")
    return Record(DENSE, _run(head & 0x3FFFFFC, (head >> 26) + 1))


def _write_h13(record: Record) -> int:
    if record.form != DENSE:
        raise UsageError(f"an H13 task has no {record.form} records")
    return (len(record.addresses) - 1) << 26 | record.base


def _read_packed(head: int) -> Record:
    base = (head & 0x7FFF) << 2
    if head >> 31:
        mask = head >> 15 & 0xFFFF
        return Record(SCATTER, (base, *(base + 4 + 4 * i for i in range(16) if mask >> i & 1)))
    addresses = _run(base, (head >> 15 & 0x3F) + 1)
    if head >> 29 & 1:
        if head >> 30 & 1:
            raise FormatError(f"record head {head:#010x} has the unknown bit 30 set")
        return Record(ADDRESS, addresses, head >> 21 & 0xFF)
    if head >> 21 & 0x3FF:
        raise FormatError(f"record head {head:#010x} has unknown bits among 30:21 set")
    return Record(DENSE, addresses)


def _write_packed(record: Record) -> int:
    base, count = record.base >> 2, len(record.addresses) - 1
    if record.form == SCATTER:
        mask = sum(1 << ((address - record.base) // 4 - 1) for address in record.addresses[1:])
        return 1 << 31 | mask << 15 | base
    return (1 << 29 | record.slot << 21 if record.form == ADDRESS else 0) | count << 15 | base


H13_HEADS = RecordHeads(1, 0x4000000, 64, _read_h13, _write_h13)
PACKED_HEADS = RecordHeads(4, 0x8000 * 4, 64, _read_packed, _write_packed)


class Layout:
    """Place of every word of a task; one for all tasks that have the same records.

    ``heads`` are (position in the task's words, head word). ``position`` gives, for a register's key (its byte
    address, or ``-1 - i`` for header word ``i``), the position of its last write.
    """

    def __init__(self, family: RecordHeads, header_words: int, records: Sequence[Record]):
        self.family = family
        self.header_words = header_words
        self.records = tuple(records)
        heads = []
        at = header_words
        for record in self.records:
            heads.append((at, family.write(record)))
            at += 1 + len(record.addresses)
        self.heads = tuple(heads)
        self.size = at
        self.plans: dict[tuple[str, bool], FieldPlan] = {}  # what Task.fields() reads, and `hexane.isa.roles`
        self.readers: dict[str, list[tuple[int, int, int, int]]] = {}  # of Task.read_each

    @cached_property
    def position(self) -> dict[int, int]:
        result = {-1 - i: i for i in range(self.header_words)}
        for (at, _), record in zip(self.heads, self.records):
            for i, address in enumerate(record.addresses):
                result[address] = at + 1 + i
        return result

    @cached_property
    def shape(self) -> tuple[tuple[int, int], ...]:
        """First byte address and number of registers of every record."""
        return tuple((record.base, len(record.addresses)) for record in self.records)

    @cached_property
    def writes(self) -> int:
        """Number of register writes, repeated ones counted."""
        return sum(len(record.addresses) for record in self.records)

    @cached_property
    def slots(self) -> dict[int, int]:
        """Slot field of every register that an address record writes."""
        return {a: r.slot for r in self.records if r.form == ADDRESS for a in r.addresses}

    def fits(self, words: Sequence[int], start: int = 0) -> bool:
        """True where these words have just these record heads."""
        return all(words[start + at] == head for at, head in self.heads)


@lru_cache(4096)
def canonical(
    family: RecordHeads, header_words: int, addresses: tuple[int, ...], slots: tuple[tuple[int, int], ...]
) -> Layout:
    """The layout of a task that is made new: these registers in this order, with as few words as the forms allow.

    Registers in a row share a record. In packed streams a record with gaps becomes a scatter record where that is
    shorter, and address records stand behind all others, as Apple's compiler has them.
    """
    slot_of = dict(slots)
    records = list(_plain_records(family, [address for address in addresses if address not in slot_of]))
    runs = _runs([address for address in addresses if address in slot_of], 64, slot_of.get)
    return Layout(family, header_words, records + [Record(ADDRESS, run, slot_of[run[0]]) for run in runs])


def _plain_records(family: RecordHeads, addresses: list[int]) -> Iterable[Record]:
    if family is H13_HEADS:
        yield from (Record(DENSE, run) for run in _runs(addresses, family.longest))
        return
    # Shortest from the back: from each register either the run that starts there or all that a scatter record reaches.
    # Where both need the same, Apple's compiler has a run as a dense record and a single register as the head of a
    # scatter record: 323 of 323 tasks of H14, H15 and H16.
    count = len(addresses)
    cost = [0] * (count + 1)
    stop_at = [0] * count
    form_at = [DENSE] * count
    for at in reversed(range(count)):
        run = at + 1
        while run < count and addresses[run] == addresses[run - 1] + 4 and run - at < family.longest:
            run += 1
        window = at + 1
        while window < count and addresses[window - 1] < addresses[window] <= addresses[at] + 64:
            window += 1
        dense, scatter = 1 + run - at + cost[run], 1 + window - at + cost[window]
        alone = run == at + 1
        if scatter < dense or (scatter == dense and alone and window > run):
            cost[at], stop_at[at], form_at[at] = scatter, window, SCATTER
        else:
            cost[at], stop_at[at], form_at[at] = dense, run, DENSE
    at = 0
    while at < count:
        yield Record(form_at[at], tuple(addresses[at : stop_at[at]]))
        at = stop_at[at]


def _runs(
    addresses: list[int], longest: int, same: Callable[[int], object] = lambda _: None
) -> Iterable[tuple[int, ...]]:
    run: list[int] = []
    for address in addresses:
        if run and (address != run[-1] + 4 or len(run) == longest or same(address) != same(run[-1])):
            yield tuple(run)
            run = []
        run.append(address)
    if run:
        yield tuple(run)
