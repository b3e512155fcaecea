"""From fields to tasks: what a task's own fields and its place in the program add, and what need not be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hexane.isa.compose.rules import (
    EVENTS,
    KERNEL,
    ONE_CELL,
    RESULT,
    RESULT_SWITCH,
    SECOND,
    SECOND_SWITCH,
    SOURCE,
    SOURCE_SWITCH,
    SWITCHES,
    TABLE,
    Rules,
    generation_of,
    rules_of,
)
from hexane.isa.compose.shape import TaskShape, live_pages
from hexane.isa.kinds import NE_NONLINEAR, NE_OP
from hexane.isa.records import ADDRESS, DENSE, PACKED_HEADS, Record, canonical
from hexane.isa.roles import Roles, roles_of
from hexane.isa.schema import FieldError
from hexane.isa.task import Task
from hexane.rounding import ceil_div

LANES = 16
COMPUTES = 0xFFF800  # DebugLogEvents of a task that is no pure copy
FILLER_REGISTER = "TileDMADst.Filler"
FILLER = 0xDEAD
QUAD = 4  # words: tasks stand on multiples of 16 bytes
LINE_QUADS = 4  # and must not end on a multiple of 64 where the generation has filler
TSR, TDE = 1, 2

_HINTS = {0x4: 0x4E, 0xE: 0xEE}
OTHER_HINTS = 0xCE
"""Further cache hints of a source by its hint (bits 7:4 of its switch): read from scratch, read again, all others."""

_AFTER_HINT = {SOURCE_SWITCH: "TileDMASrc.CacheHints", SECOND_SWITCH: "TileDMASrc.Src2CacheHints"}
_BASE = {SOURCE_SWITCH: SOURCE, SECOND_SWITCH: SECOND, RESULT_SWITCH: RESULT}


@dataclass(frozen=True)
class TaskFields:
    """One task in the words of a generation's register table, before it has a place in a program.

    Attributes
    ----------
    values : role (``isa.roles``) or dotted field to its bits. A field that is not named has its reset value; strides
        that the task does not use may be named, they are left out. ``Header[4].DebugLogEvents`` may give the bits that
        say what the task does.
    addresses : dotted register that the loader completes (``TileDMASrc.BaseAddr``) to its entry in the loader's table
        and the offset in bytes.
    runtime_kernel : the kernel is a tensor of the program, not a constant.
    """

    values: Mapping[str, int]
    addresses: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    runtime_kernel: bool = False


def compose(target: str, tasks: Iterable[TaskFields]) -> list[Task]:
    """The tasks of a whole program, as the compiler of ``target`` (``"h14"`` .. ``"h18"``, ``"h16g"``) writes them.

    ``encode_stream`` makes the text section of them.

    Raises
    ------
    FieldError : a field that the generation does not have, or a value that does not fit.
    UnsupportedError : a generation whose streams hexane does not write.
    """
    rules = rules_of(target)
    generation = generation_of(target)
    roles = roles_of(generation)
    drafts = [_Draft(roles, rules, fields) for fields in tasks]
    pages = live_pages([draft.shape for draft in drafts])
    tasks_made: list[Task] = []
    quads = 1  # the frame
    for i, draft in enumerate(drafts):
        task = draft.task(i, len(drafts), pages[i], quads)
        quads += ceil_div(len(task.words()), QUAD)
        tasks_made.append(task)
    return tasks_made


class _Draft:
    """One task on its way: the registers that were named, by name, each its reset value with the named fields in it."""

    def __init__(self, roles: Roles, rules: Rules, fields: TaskFields):
        self.roles, self.table, self.rules, self.given = roles, roles.family.table, rules, fields
        self.registers: dict[str, int] = {}
        self.header: dict[int, int] = {}
        for name, value in fields.values.items():
            self.put(name, value)
        self.shape = TaskShape(self.get, fields.addresses)

    def put(self, name: str, value: int) -> None:
        handle = self.roles.handle(name)
        if not 0 <= value <= handle.limit:
            raise FieldError(f"{value:#x} does not fit the {handle.limit.bit_length()} bits of {name}")
        keep, bits = ~(handle.limit << handle.shift), value << handle.shift
        if handle.key < 0:
            self.header[-1 - handle.key] = self.header.get(-1 - handle.key, 0) & keep | bits
            return
        register = self.table.register(handle.key)[0]
        before = self.registers.get(register)
        if before is None:
            before = handle.register.reset or 0
        self.registers[register] = before & keep | bits

    def get(self, name: str) -> int:
        """A field of a register, or of its reset value where nobody named the register."""
        handle = self.roles.handle(name)
        value = self.registers.get(self.table.register(handle.key)[0])
        word = (handle.register.reset or 0) if value is None else value
        return word >> handle.shift & handle.limit

    # -- what the task's own fields and its position add --------------------------------------------------------------

    def task(self, index: int, count: int, pages: int, quads: int) -> Task:
        self._switches(index)
        self._kernel(index, last=index == count - 1)
        if index == count - 1:
            self.registers.update(self.rules.cache)
            if self.rules.cache and index:
                self.registers["CacheDMA.Prefetch2"] = index << 16 | 0xE0
        header = self._header(index, count, pages)
        return self._laid_out(header, quads)

    def _switches(self, tag: int) -> None:
        """Switches of the tile DMAs: tag and data set; further cache hints follow the hint."""
        rules = self.rules
        on = [name for name in SWITCHES if _BASE[name] in self.given.addresses]
        waits = self.get(f"{SOURCE_SWITCH}.DependencyMode")
        for name in SWITCHES:
            if name not in on:
                self.registers.pop(name, None)
                continue
            self.put(f"{name}.Tag", tag)
            self.put(f"{name}.DataSetId", rules.data_set)
            self.put(f"{name}.En", name != SECOND_SWITCH or rules.second_enable)
            if name in _AFTER_HINT:
                self.registers[_AFTER_HINT[name]] = _HINTS.get(self.registers[name] >> 4 & 0xF, OTHER_HINTS)
        if not rules.second_enable and SECOND_SWITCH in on and SOURCE_SWITCH not in on:
            self.registers[SOURCE_SWITCH] = ONE_CELL | 1  # the reader is on, and has no source 1 to tag
        if waits and SOURCE_SWITCH not in on and SECOND_SWITCH in on:
            self.put(f"{SECOND_SWITCH if rules.second_enable else SOURCE_SWITCH}.DependencyMode", waits)

    def _kernel(self, index: int, last: bool) -> None:
        """Kernel DMA: its main switch, and tags on every lane and side channel once it is on."""
        rules = self.rules
        lanes = [f"KernelDMASrc.CoeffDMAConfig[{i}]" for i in range(LANES)]
        table = TABLE in self.given.addresses
        kernel = KERNEL in self.given.addresses
        master = "KernelDMASrc.MasterConfig"
        if not kernel and not table:
            self.registers.pop(master, None)
            if last:
                self.put(f"{master}.LastTask", 1)
            return
        self.put(f"{master}.MasterEnable", 1)
        self.put(f"{master}.KernelStream", 1)
        self.put(f"{master}.LastTask", last)
        self.put(f"{master}.Tag", index + 1)
        for name in lanes:
            fetches = kernel and bool(self.registers.get(name, 0) & 1)
            if not fetches:
                self.registers[name] = ONE_CELL
            self.put(f"{name}.En", fetches)
            self.put(f"{name}.Tag", index)
            self.put(f"{name}.DataSetId", rules.data_set if fetches and self.given.runtime_kernel else 0)
        if table:
            for name in rules.table_lanes:
                self.registers[name] = ONE_CELL | index << 16 | (name == rules.table_lanes[-1])

    def _header(self, index: int, count: int, pages: int) -> list[int]:
        rules, get = self.rules, self.get
        words = dict(self.header)
        words[0] = index
        words[2] = rules.log_events.at(index, count)
        words[4] = words.get(4, 0 if self._pure_copy() else COMPUTES) | rules.debug_position.at(index, count)
        words[-1 - self.table.handle(rules.page_mask).key] = pages
        flags = -1 - self.table.handle(rules.flags).key
        runtime = flags + 1 in self.header
        enabled = 0 if self.shape.planar else 1 + sum(get(name) for name in rules.core_fields)
        words[flags] = TSR | TDE * runtime | rules.last_flag * (index == count - 1) | enabled << 16
        return [words.get(i, 0) for i in range(flags + 1 + runtime)]

    def _pure_copy(self) -> bool:
        """A bypass of the neural cores without a table or a clamp: nothing is computed."""
        return (
            not self.shape.planar
            and self.get("NE.MACCfg.OpMode") == NE_OP.value("bypass")
            and self.get("NE.MACCfg.NonlinearMode") == NE_NONLINEAR.value("none")
        )

    # -- what is written ----------------------------------------------------------------------------------------------

    def _written(self) -> dict[int, int]:
        """Byte address to value of every register that a record writes, in the order of the table."""
        rules, table = self.rules, self.table
        always = set(rules.always)
        if not self.shape.planar:
            always.add("NE.PostScale")
        always |= set(rules.cache) & set(self.registers)
        unused = {name for name, is_used in self.shape.used_strides().items() if not is_used}
        packed = {name for packet in rules.packets for name in packet}
        if rules.switch_slot is not None:
            packed.update(SWITCHES)
            if self.given.runtime_kernel:
                packed.update(f"KernelDMASrc.CoeffDMAConfig[{i}]" for i in range(LANES))
        registers: dict[int, int] = {}
        for name in {*self.registers, *always} - unused - packed:
            handle = table.handle(name)
            value = self.get(name)
            if name in always or value != (handle.register.reset or 0):
                registers[handle.key] = value
        return {key: registers[key] for key in sorted(registers, key=table.rank.__getitem__)}

    def _laid_out(self, header: list[int], quads: int) -> Task:
        table = self.table
        registers = self._written()
        plain = canonical(PACKED_HEADS, len(header), tuple(registers), ()).records
        records: list[tuple[Record, Sequence[int]]] = [
            (record, [registers[address] for address in record.addresses]) for record in plain
        ]
        packets = self._packets()
        if self.rules.filler:
            words = len(header) + sum(1 + len(values) for _, values in (*records, *packets))
            record = Record(DENSE, (table.handle(FILLER_REGISTER).key,))
            while (quads + ceil_div(words, QUAD)) % LINE_QUADS == 0:
                records.append((record, [FILLER]))
                words += 2
        return Task.from_records(table.generation, header, [*records, *packets])

    def _packets(self) -> list[tuple[Record, Sequence[int]]]:
        """Address records: the loader adds the address of a slot to their words."""
        packets: list[tuple[Record, Sequence[int]]] = []
        addresses = dict(self.given.addresses)
        if TABLE in addresses:
            addresses["KernelDMASrc.SideBaseAddr[3]"] = addresses[TABLE]  # H14 names the table's place twice
        for packet in self.rules.packets:
            if packet[0] in addresses:
                slot, offset = addresses[packet[0]]
                keys = tuple(self.table.handle(name).key for name in packet)
                packets.append((Record(ADDRESS, keys, 4 * slot), [offset, 0][: len(keys)]))
        if self.rules.switch_slot is not None:
            names = [name for name in SWITCHES if name in self.registers]
            if self.given.runtime_kernel:
                names += [f"KernelDMASrc.CoeffDMAConfig[{i}]" for i in range(LANES)]
            for name in names:
                record = Record(ADDRESS, (self.table.handle(name).key,), 4 * self.rules.switch_slot)
                packets.append((record, [self.registers[name]]))
        if self.rules.event_slot is not None:
            events = [self.table.handle(EVENTS[name]).key for name in SWITCHES if name in self.registers]
            packets += [(Record(ADDRESS, (key,), 4 * self.rules.event_slot), [0]) for key in events]
        return packets
