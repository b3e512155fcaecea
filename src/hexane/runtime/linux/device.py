"""An open engine: who drives it, its buffers, and the calls that run programs."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hexane.errors import HexaneError, UnsupportedError
from hexane.isa.granules import PAGE
from hexane.rounding import ceil_div
from hexane.runtime.linux import uapi
from hexane.runtime.linux.border import ENDS, DeviceError, DriverBorder, RealKernel, refusal

COUNT = re.compile("[0-9]{1,20}")
"""A counter of 64 bits, in the text of ``ane_stats``; anything else is no counter."""


@dataclass(frozen=True)
class Driver:
    """Driver of a device: version, the ABI that it speaks, the generation whose programs it takes.

    ``flavour`` is "eiln" (the first driver), "hardened" or "in-tree"; the last has the request GET_CAPS.
    """

    name: str
    version: tuple[int, int, int]
    flavour: str
    abi: int
    generation: str

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}, ABI {self.abi}, {self.flavour}"


@dataclass(eq=False)
class MappedMemory:
    """A buffer of the engine, mapped into this process; ``bytes`` is the mapping."""

    handle: int
    size: int
    bytes: Any = field(repr=False)


class DriverDevice:
    """An open engine. A context manager: buffers are unmapped, freed and the file closed at the end."""

    def __init__(self, path: str, border: DriverBorder | None = None) -> None:
        self.path = path
        self.border: DriverBorder = border or RealKernel()
        self.buffers: list[MappedMemory] = []
        self._require_healthy()
        try:
            self.fd = self.border.open(path)
        except OSError as error:
            raise refusal("cannot be opened", error, path) from None
        self.closed = False
        try:
            self.driver = self._identify()
        except BaseException:
            with contextlib.suppress(OSError):  # what was refused is the news
                self._leave()
            raise

    def __enter__(self) -> DriverDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- who drives it -----------------------------------------------------------------------------------------------

    def _identify(self) -> Driver:
        name, version = self._version()
        text = ".".join(map(str, version))
        major = version[0]
        if name != "ane" or major not in (*uapi.ABI_1_MAJORS, uapi.ABI_2_MAJOR):
            raise UnsupportedError(
                f"{self.path} is driven by {name!r} {text}, not by a driver of the engine that hexane knows",
                hint="`hexane doctor` says what this machine has",
            )
        abi = 2 if major == uapi.ABI_2_MAJOR else 1
        generation = uapi.GENERATIONS[abi]
        if major == 0:
            return Driver(name, version, "eiln", abi, generation)
        flavour = "in-tree" if self._caps_agree(abi) else "hardened"
        return Driver(name, version, flavour, abi, generation)

    def _version(self) -> tuple[str, tuple[int, int, int]]:
        request = uapi.Version()
        self._ask(uapi.VERSION, request, "does not say who it is")
        name = (ctypes.c_char * max(1, min(request.name_len, 256)))()
        again = uapi.Version(name_len=len(name), name=ctypes.addressof(name))
        self._ask(uapi.VERSION, again, "does not say who it is")
        length = min(again.name_len, len(name), request.name_len)
        return bytes(name)[:length].decode("ascii", "replace"), (again.major, again.minor, again.patch)

    def _caps_agree(self, abi: int) -> bool:
        """True where the driver tells its sizes (and they are ours); UnsupportedError where they are others."""
        caps = uapi.GetCaps()
        try:
            self.border.ioctl(self.fd, uapi.GET_CAPS, caps)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTTY):  # a driver without this request
                return False
            raise refusal("does not say what it can", error, self.path) from None
        sizes = (
            [0, 0, 0] if abi == 1 else [ctypes.sizeof(s) for s in (uapi.SectionRecord, uapi.GenericBind, uapi.ExecIo)]
        )
        family = uapi.FAMILY_H13 if abi == 1 else uapi.FAMILY_H14
        driver_caps = [caps.abi_version, caps.chip_family, caps.section_size, caps.bind_size, caps.exec_io_size]
        expected_caps = driver_caps if abi == 2 else [*driver_caps[:2], 0, 0, caps.exec_io_size]
        if expected_caps != [abi, family, *sizes]:
            raise UnsupportedError(
                f"{self.path}: ABI, chip family and structure sizes are {driver_caps}; "
                f"hexane knows {[abi, family, *sizes]}",
                hint="the driver is newer than this hexane; update hexane",
            )
        return True

    # ---- buffers -----------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> MappedMemory:
        """A zeroed buffer of at least ``size`` bytes."""
        rounded = max(1, ceil_div(size, PAGE)) * PAGE
        request = uapi.BoInit(size=rounded)
        self._ask(uapi.BO_INIT, request, f"gives no buffer of {rounded:#x} bytes")
        try:
            mapped = self.border.mmap(self.fd, rounded, request.offset)
        except OSError as error:
            self._forget(request.handle)
            raise refusal(f"does not map a buffer of {rounded:#x} bytes", error, self.path) from None
        except BaseException:
            self._forget(request.handle)
            raise
        buffer = MappedMemory(request.handle, rounded, mapped)
        self.buffers.append(buffer)
        buffer_bytes = len(mapped)
        if buffer_bytes < rounded:
            self.free(buffer)
            raise DeviceError(
                f"mapped {buffer_bytes:#x} bytes of a buffer of {rounded:#x}",
                where=self.path,
                hint="the driver does not keep its interface; report it",
            )
        return buffer

    def free(self, buffer: MappedMemory) -> None:
        """Unmap a buffer and give it back, once, in this order: the first driver frees what is still mapped."""
        self.buffers.remove(buffer)
        mapping, buffer.bytes = buffer.bytes, b""
        problem: HexaneError | None = None
        try:
            self.border.munmap(mapping)
        except (OSError, BufferError) as error:
            cause = error if isinstance(error, OSError) else OSError(errno.EBUSY, str(error))
            problem = refusal("does not unmap a buffer", cause, self.path)
        try:
            self.border.ioctl(self.fd, uapi.BO_FREE, uapi.BoFree(handle=buffer.handle))
        except OSError as error:
            # a driver that has given the engine up keeps its buffers: closing the file is all that is left
            if not self._gone(error):
                problem = problem or refusal("does not take a buffer back", error, self.path)
        if problem is not None:
            raise problem

    def _gone(self, error: OSError) -> bool:
        return self.path in self.border.wedged or error.errno in (errno.ENODEV, errno.ETIMEDOUT, errno.ECANCELED)

    def _forget(self, handle: int) -> None:
        with contextlib.suppress(OSError):
            self.border.ioctl(self.fd, uapi.BO_FREE, uapi.BoFree(handle=handle))

    def close(self) -> None:
        """Unmap and free every buffer, then close the file; every step is taken, the first problem is raised."""
        if self.closed:
            return
        problems: list[HexaneError] = []
        for buffer in reversed(list(self.buffers)):
            try:
                self.free(buffer)
            except HexaneError as error:
                problems.append(error)
        try:
            self._leave()
        except OSError as error:
            problems.append(refusal("does not close", error, self.path))
        if problems:
            raise problems[0]

    def _leave(self) -> None:
        self.closed = True
        self.border.close(self.fd)

    # ---- running -----------------------------------------------------------------------------------------------------

    def submit(
        self,
        *,
        text_bytes: int,
        tasks: int,
        first_bytes: int,
        channels: Mapping[int, MappedMemory],
        first: MappedMemory,
    ) -> None:
        """ABI 1: run a program to its end. ``first`` holds a copy of the first descriptor."""
        request = uapi.Submit(tsk_size=text_bytes, td_count=tasks, td_size=first_bytes, btsp_handle=first.handle)
        for channel, buffer in channels.items():
            request.handles[channel] = buffer.handle
        with self._running():
            self.border.ioctl(self.fd, uapi.SUBMIT, request)

    def lookup(self, digest: bytes) -> int | None:
        """ABI 2: the program with these sections, if the driver has it and can say so."""
        if self.driver.flavour != "hardened":
            return None
        text = ctypes.create_string_buffer(digest, len(digest))
        request = uapi.ProgLookup(digest_ptr=ctypes.addressof(text), digest_len=len(digest))
        try:
            self.border.ioctl(self.fd, uapi.PROG_LOOKUP, request)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTTY):  # older than this request
                return None
            self._note(error)
            raise refusal("does not look a program up", error, self.path) from None
        return int(request.prog_id_out) if request.found_out else None

    def load(
        self, sections: Mapping[int, tuple[MappedMemory, int]], binds: list[tuple[int, int, MappedMemory, int]]
    ) -> int:
        """ABI 2: give a program to the firmware.

        ``sections`` is id -> (buffer, bytes); ``binds`` are (buffer id, type, buffer, bytes).
        """
        rows = (uapi.SectionRecord * len(sections))()
        for row, (number, (buffer, size)) in zip(rows, sorted(sections.items())):
            row.id, row.bo_handle, row.size = number, buffer.handle, size
        bound = (uapi.GenericBind * max(1, len(binds)))()
        for bind, (buffer_id, kind, memory, size) in zip(bound, binds):
            bind.buffer_id, bind.type, bind.bo_handle, bind.size = buffer_id, kind, memory.handle, size
        request = uapi.ProgLoad(
            sections_ptr=ctypes.addressof(rows),
            generic_ptr=ctypes.addressof(bound),
            section_count=len(sections),
            generic_count=len(binds),
        )
        with self._running("does not load the program", nospace="the driver takes 250 programs between two boots"):
            self.border.ioctl(self.fd, uapi.PROG_LOAD, request)
        return int(request.prog_id_out)

    def process(self, program: int) -> int:
        """ABI 2: the process of a program."""
        request = uapi.ProcCreate(prog_id=program)
        with self._running("makes no process of the program"):
            self.border.ioctl(self.fd, uapi.PROC_CREATE, request)
        return int(request.proc_id_out)

    def execute(self, program: int, process: int, buffers: list[tuple[int, int, MappedMemory, int]]) -> None:
        """ABI 2: run a program to its end on (buffer id, type, buffer, bytes)."""
        rows = (uapi.ExecIo * len(buffers))()
        for row, (buffer_id, kind, memory, size) in zip(rows, buffers):
            row.buffer_id, row.type, row.bo_handle, row.size = buffer_id, kind, memory.handle, size
        request = uapi.Exec(
            prog_id=program,
            proc_id=process,
            priority=uapi.PRIORITY,
            timeout_ms=uapi.TIMEOUT_MS_2,
            count=len(buffers),
            io_ptr=ctypes.addressof(rows),
        )
        with self._running():
            self.border.ioctl(self.fd, uapi.EXEC, request)

    @contextlib.contextmanager
    def _running(self, problem: str = "did not run the program", nospace: str = "") -> Iterator[None]:
        """A call to the engine itself: refused after a wedge, and a wedge is remembered."""
        self._require_healthy()
        try:
            yield
        except OSError as error:
            self._note(error)
            if nospace and error.errno == errno.ENOSPC:
                hint = "reboot; equal programs count as one"
                raise DeviceError(f"{problem}: {nospace}", errno=error.errno, where=self.path, hint=hint) from None
            raise refusal(problem, error, self.path) from None

    def _note(self, error: OSError) -> None:
        if errno.errorcode.get(error.errno or 0) in ENDS:
            self.border.wedged.add(self.path)

    def _require_healthy(self) -> None:
        if self.path in self.border.wedged:
            raise DeviceError(
                "a program did not finish here, and nothing is tried again on a wedged engine",
                errno=errno.ECANCELED,
                where=self.path,
                hint="start a new process once `hexane doctor` says that the engine is in order, else reboot",
            )

    # ---- counters ----------------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """Counters of the driver: ``busy_ns`` of the engine, ``jobs`` done; empty for a driver that has none."""
        text = self.border.attribute(self.path, "ane_stats") or ""
        pairs = [line.split() for line in text.splitlines()]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and COUNT.fullmatch(pair[1])}

    def _ask(self, request: int, argument: ctypes.Structure, problem: str) -> None:
        try:
            self.border.ioctl(self.fd, request, argument)
        except OSError as error:
            raise refusal(problem, error, self.path) from None
