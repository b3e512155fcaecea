"""The part of a virtual driver that every flavour has: open files, requests by number, mappings.

What the kernel's DRM core does: a request is found by its low byte alone, a structure of another size is filled up with
zeros or cut, and it is copied back also when the call fails (docs/reference/devices.md 4).
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hexane.errors import HexaneError
from hexane.isa.granules import PAGE
from hexane.runtime.linux import uapi
from hexane.runtime.virtual.faults import GARBAGE, SHORT, TIMEOUT, WEDGE, Faults
from hexane.runtime.virtual.memory import UserMemory, VirtualBuffer, pages

PATH = "/dev/accel/accel0"
FIRST_FD = 1000


@dataclass(frozen=True)
class Identity:
    """Name of a driver, and the ABI that it speaks."""

    flavour: str
    version: tuple[int, int, int]
    desc: str
    date: str = ""
    name: str = "ane"


@dataclass(eq=False)
class OpenFile:
    """An open file of a process: its handles are its own."""

    fd: int
    process: int
    user: UserMemory
    handles: dict[int, VirtualBuffer] = field(default_factory=dict)


@dataclass(eq=False)
class Mapping:
    """A mapping of a process, and the view that the process was given."""

    buffer: VirtualBuffer
    file: OpenFile
    view: Any


class VirtualDevice:
    """One engine behind one device file.

    Parameters
    ----------
    faults : what goes wrong, and when.
    shared : buffers lie in files, for clients in other processes.
    """

    identity = Identity("", (0, 0, 0), "")
    abi = 1

    def __init__(self, faults: Faults | None = None, *, shared: bool = False) -> None:
        self.faults = faults or Faults()
        self.shared = shared
        self.wedged: set[str] = set()  # the client's memory of it, as `Border` wants
        self.stopped = False  # the driver's
        self.removed = False
        self.problems: list[str] = []
        self.leaked: list[str] = []
        self.submissions = 0
        self.busy_ns = 0
        self.files: dict[int, OpenFile] = {}
        self.mappings: list[Mapping] = []
        self.lock = threading.RLock()

    # ---- the five calls ----------------------------------------------------------------------------------------------

    def open(self, path: str, process: int = 0) -> int:
        with self.lock:
            self._enter("open")
            if path != PATH or self.removed:
                raise OSError(errno.ENODEV if self.removed else errno.ENOENT, "no such device", path)
            fd = next(i for i in range(FIRST_FD, FIRST_FD + 0x10000) if i not in self.files)
            self.files[fd] = OpenFile(fd, process, UserMemory(process or None))
            return fd

    def ioctl(self, fd: int, request: int, argument: Any) -> None:
        """``argument``: anything with a writable buffer of the request's size or more."""
        with self.lock:
            number = uapi.request_number(request)
            request_name = next((r for r in uapi.NAMES if uapi.request_number(r) == number), None)
            file = self._file(fd)
            fault = self._enter(uapi.NAMES[request_name] if request_name else f"{number:#x}")
            require(not self.removed, errno.ENODEV)
            answer = self.requests().get(number)
            if request_name is None or answer is None:
                raise OSError(errno.EINVAL, "no such request")
            request_bytes = memoryview(argument).cast("B")
            size = min(uapi.request_size(request), len(request_bytes))
            structure = uapi.STRUCTURES[request_name]
            whole = bytearray(max(ctypes.sizeof(structure), size))
            whole[:size] = request_bytes[:size]
            data = structure.from_buffer(whole)
            try:
                answer(file, data, fault)
            finally:
                request_bytes[:size] = whole[:size]

    def mmap(self, fd: int, size: int, offset: int) -> Any:
        with self.lock:
            file = self._file(fd)
            fault = self._enter("mmap")
            if size <= 0 or offset % PAGE:
                raise OSError(errno.EINVAL, "no such mapping")
            buffer = self.find(file, size, offset)
            whole = pages(size)
            view = memoryview(buffer.data)[: min(whole // 2 if fault == SHORT else whole, buffer.size)]
            buffer.mappings += 1
            self.mappings.append(Mapping(buffer, file, view))
            return view

    def munmap(self, mapping: Any) -> None:
        with self.lock:
            entry = next((m for m in self.mappings if m.view is mapping), None)
            if entry is None:
                raise OSError(errno.EINVAL, "no such mapping")
            self._enter("munmap")
            self.unmap(entry)
            try:
                mapping.release()
            except BufferError:
                self.problems.append("unmapped while the process still looks at it")

    def close(self, fd: int) -> None:
        with self.lock:
            file = self._file(fd)
            del self.files[fd]
            self.release(file)
            self._enter("close")

    def attribute(self, path: str, name: str) -> str | None:
        """Files beside the device: ``wedged`` and ``ane_stats`` where the driver has them."""
        return None

    # ---- a process that ends -----------------------------------------------------------------------------------------

    def end_process(self, process: int) -> None:
        """Work of the kernel for a process that is gone: its mappings, then its files."""
        with self.lock:
            for mapping in [m for m in self.mappings if m.file.process == process]:
                self.unmap(mapping)
            for file in [f for f in self.files.values() if f.process == process]:
                del self.files[file.fd]
                self.release(file)

    # ---- what flavours say -------------------------------------------------------------------------------------------

    def requests(self) -> dict[int, Callable[..., None]]:
        """Request number -> its answer."""
        return {uapi.request_number(uapi.VERSION): self._version}

    def find(self, file: OpenFile, size: int, offset: int) -> VirtualBuffer:
        """The buffer that a mapping names; OSError where there is none for this file."""
        raise NotImplementedError

    def unmap(self, mapping: Mapping) -> None:
        """Let a mapping go."""
        self.mappings.remove(mapping)
        mapping.buffer.mappings -= 1
        self.dropped(mapping.buffer)

    def dropped(self, buffer: VirtualBuffer) -> None:
        """A handle or mapping of the buffer is gone."""
        raise NotImplementedError

    def release(self, file: OpenFile) -> None:
        """The file is closed: its handles go."""
        for handle in list(file.handles):
            buffer = file.handles.pop(handle)
            buffer.handles -= 1
            self.dropped(buffer)

    def alive(self) -> Iterator[VirtualBuffer]:
        """Every buffer that still has an address, each once."""
        raise NotImplementedError

    def left_behind(self) -> list[str]:
        """Objects that clients have not given back: nothing after the last close of clients that keep the rules."""
        leaks = [f"open file {fd}" for fd in self.files]
        leaks += [f"mapping of {m.buffer.size:#x} bytes" for m in self.mappings]
        leaks += [f"buffer of {b.size:#x} bytes at {b.iova:#x}" for b in self.alive()]
        return leaks + self.leaked

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _enter(self, call: str) -> str:
        fault = self.faults.enter(call)
        if fault == WEDGE:
            self.stopped = True
        return fault

    def _file(self, fd: int) -> OpenFile:
        if fd not in self.files:
            raise OSError(errno.EBADF, "not an open file")
        return self.files[fd]

    def _version(self, file: OpenFile, request: uapi.Version, fault: str) -> None:
        identity = self.identity
        request.major, request.minor, request.patch = identity.version
        name = "rocket" if fault == GARBAGE else identity.name
        for field_name, text in (("name", name), ("date", identity.date), ("desc", identity.desc)):
            room, pointer = getattr(request, f"{field_name}_len"), getattr(request, field_name)
            setattr(request, f"{field_name}_len", len(text))
            if pointer and room:
                file.user.write(pointer, text.encode()[: min(room, len(text))])

    def finish(self, work: Callable[[], int], fault: str) -> None:
        """Run a program; ETIMEDOUT for one that a real engine would hang on."""
        self.submissions += 1
        try:
            if fault == TIMEOUT:
                raise HexaneError("a fault was asked for: the engine does not finish")
            self.busy_ns += work()
        except HexaneError as error:  # what the emulator refuses, an engine hangs on
            self.problems.append(str(error))
            self.hung()
            raise OSError(errno.ETIMEDOUT, "the engine did not finish") from None

    def hung(self) -> None:
        """The engine did not finish; what the driver makes of it."""
        self.stopped = True


def require(holds: bool, number: int = errno.EINVAL) -> None:
    """OSError with the number where something does not hold."""
    if not holds:
        raise OSError(number, errno.errorcode[number])
