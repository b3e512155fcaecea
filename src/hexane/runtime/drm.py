"""The open Linux driver's ABI 1 (H13): requests, their bytes, and the border at which they leave the process.

Structures and numbers: spec/devices §4. A border is any object with ``open``, ``ioctl``, ``mmap`` and ``close``; the
real one asks the kernel, a virtual device (``hexane.runtime.virtual``) answers by itself.
"""

from __future__ import annotations

import ctypes
import mmap as memory_map
import os
import struct
from dataclasses import dataclass
from typing import Any, Protocol

from hexane.errors import HexaneError, UnsupportedError
from hexane.isa.channels import CHANNELS

VERSION, BO_INIT, BO_FREE, SUBMIT = 0xC0406400, 0xC0186441, 0xC0086442, 0xC0986443
VERSION_FORM, INIT_FORM, FREE_FORM, SUBMIT_FORM = "<3i4xQQQQQQ", "<IIQQ", "<II", "<QII32III"
PAGE = 0x4000
NETWORK_ID = 0x40
ABI_1 = (0, 1)
"""Driver majors that speak this ABI; major 2 is that of H14."""


class DeviceError(HexaneError):
    """The driver or the engine refused a request; ``errno`` is the kernel's."""

    def __init__(self, message: str, *, errno: int = 0, where: str | None = None, hint: str | None = None) -> None:
        self.errno = errno
        super().__init__(message, where=where, hint=hint)


class Border(Protocol):
    """Where requests leave the process. Errors are OSError with the kernel's number."""

    def open(self, path: str) -> int: ...

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None: ...

    def mmap(self, fd: int, size: int, offset: int) -> Any: ...

    def close(self, fd: int) -> None: ...


class Kernel:
    """The real border."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None:
        import fcntl

        fcntl.ioctl(fd, request, argument, True)

    def mmap(self, fd: int, size: int, offset: int) -> Any:
        return memory_map.mmap(
            fd, size, memory_map.MAP_SHARED, memory_map.PROT_READ | memory_map.PROT_WRITE, offset=offset
        )

    def close(self, fd: int) -> None:
        os.close(fd)


@dataclass
class Memory:
    """A buffer of the engine, mapped into this process."""

    handle: int
    size: int
    bytes: Any


class Device:
    """An open engine. A context manager: buffers are unmapped, freed and the file closed at the end."""

    def __init__(self, path: str, border: Border | None = None) -> None:
        self.path = path
        self.border: Border = border or Kernel()
        self.buffers: list[Memory] = []
        try:
            self.fd = self.border.open(path)
        except OSError as error:
            raise _refusal("cannot be opened", error, path) from None
        try:
            name, self.version = self._identify()
            if name != "ane" or self.version[0] not in ABI_1:
                version = ".".join(map(str, self.version))
                raise UnsupportedError(
                    f"{path} is driven by {name!r} {version}, not by the engine's ABI 1 driver",
                    hint="`hexane doctor` says what this machine has",
                )
        except BaseException:
            self.border.close(self.fd)
            raise

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap and free every buffer, then close the file."""
        for buffer in reversed(self.buffers):
            close = getattr(buffer.bytes, "close", None)
            if close is not None:
                close()
            self.border.ioctl(self.fd, BO_FREE, bytearray(struct.pack(FREE_FORM, buffer.handle, 0)))
        self.buffers.clear()
        self.border.close(self.fd)

    def _identify(self) -> tuple[str, tuple[int, int, int]]:
        name = (ctypes.c_char * 64)()
        argument = bytearray(struct.pack(VERSION_FORM, 0, 0, 0, len(name), ctypes.addressof(name), 0, 0, 0, 0))
        self._ask(VERSION, argument, "does not say who it is")
        major, minor, patch, length, *_ = struct.unpack(VERSION_FORM, argument)
        return bytes(name)[: min(length, len(name))].decode("ascii", "replace"), (major, minor, patch)

    def allocate(self, size: int) -> Memory:
        """A zeroed buffer of at least ``size`` bytes."""
        rounded = -(-size // PAGE) * PAGE
        argument = bytearray(struct.pack(INIT_FORM, 0, 0, rounded, 0))
        self._ask(BO_INIT, argument, f"gives no buffer of {rounded:#x} bytes")
        handle, _, _, offset = struct.unpack(INIT_FORM, argument)
        try:
            mapped = self.border.mmap(self.fd, rounded, offset)
        except OSError as error:
            self.border.ioctl(self.fd, BO_FREE, bytearray(struct.pack(FREE_FORM, handle, 0)))
            raise _refusal("does not map a buffer", error, self.path) from None
        buffer = Memory(handle, rounded, mapped)
        self.buffers.append(buffer)
        return buffer

    def submit(
        self, *, text_bytes: int, tasks: int, first_bytes: int, channels: dict[int, Memory], first: Memory
    ) -> None:
        """Run a program to its end. ``first`` holds a copy of the first descriptor."""
        handles = [channels[i].handle if i in channels else 0 for i in range(CHANNELS)]
        request = struct.pack(SUBMIT_FORM, text_bytes, tasks, first_bytes, *handles, first.handle, 0)
        self._ask(SUBMIT, bytearray(request), "did not run the program")

    def _ask(self, request: int, argument: bytearray, problem: str) -> None:
        try:
            self.border.ioctl(self.fd, request, argument)
        except OSError as error:
            raise _refusal(problem, error, self.path) from None


def _refusal(problem: str, error: OSError, path: str) -> DeviceError:
    hints = {
        2: "`hexane doctor` says what this machine has",
        13: "join the group that owns it",
        110: "the engine did not finish; do not try again before a reboot (spec/devices §4.6)",
        125: "the driver says that the engine is wedged; reboot",
    }
    reason = os.strerror(error.errno) if error.errno else str(error)
    return DeviceError(f"{problem}: {reason}", errno=error.errno or 0, where=path, hint=hints.get(error.errno or 0))
