"""A virtual engine at the driver's border: the checks of the kernel, and the emulator behind SUBMIT (spec/devices §6).

It knows what the kernel knows and nothing else: handles, sizes, and bytes. What a real engine would hang on ends in
ETIMEDOUT; ``problems`` keeps the emulator's reason, which no real driver gives.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane.emulator.chain import walk
from hexane.emulator.engine import Engine
from hexane.emulator.memory import Buffer, Memory
from hexane.errors import HexaneError
from hexane.isa.channels import CHANNELS, CONST, TEXT
from hexane.runtime.drm import (
    BO_FREE,
    BO_INIT,
    FREE_FORM,
    INIT_FORM,
    NETWORK_ID,
    PAGE,
    SUBMIT,
    SUBMIT_FORM,
    VERSION,
    VERSION_FORM,
)

PATH = "/dev/accel/accel0"
FIRST_OFFSET = 0x1_0000_0000
IOVA_START, IOVA_END = 0x4000, 0xE000_0000
MOST_TASKS, MOST_TASK_BYTES = 0xFFFF, 0x40000


@dataclass
class _Object:
    size: int
    offset: int
    data: bytearray
    iova: int


@dataclass
class VirtualDevice:
    """One engine; every open file has a table of handles of its own, as with the hardened driver (ABI major 1)."""

    version: tuple[int, int, int] = (1, 0, 0)
    problems: list[str] = field(default_factory=list)
    submissions: int = 0
    wedged: bool = False
    files: dict[int, dict[int, _Object]] = field(default_factory=dict)

    def open(self, path: str) -> int:
        if path != PATH:
            raise OSError(errno.ENOENT, "no such device", path)
        fd = next(i for i in range(1000, 9999) if i not in self.files)
        self.files[fd] = {}
        return fd

    def close(self, fd: int) -> None:
        del self.files[fd]

    def mmap(self, fd: int, size: int, offset: int) -> Any:
        for found in self.files[fd].values():
            if found.offset == offset and size <= found.size:
                return memoryview(found.data)[:size]
        raise OSError(errno.EINVAL, "no buffer at this offset")

    def ioctl(self, fd: int, request: int, argument: bytearray) -> None:
        answers = {VERSION: self._version, BO_INIT: self._init, BO_FREE: self._free, SUBMIT: self._submit}
        if request not in answers:
            raise OSError(errno.EINVAL, "no such request")
        answers[request](self.files[fd], argument)

    def _version(self, _: dict[int, _Object], argument: bytearray) -> None:
        *_numbers, room, pointer, _dl, _dp, _sl, _sp = struct.unpack(VERSION_FORM, argument)
        name = b"ane"
        if pointer:
            ctypes.memmove(pointer, name, min(room, len(name)))
        struct.pack_into("<3i4xQ", argument, 0, *self.version, len(name))

    def _init(self, table: dict[int, _Object], argument: bytearray) -> None:
        _, pad, size, _ = struct.unpack(INIT_FORM, argument)
        _require(pad == 0 and size > 0, errno.EINVAL)
        if self.wedged:
            raise OSError(errno.ENODEV, "wedged")
        size = -(-size // PAGE) * PAGE
        iova = self._place(size)
        handle = next(i for i in range(1, 1 << 16) if i not in table)
        offset = FIRST_OFFSET + iova
        table[handle] = _Object(size, offset, bytearray(size), iova)
        struct.pack_into(INIT_FORM, argument, 0, handle, 0, size, offset)

    def _place(self, size: int) -> int:
        """First fit in the engine's address space, which all processes share."""
        at = IOVA_START
        for found in sorted((o for table in self.files.values() for o in table.values()), key=lambda o: o.iova):
            if found.iova - at >= size:
                break
            at = max(at, found.iova + found.size)
        if at + size > IOVA_END:
            raise OSError(errno.ENOSPC, "no room in the engine's address space")
        return at

    def _free(self, table: dict[int, _Object], argument: bytearray) -> None:
        handle, pad = struct.unpack(FREE_FORM, argument)
        _require(pad == 0 and handle in table, errno.EINVAL)
        del table[handle]

    def _submit(self, table: dict[int, _Object], argument: bytearray) -> None:
        text_bytes, tasks, first_bytes, *handles, first, pad = struct.unpack(SUBMIT_FORM, argument)
        _require(not self.wedged, errno.ECANCELED)
        _require(pad == 0 and text_bytes > 0 and tasks > 0 and first_bytes > 0, errno.EINVAL)
        _require(handles[0] != 0 and handles[1] == 0 and first != 0, errno.EINVAL)
        _require(tasks <= MOST_TASKS and 4 <= first_bytes <= MOST_TASK_BYTES and first_bytes % 4 == 0, errno.EINVAL)
        _require(all(handle in table for handle in (*handles, first) if handle), errno.EINVAL)
        program = table[handles[0]]
        _require(text_bytes < program.size and first_bytes <= table[first].size, errno.EINVAL)
        self.submissions += 1
        try:
            self._run(table, handles, table[first], text_bytes, tasks, first_bytes)
        except HexaneError as error:  # what the emulator refuses, an engine hangs on
            self.problems.append(str(error))
            self.wedged = True
            raise OSError(errno.ETIMEDOUT, "the engine did not finish") from None

    def _run(
        self,
        table: dict[int, _Object],
        handles: list[int],
        first: _Object,
        text_bytes: int,
        tasks: int,
        first_bytes: int,
    ) -> None:
        program = table[handles[0]]
        text = bytes(first.data[:first_bytes]) + bytes(program.data[first_bytes:text_bytes])
        const_at = -(-text_bytes // 16) * 16
        memory = Memory({TEXT: Buffer.constant("text", text)})
        memory.channels[CONST] = Buffer.constant("const", bytes(program.data[const_at:]))
        for channel in range(2, CHANNELS):
            if handles[channel]:
                data = np.frombuffer(table[handles[channel]].data, np.uint8)
                memory.channels[channel] = Buffer.filled(f"channel {channel}", data)
        engine = Engine(memory)
        for registers in walk(text, "h13", first_words=first_bytes // 4, count=tasks):
            if registers["Header[0].NID"] != NETWORK_ID:
                raise registers.error(
                    f"network id {registers['Header[0].NID']:#x}, the queue's is 0x40", "Header[0].NID"
                )
            engine.execute(registers)


def _require(holds: bool, number: int) -> None:
    if not holds:
        raise OSError(number, "refused")
