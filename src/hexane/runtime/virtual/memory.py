"""Memory of a virtual engine: pages that both sides see, addresses in the engine's space, and the caller's memory."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from bisect import insort
from dataclasses import dataclass, field
from typing import Any

from hexane.isa.granules import PAGE
from hexane.rounding import align

IOVA_START, IOVA_END = PAGE, 0xE000_0000


def pages(size: int) -> int:
    """Bytes in whole pages, of 16 KiB whatever the host's are."""
    return align(size, PAGE)


@dataclass
class AddressSpace:
    """Addresses, handed out by first fit in whole pages."""

    start: int = IOVA_START
    end: int = IOVA_END
    used: list[tuple[int, int]] = field(default_factory=list)

    def place(self, size: int) -> int:
        """The first gap that is large enough; ENOSPC where there is none."""
        at = self.start
        for begin, end in self.used:
            if begin - at >= size:
                break
            at = end
        if size <= 0 or at + size > self.end:
            raise OSError(errno.ENOSPC, "no room in the engine's address space")
        insort(self.used, (at, at + size))
        return at

    def release(self, at: int) -> None:
        """Give an address back."""
        self.used = [(begin, end) for begin, end in self.used if begin != at]


@dataclass(eq=False)
class VirtualBuffer:
    """A buffer object. ``fd`` is a file of its own where other processes map it, else -1."""

    size: int
    iova: int
    data: mmap.mmap
    fd: int = -1
    owner: int = -1
    handles: int = 0
    mappings: int = 0
    seen: bool = False
    """By the firmware: its memory never goes back to the system."""
    kept: bool = False
    """As part of a program."""

    @classmethod
    def new(cls, size: int, iova: int, *, shared: bool) -> VirtualBuffer:
        """Zeroed pages; ``shared`` ones lie in a file that another process can map and nobody can shorten."""
        if not shared:
            return cls(size, iova, mmap.mmap(-1, size))
        fd = os.memfd_create("buffer", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return cls(size, iova, mmap.mmap(fd, size), fd)

    def drop(self) -> None:
        """Give the pages back; memory that is still looked at stays until nobody does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class UserMemory:
    """Memory of the process that calls, as ``copy_from_user`` and ``copy_to_user`` see it: EFAULT for a bad address."""

    def __init__(self, process: int | None = None) -> None:
        self.process = process or os.getpid()

    def read(self, address: int, size: int) -> bytes:
        """Bytes at an address of the caller."""
        data = ctypes.create_string_buffer(max(1, size))
        self._copy("process_vm_readv", data, address, size)
        return data.raw[:size]

    def write(self, address: int, data: bytes) -> None:
        """Put bytes at an address of the caller."""
        self._copy("process_vm_writev", ctypes.create_string_buffer(data, max(1, len(data))), address, len(data))

    def _copy(self, name: str, data: Any, address: int, size: int) -> None:
        if size == 0:
            return
        if not address or address + size > 1 << 47:
            raise OSError(errno.EFAULT, "bad address")
        libc = _libc()
        if libc is None:  # no such call here: the caller is this process, and its pointers are believed
            near, far = ctypes.addressof(data), address
            source, target = (far, near) if name == "process_vm_readv" else (near, far)
            ctypes.memmove(target, source, size)
            return
        local, remote = _Range(ctypes.addressof(data), size), _Range(address, size)
        copied = getattr(libc, name)(self.process, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if copied != size:
            raise OSError(errno.EFAULT, "bad address")


class _Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "process_vm_readv"):
        return None
    for name in ("process_vm_readv", "process_vm_writev"):
        function = getattr(libc, name)
        function.restype = ctypes.c_ssize_t
        number, pointer = ctypes.c_ulong, ctypes.c_void_p
        function.argtypes = [ctypes.c_int, pointer, number, pointer, number, number]
    return libc
