"""Form of a register table: fields in registers in blocks, one table per engine generation.

A table is a data sheet that runs. The decoder, the encoder, the assembler, the printer, the documentation and the
emulator's view of a task all read the same declarations:

    Register(0x0C810, "PostScale", "what the accumulator is multiplied by, before the look-up table", (
        F("15:0", "PostScale", "factor", FP16),
        F("20:16", "PostRightShift", "right shift", evidence=INFERRED),
    ))

* Bit ranges read as in the specification: ``"20:16"`` is high to low, ``"5"`` one bit.
* A star behind a name (``"Din*"``) says that the name is not one of Apple's debug printer for this generation: it
  comes from a later generation or was chosen (docs/reference/engine-h13.md 4.12). The star is no part of the name.
* ``"CoeffBfrSize[16]"`` declares sixteen registers in a row.
* Bits that no field claims become fields ``UnkHIGH_LOW`` (one bit: ``UnkN``) by themselves, and words of a block that
  no register claims become registers ``UnkADDRESS``. So every bit has a name, and no unknown field is wider than the
  bits that nobody understands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property

from hexane.chips.evidence import Evidence
from hexane.errors import UsageError


class FieldError(UsageError, AttributeError):
    """A register or field that does not exist, or a value that does not fit; the message names it."""


SILICON, APPLE, INFERRED = Evidence
UNKNOWN = None  # the evidence of bits of which nobody knows what they mean


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a field: ``scale`` bytes, or a number format whose bits the field holds."""

    name: str
    scale: int = 1


BYTES64 = Unit("bytes", 64)  # tile DMA and kernel DMA: field 31:6
BYTES16 = Unit("bytes", 16)  # L2: field 20:4
BYTES = Unit("bytes")
WORDS = Unit("words")
PIXELS = Unit("pixels")
LOG2 = Unit("log2")
MICROSECONDS = Unit("us")
FP16 = Unit("fp16")  # IEEE binary16 bits
FP32 = Unit("fp32")  # IEEE binary32 bits
F19 = Unit("f19")  # the upper 19 bits of an IEEE binary32


@dataclass(frozen=True, slots=True)
class Values:
    """The named values of a field; a name is an identifier of the assembly language."""

    names: Mapping[int, str]

    def name(self, value: int) -> str | None:
        return self.names.get(value)

    def value(self, name: str) -> int | None:
        return next((value for value, text in self.names.items() if text == name), None)

    def __hash__(self) -> int:
        return hash(tuple(self.names.items()))


def values(**names: int) -> Values:
    """``values(sum=0, maximum=2)``: an enumeration as a table row."""
    return Values({value: name.rstrip("_") for name, value in names.items()})


@dataclass(frozen=True, slots=True)
class Field:
    """Bits ``high`` down to ``low`` of a register."""

    name: str
    high: int
    low: int
    meaning: str = ""
    kind: Unit | Values | None = None
    evidence: Evidence | None = APPLE
    from_apple: bool = True  # the name is one of Apple's debug printer for this generation

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def limit(self) -> int:
        """Largest value that fits."""
        return (1 << self.width) - 1

    @property
    def mask(self) -> int:
        """The field's bits in the register."""
        return self.limit << self.low

    @property
    def bits(self) -> str:
        return str(self.low) if self.high == self.low else f"{self.high}:{self.low}"

    @property
    def known(self) -> bool:
        return self.evidence is not UNKNOWN


def F(
    bits: str, name: str, meaning: str = "", kind: Unit | Values | None = None, evidence: Evidence | None = APPLE
) -> Field:
    """One row of a register: bits, name (a star marks a name that Apple does not print), meaning, unit or values."""
    high, _, low = bits.partition(":")
    return Field(name.rstrip("*"), int(high), int(low or high), meaning, kind, evidence, not name.endswith("*"))


@dataclass(frozen=True)
class Register:
    """A 32-bit register, or ``count`` of them in a row, at byte address ``address``."""

    address: int
    title: str
    meaning: str = ""
    rows: tuple[Field, ...] = ()
    reset: int | None = None  # value when a task does not write the register, where that is known
    evidence: Evidence | None = APPLE

    @cached_property
    def name(self) -> str:
        return self.title.rstrip("*").partition("[")[0]

    @cached_property
    def count(self) -> int:
        """Elements of the array; 0 for a register that is no array."""
        match = re.search(r"\[(\d+)\]", self.title)
        return int(match.group(1)) if match else 0

    @property
    def words(self) -> int:
        return self.count or 1

    @property
    def from_apple(self) -> bool:
        return not self.title.endswith("*")

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All 32 bits from low to high, the unknown ones as fields too."""
        rows = sorted(self.rows, key=lambda row: row.low)
        result: list[Field] = []
        bit = 0
        for row in rows:
            if row.low < bit or row.high > 31 or row.high < row.low:
                raise ValueError(f"{self.title}.{row.name}: bits {row.bits} overlap or leave the word")
            result += _unknown(row.low - 1, bit)
            result.append(row)
            bit = row.high + 1
        result += _unknown(31, bit)
        if len({row.name for row in result}) != len(result):
            raise ValueError(f"{self.title}: two fields of one name")
        return tuple(result)

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {row.name: row for row in self.fields}

    def at(self, address: int) -> Register:
        """The same register elsewhere (how one generation borrows from another)."""
        return replace(self, address=address)

    def with_rows(self, *rows: Field) -> Register:
        """The same register with further fields; a field of a name that it has takes that field's place."""
        names = {row.name for row in rows}
        return replace(self, rows=(*(row for row in self.rows if row.name not in names), *rows))

    def without_rows(self, *names: str) -> Register:
        """The same register without some of its fields."""
        return replace(self, rows=tuple(row for row in self.rows if row.name not in names))


def _unknown(high: int, low: int) -> list[Field]:
    if high < low:
        return []
    name = f"Unk{low}" if high == low else f"Unk{high}_{low}"
    return [Field(name, high, low, "", None, UNKNOWN, False)]


@dataclass(frozen=True)
class RegisterBlock:
    """A hardware unit's registers: ``words`` words from byte ``address`` on."""

    name: str
    address: int
    words: int
    meaning: str
    declared: tuple[Register, ...]

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """Every word of the block by address; words that nobody describes are registers ``UnkADDRESS``."""
        result: list[Register] = []
        address = self.address
        for register in sorted(self.declared, key=lambda register: register.address):
            if register.address < address:
                raise ValueError(f"{self.name}.{register.title} overlaps its neighbour")
            result += [unknown_register(a) for a in range(address, register.address, 4)]
            result.append(register)
            address = register.address + 4 * register.words
        end = self.address + 4 * self.words
        if address > end:
            raise ValueError(f"{self.name}: registers up to {address:#x} in a block that ends at {end:#x}")
        result += [unknown_register(a) for a in range(address, end, 4)]
        if len({register.name for register in result}) != len(result):
            raise ValueError(f"{self.name}: two registers of one name")
        return tuple(result)

    @cached_property
    def by_name(self) -> dict[str, Register]:
        return {register.name: register for register in self.registers}


def unknown_register(address: int) -> Register:
    return Register(address, f"Unk{address:x}*", evidence=UNKNOWN)


LONGEST_NAME = 80  # characters of a wrong name that a message repeats

PREFIXES = ("aneTD.", "aneRegs.")
"""What Apple's debug printer and tinygrad's aneregs put in front of a name."""

OLDER_NAMES = dict(
    line.split()
    for line in """
InputWidth Common.InDim.Win
InputHeight Common.InDim.Hin
InputDepth Common.InDepth.Din
InputType Common.ChCfg.InFmt
OutputType Common.ChCfg.OutFmt
InputChannels Common.Cin.Cin
OutputChannels Common.Cout.Cout
OutputWidth Common.OutDim.Wout
OutputHeight Common.OutDim.Hout
OutputDepth Common.OutDepth.Dout
KernelWidth Common.ConvCfg.Kw
KernelHeight Common.ConvCfg.Kh
PadLeft Common.ConvCfg.Px
PadTop Common.ConvCfg.Py
BatchSize Common.GroupConvCfg.NumGroups
InputRowStride TileDMASrc.RowStride.Stride
InputPlaneStride TileDMASrc.PlaneStride.PlaneStride
InputDepthStride TileDMASrc.DepthStride.Stride
InputBatchStride TileDMASrc.GroupStride.Stride
InputInterleave TileDMASrc.Fmt.Interleave
BiasScalar PE.BiasScale.Bias
ScaleScalar PE.BiasScale.Scale
KernelType NE.KernelCfg.KernelFmt
NeuronType NE.MACCfg.NonlinearMode
OutputRowStride TileDMADst.RowStride.RowStride
OutputPlaneStride TileDMADst.PlaneStride.PlaneStride
OutputDepthStride TileDMADst.DepthStride.DepthStride
OutputBatchStride TileDMADst.GroupStride.GroupStride
OutputInterleave TileDMADst.Fmt.Interleave
""".split("\n")
    if line
)
"""The names of tinygrad's first notes (2020), by byte offset in a task of H13: what they are here."""


def plain_name(name: str) -> str:
    """A dotted name without such a prefix; an older name's field."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return OLDER_NAMES.get(name, name)


OUTSIDE = "Outside"  # the name under which registers outside every block appear


_UNNAMED = Values({})


@dataclass(frozen=True, slots=True)
class Handle:
    """Place of a dotted name: the fast path to a field (``task.read(handle)``), or to a whole register.

    ``key`` is the register's byte address; header word ``i`` has the key ``-1 - i``.
    """

    name: str
    key: int
    shift: int
    limit: int
    field: Field | None
    register: Register

    @property
    def values(self) -> Values:
        """The names of the field's values; none for a number or a whole register."""
        return self.field.kind if self.field and isinstance(self.field.kind, Values) else _UNNAMED


@dataclass(frozen=True)
class Table:
    """All that a generation's tasks can say: header words and register blocks."""

    generation: str
    version: int  # task descriptor version of Apple's compiler (docs/reference/generations.md 1.1)
    header: tuple[Register, ...]
    blocks: tuple[RegisterBlock, ...]
    notes: str = ""
    _handles: dict[str, Handle] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def by_name(self) -> dict[str, RegisterBlock]:
        return {block.name: block for block in self.blocks}

    @cached_property
    def by_key(self) -> dict[int, tuple[str, Register]]:
        """Key of a register (see ``Handle``) to its dotted name and declaration."""
        result: dict[int, tuple[str, Register]] = {-1 - i: (f"Header[{i}]", row) for i, row in enumerate(self.header)}
        for block in self.blocks:
            for register in block.registers:
                for i in range(register.words):
                    name = f"{block.name}.{register.name}" + (f"[{i}]" if register.count else "")
                    result[register.address + 4 * i] = (name, register)
        return result

    @cached_property
    def rank(self) -> dict[int, int]:
        """Position of every register in the order in which a new task writes them: blocks as declared."""
        keys = [r.address + 4 * i for block in self.blocks for r in block.registers for i in range(r.words)]
        return {key: position for position, key in enumerate(keys)}

    def register(self, key: int) -> tuple[str, Register]:
        """Dotted name and declaration of the register at a byte address, known or not."""
        place = self.by_key.get(key)
        return place or (f"{OUTSIDE}.Unk{key:x}", unknown_register(key))

    def handle(self, name: str) -> Handle:
        """Resolve a dotted name: ``Common.InDim.Win``, ``Header[8].RBase0``, or a register without a field.

        Raises FieldError, with the nearest names, where there is no such register or field.
        """
        field = self.find(name)
        if field is None:
            raise self._unknown(plain_name(name))
        return field

    def find(self, name: str) -> Handle | None:
        """The same, or None where there is no such register or field."""
        if not isinstance(name, str):
            raise FieldError(f"a register or field has a dotted name, not {name!r}")
        field = self._handles.get(name)
        if field is None:
            field = self._resolve(plain_name(name))
            if field is not None:
                self._handles[name] = field
        return field

    def _resolve(self, name: str) -> Handle | None:
        place = self._find_register(name)
        if place is None:
            return None
        key, register, rest = place
        if not rest:
            return Handle(name, key, 0, 0xFFFFFFFF, None, register)
        row = register.by_name.get(rest)
        return None if row is None else Handle(name, key, row.low, row.limit, row, register)

    def _unknown(self, name: str) -> FieldError:
        place = self._find_register(name)
        if place is not None:
            choices = ", ".join(place[1].by_name)
            return FieldError(f"{self.generation} has no field {name}", hint=f"the register's fields are {choices}")
        excerpt = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "..."
        return FieldError(f"{self.generation} has no register or field {excerpt!r}", hint=self._suggest(name))

    def _find_register(self, name: str) -> tuple[int, Register, str] | None:
        header = re.fullmatch(r"Header\[(\d+)\](?:\.(\w+))?", name)
        if header:
            index = int(header.group(1))
            if index < len(self.header):
                return -1 - index, self.header[index], header.group(2) or ""
        outside = re.fullmatch(rf"{OUTSIDE}\.Unk([0-9a-f]{{1,7}})(?:\.(\w+))?", name)
        if outside:
            key = int(outside.group(1), 16)
            if key not in self.by_key and key % 4 == 0:
                return key, unknown_register(key), outside.group(2) or ""
        inside = re.fullmatch(r"(\w+)\.(\w+)(?:\[(\d+)\])?(?:\.(\w+))?", name)
        if inside and inside.group(1) in self.by_name:
            block = self.by_name[inside.group(1)]
            register = block.by_name.get(inside.group(2))
            if register is not None:
                index = int(inside.group(3) or 0)
                if (inside.group(3) is None) == (register.count == 0) and index < register.words:
                    return register.address + 4 * index, register, inside.group(4) or ""
        return None

    def _suggest(self, name: str) -> str:
        registers = [text for text, _ in self.by_key.values()]
        dotted = [*registers, *(f"{text}.{row.name}" for text, r in self.by_key.values() for row in r.fields)]
        near = get_close_matches(name[:LONGEST_NAME], dotted, 3, 0.5)
        return f"did you mean {' or '.join(near)}?" if near else "the blocks are Header, " + ", ".join(self.by_name)

    def unknown_fields(self) -> Iterator[str]:
        """Dotted names of all bits without a known meaning, arrays once (``L2.Unk486c.Unk31_0``)."""
        for i, register in enumerate(self.header):
            yield from (f"Header[{i}].{row.name}" for row in register.fields if not row.known)
        for block in self.blocks:
            for register in block.registers:
                dotted = f"{block.name}.{register.name}" + (f"[{register.count}]" if register.count else "")
                yield from (f"{dotted}.{row.name}" for row in register.fields if not row.known)


# -- how one generation borrows from another ---------------------------------------------------------------------------


def starred(register: Register, reset: int | None = None) -> Register:
    """The register with names that Apple's printer is not known to print for this generation."""
    rows = tuple(replace(row, from_apple=False) for row in register.rows)
    return replace(register, title=register.title.rstrip("*") + "*", rows=rows, reset=reset)


def inferred(register: Register) -> Register:
    """The register with every position and meaning taken as inferred."""
    rows = tuple(replace(row, evidence=INFERRED if row.known else UNKNOWN) for row in register.rows)
    return replace(register, rows=rows, evidence=INFERRED)


def moved(block: RegisterBlock, first: int, last: int, to: int) -> tuple[Register, ...]:
    """The declared registers at ``first`` to ``last``, moved so that ``first`` comes to lie at ``to``."""
    return tuple(r.at(r.address - first + to) for r in block.declared if first <= r.address <= last)


def without(block: RegisterBlock, *names: str) -> tuple[Register, ...]:
    """The declared registers except some."""
    return tuple(register for register in block.declared if register.name not in names)
