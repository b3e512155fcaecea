"""The binary interface of the open Linux drivers: requests, structures, limits (docs/reference/devices.md 2, 4).

Two interfaces have one device name: ABI 1 (H13: M1 family) takes a task stream with every call, ABI 2 (H14: M2 family)
loads programs into the engine's firmware. Structures are little endian with natural alignment and no hidden padding.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_uint32, c_uint64

from hexane.isa.channels import CHANNELS
from hexane.isa.granules import PAGE

QUEUE_GRANULE = 16
"""The constants start behind the text, rounded up to this."""
SPARE_BYTES = PAGE
"""What every buffer of ABI 2 has behind its contents: the engine touches memory just past a surface there."""

ABI_1_MAJORS = (0, 1)
ABI_2_MAJOR = 2
GENERATIONS = {1: "h13", 2: "h14"}
"""The generation whose programs each ABI takes."""

MOST_TASKS, MOST_TASK_BYTES = 0xFFFF, 0x40000
MOST_SECTIONS, MOST_BINDS, MOST_PROGRAMS = 9, 64, 250
LARGEST_BUFFER_2, MOST_BUFFER_BYTES_2 = 1 << 30, 12288 << 20
PRIORITIES = range(2, 8)
PRIORITY = 2
"""The one that has run programs."""
DIGEST_BYTES = 32
TIMEOUT_MS_1, TIMEOUT_MS_2, DEFAULT_TIMEOUT_MS_2 = 1000, 30_000, 5000
"""How long a call may take: ABI 1 (the driver's), ABI 2 (what clients ask for, and what the driver takes for 0)."""
INPUT, OUTPUT = 0, 1
FAMILY_H13, FAMILY_H14 = 13, 14


class Version(ctypes.Structure):
    """Request for the name of the driver; lengths in and out, texts without a final zero."""

    _fields_ = [
        ("major", c_int32),
        ("minor", c_int32),
        ("patch", c_int32),
        ("name_len", c_uint64),
        ("name", c_uint64),
        ("date_len", c_uint64),
        ("date", c_uint64),
        ("desc_len", c_uint64),
        ("desc", c_uint64),
    ]


class GemClose(ctypes.Structure):
    """The DRM core's own way to give a handle back."""

    _fields_ = [("handle", c_uint32), ("pad", c_uint32)]


class GetCaps(ctypes.Structure):
    """Facts that the driver of the kernel tree says of itself; the others have no such request."""

    _fields_ = [
        ("flags", c_uint32),
        ("size", c_uint32),
        ("abi_version", c_uint32),
        ("chip_family", c_uint32),
        ("section_size", c_uint32),
        ("bind_size", c_uint32),
        ("exec_io_size", c_uint32),
        ("pad", c_uint32),
    ]


class BoInit(ctypes.Structure):
    """A new buffer: ``size`` in; ``handle`` and the ``offset`` to map it at out."""

    _fields_ = [("handle", c_uint32), ("pad", c_uint32), ("size", c_uint64), ("offset", c_uint64)]


class BoFree(ctypes.Structure):
    """Give a buffer back."""

    _fields_ = [("handle", c_uint32), ("pad", c_uint32)]


class Submit(ctypes.Structure):
    """ABI 1: run a chain of tasks to its end. ``handles`` by channel, 0 for none; ``btsp_handle`` has task 0."""

    _fields_ = [
        ("tsk_size", c_uint64),
        ("td_count", c_uint32),
        ("td_size", c_uint32),
        ("handles", c_uint32 * CHANNELS),
        ("btsp_handle", c_uint32),
        ("pad", c_uint32),
    ]


class SectionRecord(ctypes.Structure):
    """ABI 2: one part of a program, in a buffer."""

    _fields_ = [("id", c_uint32), ("bo_handle", c_uint32), ("size", c_uint64), ("offset", c_uint64)]


class GenericBind(ctypes.Structure):
    """ABI 2: a buffer named at load time; accepted, its pad checked, else ignored."""

    _fields_ = [
        ("buffer_id", c_uint32),
        ("bo_handle", c_uint32),
        ("type", c_uint32),
        ("pad", c_uint32),
        ("size", c_uint64),
    ]


class ProgLoad(ctypes.Structure):
    """ABI 2: give a program to the firmware; equal sections give the program that is there."""

    _fields_ = [
        ("sections_ptr", c_uint64),
        ("generic_ptr", c_uint64),
        ("section_count", c_uint32),
        ("generic_count", c_uint32),
        ("prog_id_out", c_uint32),
        ("pad", c_uint32),
    ]


class ProcCreate(ctypes.Structure):
    """ABI 2: the process of a program; there is one."""

    _fields_ = [("prog_id", c_uint32), ("proc_id_out", c_uint32)]


class ExecIo(ctypes.Structure):
    """ABI 2: the buffer of one input or output of a call."""

    _fields_ = [
        ("buffer_id", c_uint32),
        ("bo_handle", c_uint32),
        ("type", c_uint32),
        ("flags", c_uint32),
        ("reserved", c_uint64),
        ("size", c_uint64),
    ]


class Exec(ctypes.Structure):
    """ABI 2: run a program to its end."""

    _fields_ = [
        ("prog_id", c_uint32),
        ("proc_id", c_uint32),
        ("priority", c_uint32),
        ("timeout_ms", c_uint32),
        ("count", c_uint32),
        ("pad", c_uint32),
        ("io_ptr", c_uint64),
    ]


class ProgLookup(ctypes.Structure):
    """ABI 2, hardened driver: is a program with this digest there?"""

    _fields_ = [
        ("digest_ptr", c_uint64),
        ("digest_len", c_uint32),
        ("pad", c_uint32),
        ("found_out", c_uint32),
        ("prog_id_out", c_uint32),
    ]


COMMAND_BASE, COMMAND_END = 0x40, 0xA0
"""Request numbers that belong to a driver; lower ones are the DRM core's."""


STRUCTURES: dict[int, type[ctypes.Structure]] = {}
NAMES: dict[int, str] = {}


def _request(name: str, number: int, structure: type[ctypes.Structure], direction: int = 3) -> int:
    """A request's word, which is noted under its name and with its structure."""
    request = direction << 30 | ctypes.sizeof(structure) << 16 | ord("d") << 8 | number
    STRUCTURES[request], NAMES[request] = structure, name
    return request


VERSION = _request("VERSION", 0x00, Version)
GEM_CLOSE = _request("GEM_CLOSE", 0x09, GemClose, direction=1)
GET_CAPS = _request("GET_CAPS", 0x40, GetCaps)
BO_INIT = _request("BO_INIT", 0x41, BoInit)
BO_FREE = _request("BO_FREE", 0x42, BoFree)
SUBMIT = _request("SUBMIT", 0x43, Submit)
PROG_LOAD = _request("PROG_LOAD", 0x44, ProgLoad)
PROC_CREATE = _request("PROC_CREATE", 0x45, ProcCreate)
EXEC = _request("EXEC", 0x46, Exec)
PROG_LOOKUP = _request("PROG_LOOKUP", 0x47, ProgLookup)


def request_number(request: int) -> int:
    """The number of a request: its low byte."""
    return request & 0xFF


def request_size(request: int) -> int:
    """Bytes of the structure that a request names."""
    return request >> 16 & 0x3FFF
