"""The symbol table of a program: kernel chunks, surfaces, type stabs, tensor stabs.

Source: docs/reference/engine-h13.md 2.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from hexane.image.dialect import TYPE_STABS, Dialect
from hexane.image.ident import Ident
from hexane.image.kernels import Kernel
from hexane.image.parts import Segment, Symbol
from hexane.image.placement import SectionPlaces, by_role
from hexane.image.structure import to_bytes
from hexane.image.surface import ELEMENT_CODES, Surface

DEFINED, TYPE_STAB, TENSOR_STAB = 0x0F, 0x80, 0x20
STAB_STEP = 5


def symbols_of(
    kernels: Sequence[Kernel],
    places: SectionPlaces,
    const: bytes,
    ident: Ident,
    segments: Iterable[Segment],
    dialect: Dialect,
) -> tuple[Symbol, ...]:
    """All symbols in file order, with the offsets of their names in the string table."""
    sections = [section for segment in segments for section in segment.sections]
    ordinal = {(section.segment, section.address): i + 1 for i, section in enumerate(sections)}
    rows: list[tuple[str, int, int, int, int]] = []
    in_const = ordinal["__TEXT", places.const]
    for name, offset in _kernel_names(kernels, const, ident):
        rows.append((name, DEFINED, in_const, 2, places.const + offset))
    ordered = by_role(places.surfaces)
    for surface in ordered:
        description = dialect.input_description if surface.role == "input" else 0
        rows.append((surface.name, DEFINED, ordinal["__FVMLIB", surface.address] & 0xFF, description, surface.address))
    rows += [(stab, TYPE_STAB, 0, 0, 0) for stab in TYPE_STABS[: dialect.type_count]]
    for i, surface in enumerate(ordered):
        number = dialect.type_count + 1 + STAB_STEP * i
        rows.append((tensor_stab(surface, number), TENSOR_STAB, 0, number, 0))
    symbols = []
    at = 1
    for name, kind, section, description, value in rows:
        symbols.append(Symbol(at, kind, section, description, value, name))
        at += len(to_bytes(name)) + 1
    return tuple(symbols)


def tensor_stab(surface: Surface, number: int) -> str:
    """Shape and strides of a surface as a stab: an array of arrays with byte steps."""
    n, c, h, w = surface.shape
    _, plane, row, element = surface.strides  # type: ignore[misc]
    axes = ((n, "n", surface.bytes_per_batch), (c, "c", plane), (h, "h", row), (w, "w", element))
    steps = "".join(f"ar1;0;{size};{number + 1 + i}=s{stride}{axis}:" for i, (size, axis, stride) in enumerate(axes))
    return f"{surface.name}:t{number}={steps}{ELEMENT_CODES[surface.dtype]}"


def string_table_size(symbols: Sequence[Symbol]) -> int:
    """Bytes of the string table: a NUL, then every name with its own."""
    if not symbols:
        return 1
    return symbols[-1].string_offset + len(to_bytes(symbols[-1].name)) + 1


def _kernel_names(kernels: Sequence[Kernel], const: bytes, ident: Ident) -> list[tuple[str, int]]:
    """Name and offset of every chunk in the constant section; a table has one name for all cores."""
    symbols: list[tuple[str, int]] = []
    name_of: dict[tuple[tuple[int, int], ...], str] = {}
    for kernel in kernels:
        if not kernel.is_constant or kernel.spans in name_of:
            continue
        number = len(name_of)
        name = ident.kernel_names[number] if number < len(ident.kernel_names) else _digest(kernel, const)
        name_of[kernel.spans] = name
        if kernel.kind == "table":
            symbols += [(f"K{name}", offset) for offset, _ in kernel.spans]
        else:
            symbols += [(f"K{name}_ne_{chunk.core}", chunk.offset) for chunk in kernel.chunks]
    return symbols


def _digest(kernel: Kernel, const: bytes) -> str:
    """A name of 64 hex digits from the kernel's own bytes, for programs whose compiler's names are not known."""
    digest, data = sha256(), memoryview(const)
    for offset, size in kernel.spans:
        digest.update(data[offset : offset + size])
    return digest.hexdigest().upper()
