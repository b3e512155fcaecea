"""Border at which requests leave the process: the kernel, or whatever stands in its place."""

from __future__ import annotations

import contextlib
import ctypes
import mmap as memory_map
import os
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol

from hexane.errors import HexaneError


class DeviceError(HexaneError):
    """The driver or the engine refused a request; ``errno`` is the kernel's number, 0 where there is none."""

    code = "device"

    def __init__(self, message: str, *, errno: int = 0, where: str | None = None, hint: str | None = None) -> None:
        self.errno = errno
        super().__init__(message, where=where, hint=hint)


class DriverBorder(Protocol):
    """The five calls of a driver's client, and the files beside the device; errors are OSError with its number.

    ``wedged`` names the device files on which a program did not finish: nothing is tried there again.
    """

    @property
    def wedged(self) -> set[str]: ...

    def open(self, path: str) -> int: ...

    def ioctl(self, fd: int, request: int, argument: ctypes.Structure) -> None: ...

    def mmap(self, fd: int, size: int, offset: int) -> Any: ...

    def munmap(self, mapping: Any) -> None: ...

    def close(self, fd: int) -> None: ...

    def attribute(self, path: str, name: str) -> str | None: ...


class RealKernel:
    """The real border."""

    wedged: ClassVar[set[str]] = set()
    """Of the whole process: an engine that did not answer one program will not answer the next."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ioctl(self, fd: int, request: int, argument: ctypes.Structure) -> None:
        import fcntl

        fcntl.ioctl(fd, request, argument, True)  # a structure is a writable buffer

    def mmap(self, fd: int, size: int, offset: int) -> Any:
        return memory_map.mmap(
            fd, size, memory_map.MAP_SHARED, memory_map.PROT_READ | memory_map.PROT_WRITE, offset=offset
        )

    def munmap(self, mapping: Any) -> None:
        mapping.close()

    def close(self, fd: int) -> None:
        os.close(fd)

    def attribute(self, path: str, name: str) -> str | None:
        """The text of a file in the device's own folder of sysfs; None where there is none."""
        with contextlib.suppress(OSError):
            folder = Path("/sys/class/accel") / PurePosixPath(path).name / "device"
            return (folder / name).read_text("utf-8", "replace").strip()
        return None


HINTS = {
    "ENOENT": "`hexane doctor` says what this machine has",
    "EACCES": "the device file belongs to another group: `hexane doctor` names the rule (docs/devices.md)",
    "ENOSPC": "the engine's address space or the driver's limit is full: close other programs that use it",
    "ENOMEM": "the machine has no memory left for the engine's buffers",
    "ETIMEDOUT": "the engine did not finish; nothing more is sent to it: check the program on the emulator, and reboot "
    "where `hexane doctor` says that the engine is wedged",
    "ECANCELED": "the driver says that the engine is wedged; reboot",
    "ENODEV": "the driver has given the engine up, or it was removed; `hexane doctor` says which; reboot",
    "EIO": "the engine reported something that the driver does not know; reboot before the next try",
    "EPROTO": "the engine's firmware refused the program; check it on the emulator and report it",
    "ERANGE": "the driver placed a buffer where the engine cannot reach it; report it",
}
"""What to do about an error number of a driver; docs/reference/devices.md 6."""
ENDS = ("ETIMEDOUT", "ECANCELED", "ENODEV", "EIO")
"""After these from a call that runs a program, the client stops: no second try (docs/reference/devices.md 6)."""


def refusal(problem: str, error: OSError, path: str) -> DeviceError:
    """A kernel's error as hexane's."""
    import errno

    number = error.errno or 0
    reason = os.strerror(number) if number else str(error)
    return DeviceError(
        f"{problem}: {reason}", errno=number, where=path, hint=HINTS.get(errno.errorcode.get(number, ""))
    )
