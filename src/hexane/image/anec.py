"""``.anec`` packages, the container of the open Linux driver: bytes to parts and back.

Source: docs/reference/engine-h13.md 3.
"""

from __future__ import annotations

from dataclasses import replace

from hexane.errors import FormatError
from hexane.image.anec_parts import CONST_ALIGNMENTS, AnecHeader, AnecPackage, generation_of_text
from hexane.image.remainders import remainders
from hexane.isa.channels import CHANNELS, FIRST_SURFACE
from hexane.rounding import align

LARGEST_HEADER = 0x4000
"""A header padded beyond this is taken for another kind of file; 0x1000 and 0x800 are in use."""


def is_anec(data: bytes) -> bool:
    """True where the bytes can be a package: its header says how long the rest is, and leaves room for itself."""
    if len(data) < AnecHeader.fixed_size():
        return False
    header = AnecHeader.read(data, 0, "the header")
    padded = len(data) - header.content_size
    return AnecHeader.fixed_size() <= padded <= LARGEST_HEADER and 0 < header.tsk_size <= header.content_size


def read_anec(data: bytes) -> AnecPackage:
    """The parts of a package; `FormatError` gives byte offset and reason where the bytes do not hold together."""
    if len(data) < AnecHeader.fixed_size():
        raise FormatError(
            f"the file ends after {len(data)} bytes, a header has {AnecHeader.fixed_size()}", offset=len(data)
        )
    header = AnecHeader.read(data, 0, "the header")
    header_size = len(data) - header.content_size
    if header_size < AnecHeader.fixed_size():
        raise FormatError(f"content of {header.content_size:#x} bytes does not fit a file of {len(data):#x}", offset=0)
    if header_size + header.tsk_size > len(data):
        raise FormatError(f"text of {header.tsk_size:#x} bytes ends behind the file's end", offset=0x10)
    unit = CONST_ALIGNMENTS[generation_of_text(data[header_size : header_size + header.tsk_size])]
    const_at = header_size + align(header.tsk_size, unit)
    if header.krn_size and const_at + header.krn_size > len(data):
        raise FormatError(f"constants of {header.krn_size:#x} bytes end behind the file's end", offset=0x18)
    if FIRST_SURFACE + header.src_count + header.dst_count > CHANNELS:
        raise FormatError(
            f"{header.src_count} sources and {header.dst_count} destinations, channels are {CHANNELS}", offset=0x20
        )
    text = data[header_size : header_size + header.tsk_size]
    const = data[const_at : const_at + header.krn_size]
    package = AnecPackage(header, text, const, header_size, len(data))
    return replace(package, remainders=remainders(package.write(), data))
