"""Virtual driver of ABI 2 (H14): buffers with one counter of handles, programs in the firmware, calls.

Checks and error numbers in the driver's order: docs/reference/devices.md 5.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hexane.errors import HexaneError
from hexane.isa.granules import PAGE
from hexane.runtime.linux import uapi
from hexane.runtime.linux.sections import digest
from hexane.runtime.virtual.core import Identity, OpenFile, VirtualDevice, require
from hexane.runtime.virtual.faults import Faults
from hexane.runtime.virtual.firmware import Firmware, FirmwareCall
from hexane.runtime.virtual.memory import AddressSpace, VirtualBuffer, pages


@dataclass
class _Known:
    digest: bytes
    program: int
    process: int | None = None


class SectionedDevice(VirtualDevice):
    """The driver of the M2 family. After one call that does not finish everything is refused until reboot."""

    identity = Identity("abi2", (2, 0, 0), "Apple Neural Engine (T6021/M2)")
    abi = 2
    lookup = True
    caps = False

    def __init__(self, faults: Faults | None = None, *, shared: bool = False) -> None:
        super().__init__(faults, shared=shared)
        self.space = AddressSpace(end=1 << 40)
        self.next_handle = 1
        self.total = 0
        self.objects: list[VirtualBuffer] = []
        self.pool: list[VirtualBuffer] = []
        self.kept: list[VirtualBuffer] = []
        self.programs: list[_Known] = []
        self.firmware = Firmware()

    def requests(self) -> dict[int, Callable[..., None]]:
        answers: dict[int, Callable[..., None]] = {
            uapi.BO_INIT: self._init,
            uapi.BO_FREE: self._free,
            uapi.SUBMIT: self._submit,
            uapi.PROG_LOAD: self._load,
            uapi.PROC_CREATE: self._create,
            uapi.EXEC: self._exec,
        }
        if self.lookup:
            answers[uapi.PROG_LOOKUP] = self._lookup
        if self.caps:
            answers[uapi.GET_CAPS] = self._caps
        return {**super().requests(), **{uapi.request_number(request): answer for request, answer in answers.items()}}

    def alive(self) -> Iterator[VirtualBuffer]:
        """Buffers that clients hold; what the firmware keeps and what waits in the pool is the driver's."""
        yield from self.objects

    def hung(self) -> None:
        self.firmware.forget()
        self.stopped = True

    def attribute(self, path: str, name: str) -> str | None:
        """Counters (no time: the model has none of H14 tasks); this driver has no file that says that it stopped."""
        return f"jobs {self.submissions}" if name == "ane_stats" else None

    def _running(self) -> None:
        require(not self.stopped, errno.ETIMEDOUT)

    # ---- buffers -----------------------------------------------------------------------------------------------------

    def find(self, file: OpenFile, size: int, offset: int) -> VirtualBuffer:
        handle = offset // PAGE
        require(handle > 0)
        buffer = file.handles.get(handle & 0xFFFFFFFF)
        if buffer is None or pages(size) > buffer.size:
            raise OSError(errno.ENOENT, "no buffer of this file")
        return buffer

    def _init(self, file: OpenFile, request: uapi.BoInit, fault: str) -> None:
        require(request.pad == 0 and 0 < request.size <= uapi.LARGEST_BUFFER_2)
        size = pages(request.size)
        buffer = next((b for b in self.pool if b.size == size), None)
        if buffer is not None:
            self.pool.remove(buffer)
            buffer.data[:] = bytes(size)
        else:
            require(self.total + size <= uapi.MOST_BUFFER_BYTES_2, errno.ENOSPC)
            buffer = VirtualBuffer.new(size, self.space.place(size), shared=self.shared)
            self.total += size
        self.objects.append(buffer)
        buffer.handles, buffer.owner = 1, file.fd
        request.handle, self.next_handle = self.next_handle, self.next_handle % 0xFFFFFFFF + 1
        file.handles[request.handle] = buffer
        request.offset = request.handle * PAGE

    def dropped(self, buffer: VirtualBuffer) -> None:
        """Memory that the firmware has seen never goes back: sections stay, other buffers wait for reuse."""
        if buffer.handles or buffer.mappings or buffer not in self.objects:
            return
        self.objects.remove(buffer)
        if buffer.kept or (buffer.seen and self.stopped):
            self.kept.append(buffer)
        elif buffer.seen:
            self.pool.append(buffer)
        else:
            self.space.release(buffer.iova)
            self.total -= buffer.size
            buffer.drop()

    def _free(self, file: OpenFile, request: uapi.BoFree, fault: str) -> None:
        require(request.pad == 0)
        require(request.handle in file.handles, errno.ENOENT)
        buffer = file.handles.pop(request.handle)
        buffer.handles -= 1
        self.dropped(buffer)

    def _submit(self, file: OpenFile, request: uapi.Submit, fault: str) -> None:
        raise OSError(errno.ENOTTY, "ABI 1 is not spoken here")

    def _caps(self, file: OpenFile, request: uapi.GetCaps, fault: str) -> None:
        require(request.flags == 0 and request.pad == 0)
        request.size, request.abi_version, request.chip_family = ctypes.sizeof(request), 2, uapi.FAMILY_H14
        request.section_size, request.bind_size = ctypes.sizeof(uapi.SectionRecord), ctypes.sizeof(uapi.GenericBind)
        request.exec_io_size = ctypes.sizeof(uapi.ExecIo)

    # ---- programs ----------------------------------------------------------------------------------------------------

    def _rows(self, file: OpenFile, row: Any, address: int, count: int) -> list[Any]:
        if not count:
            return []
        return list((row * count).from_buffer_copy(file.user.read(address, ctypes.sizeof(row) * count)))

    def _load(self, file: OpenFile, request: uapi.ProgLoad, fault: str) -> None:
        self._running()
        require(request.pad == 0 and 1 <= request.section_count <= uapi.MOST_SECTIONS)
        require(request.generic_count <= uapi.MOST_BINDS)
        rows = self._rows(file, uapi.SectionRecord, request.sections_ptr, request.section_count)
        binds = self._rows(file, uapi.GenericBind, request.generic_ptr, request.generic_count)
        require(all(bind.pad == 0 for bind in binds))
        require(all(1 <= row.id <= uapi.MOST_SECTIONS for row in rows))
        require(len({row.id for row in rows}) == len(rows))
        sections = {row.id: self._content(file, row) for row in rows}
        name = digest(sections)
        program = next((p for p in self.programs if p.digest == name), None)
        if program is None:
            require(len(self.programs) < uapi.MOST_PROGRAMS, errno.ENOSPC)
            for row in rows:
                buffer = file.handles[row.bo_handle]
                buffer.seen = buffer.kept = True
            self._finishes(fault)
            program = _Known(name, self._said_no(lambda: self.firmware.load(sections)))
            self.programs.append(program)
        request.prog_id_out = program.program

    def _content(self, file: OpenFile, row: uapi.SectionRecord) -> bytes:
        buffer = file.handles.get(row.bo_handle)
        if buffer is None or row.size > buffer.size or row.offset > buffer.size - row.size:
            raise OSError(errno.EINVAL, "a section is not in its buffer")
        return bytes(buffer.data[row.offset : row.offset + row.size])

    def _create(self, file: OpenFile, request: uapi.ProcCreate, fault: str) -> None:
        self._running()
        request.proc_id_out = 0
        program = next((p for p in self.programs if p.program == request.prog_id), None)
        if program is None:
            raise OSError(errno.ENOENT, "no such program")
        self._finishes(fault)
        if program.process is None:
            program.process = self._said_no(lambda: self.firmware.process(program.program))
        request.proc_id_out = program.process

    def _lookup(self, file: OpenFile, request: uapi.ProgLookup, fault: str) -> None:
        require(request.pad == 0 and request.digest_len == uapi.DIGEST_BYTES)
        digest = file.user.read(request.digest_ptr, uapi.DIGEST_BYTES)
        self._running()
        program = next((p for p in self.programs if p.digest == digest), None)
        request.found_out, request.prog_id_out = int(program is not None), program.program if program else 0

    def _exec(self, file: OpenFile, request: uapi.Exec, fault: str) -> None:
        require(request.pad == 0 and 1 <= request.count <= uapi.MOST_BINDS and request.priority in uapi.PRIORITIES)
        rows = self._rows(file, uapi.ExecIo, request.io_ptr, request.count)
        require(all(row.flags == 0 and row.reserved == 0 for row in rows))
        self._running()
        ports = []
        for row in rows:
            buffer = file.handles.get(row.bo_handle)
            if buffer is None or row.size > buffer.size:
                raise OSError(errno.EINVAL, "a buffer is not this file's, or smaller than said")
            buffer.seen = True
            ports.append(FirmwareCall(row.buffer_id, row.type, row.size, buffer))
        call = self._said_no(lambda: self.firmware.prepare(request.prog_id, request.proc_id, ports))
        self.finish(call, fault)

    def _finishes(self, fault: str) -> None:
        if fault == "timeout":
            self.problems.append("a fault was asked for: the firmware does not answer")
            self.hung()
            raise OSError(errno.ETIMEDOUT, "the firmware did not answer")

    def _said_no(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except HexaneError as error:
            self.problems.append(str(error))
            raise OSError(errno.EPROTO, "the firmware said no") from None


class InTreeSectionedDevice(SectionedDevice):
    """The port into the kernel tree: GET_CAPS, and no look-up of programs."""

    identity = Identity("intree2", (2, 0, 0), "Apple Neural Engine (T6021/M2)")
    lookup = False
    caps = True
