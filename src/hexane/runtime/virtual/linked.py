"""Virtual drivers of ABI 1 (H13): the first driver and the hardened one, each with its checks in its own order.

Checks and error numbers: docs/reference/devices.md 4. Where the two differ the class says so.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hexane.emulator.chain import walk
from hexane.emulator.registers import Registers
from hexane.errors import EmulationError
from hexane.image.packages import NETWORK_ID
from hexane.isa.channels import CHANNELS
from hexane.rounding import align
from hexane.runtime.linux import uapi
from hexane.runtime.virtual.core import Identity, OpenFile, VirtualDevice, require
from hexane.runtime.virtual.engine import EmulatedEngine
from hexane.runtime.virtual.faults import Faults
from hexane.runtime.virtual.memory import AddressSpace, VirtualBuffer, pages

FIRST_OFFSET = 0x1_0000_0000
"""Mapping offsets start here; another offset is no buffer's."""


class LinkedDevice(VirtualDevice):
    """Rules of every driver of ABI 1: handles per open file, the lowest free one first."""

    hardened = True

    def __init__(self, faults: Faults | None = None, *, shared: bool = False, recovers: bool = False) -> None:
        super().__init__(faults, shared=shared)
        self.recovers = recovers
        self.space = AddressSpace()
        self.objects: list[VirtualBuffer] = []
        self.engine = EmulatedEngine()

    def requests(self) -> dict[int, Callable[..., None]]:
        return {
            **super().requests(),
            uapi.request_number(uapi.GEM_CLOSE): self._gem_close,
            uapi.request_number(uapi.BO_INIT): self._init,
            uapi.request_number(uapi.BO_FREE): self._free,
            uapi.request_number(uapi.SUBMIT): self._submit,
        }

    def alive(self) -> Iterator[VirtualBuffer]:
        yield from self.objects

    # ---- buffers -----------------------------------------------------------------------------------------------------

    def find(self, file: OpenFile, size: int, offset: int) -> VirtualBuffer:
        """The exact offset of a buffer of this file, and no more than its size."""
        buffer = next((b for b in self.objects if FIRST_OFFSET + b.iova == offset), None)
        if buffer is None or pages(size) > buffer.size:
            raise OSError(errno.EINVAL, "no buffer at this offset")
        require(any(b is buffer for b in file.handles.values()), errno.EACCES)
        return buffer

    def dropped(self, buffer: VirtualBuffer) -> None:
        """The last handle or mapping gone, the pages go; behind a stopped engine they stay, DMA may still run."""
        if buffer.handles or buffer.mappings or buffer not in self.objects:
            return
        if self.stopped and self.hardened:
            return
        self._destroy(buffer)

    def _destroy(self, buffer: VirtualBuffer) -> None:
        self.objects.remove(buffer)
        self.space.release(buffer.iova)
        self.engine.forget()
        buffer.drop()

    def _init(self, file: OpenFile, request: uapi.BoInit, fault: str) -> None:
        require(request.pad == 0)
        if self.hardened:
            require(request.size > 0)
        require(request.size > 0, errno.ENOSPC)  # the first driver: no offset is found for nothing
        require(request.size <= 1 << 47, errno.ENOSPC)
        if self.hardened:
            require(not self.stopped, errno.ENODEV)
        size = pages(request.size)
        buffer = VirtualBuffer.new(size, self.space.place(size), shared=self.shared)
        self.objects.append(buffer)
        handle = next(i for i in range(1, 1 << 20) if i not in file.handles)
        file.handles[handle] = buffer
        buffer.handles += 1
        request.handle, request.offset = handle, FIRST_OFFSET + buffer.iova

    def _free(self, file: OpenFile, request: uapi.BoFree, fault: str) -> None:
        require(request.pad == 0)
        if self.hardened:
            require(not self.stopped, errno.ENODEV)
        require(request.handle in file.handles)
        buffer = file.handles.pop(request.handle)
        buffer.handles -= 1
        if self.hardened:
            self.dropped(buffer)
        else:  # freed at once, also while it is mapped
            if buffer.mappings:
                self.problems.append("a buffer was freed while it was mapped: the mapping dangles")
            self._destroy(buffer)

    def _gem_close(self, file: OpenFile, request: uapi.GemClose, fault: str) -> None:
        require(request.pad == 0 and request.handle in file.handles)
        buffer = file.handles.pop(request.handle)
        buffer.handles -= 1
        self.dropped(buffer)

    # ---- running -----------------------------------------------------------------------------------------------------

    def _submit(self, file: OpenFile, request: uapi.Submit, fault: str) -> None:
        require(request.pad == 0 and request.tsk_size > 0 and request.td_count > 0 and request.td_size > 0)
        if self.hardened:
            require(request.td_count <= uapi.MOST_TASKS)
            require(4 <= request.td_size <= uapi.MOST_TASK_BYTES and request.td_size % 4 == 0)
        require(request.handles[0] != 0 and request.handles[1] == 0 and request.btsp_handle != 0)
        if self.hardened:
            require(not self.stopped, errno.ECANCELED)
        for channel in range(CHANNELS):
            if request.handles[channel]:
                require(request.handles[channel] in file.handles)
                if channel == 0:
                    require(request.tsk_size < file.handles[request.handles[0]].size)
        require(request.btsp_handle in file.handles)
        first = file.handles[request.btsp_handle]
        if self.hardened:
            require(request.td_size <= first.size)
        if self.stopped:  # the first driver knows no wedge: it waits again, for nothing
            raise OSError(errno.ETIMEDOUT, "the engine did not finish")
        self.finish(lambda: self._run(file, request, first), fault)

    def _run(self, file: OpenFile, request: uapi.Submit, first: VirtualBuffer) -> int:
        program = file.handles[request.handles[0]]
        if request.td_size % 4 or request.td_size > min(first.size, request.tsk_size):
            raise EmulationError(f"the first task's {request.td_size:#x} bytes are not all there")
        text = bytes(first.data[: request.td_size]) + bytes(program.data[request.td_size : request.tsk_size])
        const_at = align(request.tsk_size, uapi.QUEUE_GRANULE)
        channels: dict[int, Any] = {}
        for channel in range(2, CHANNELS):
            if request.handles[channel]:
                channels[channel] = np.frombuffer(file.handles[request.handles[channel]].data, np.uint8)
        chain = walk(text, "h13", first_words=request.td_size // 4, count=request.td_count)
        return self.engine.run(_of_the_queue(chain), text, bytes(program.data[const_at:]), channels)

    def hung(self) -> None:
        """The hardened driver power-cycles the engine, which helps on T8103 and not on T6001."""
        self.engine.forget()
        self.stopped = not (self.hardened and self.recovers)


def _of_the_queue(chain: Iterator[Registers]) -> Iterator[Registers]:
    for registers in chain:
        network = registers["Header[0].NID"]
        if network != NETWORK_ID:
            raise registers.error(f"network id {network:#x}, the queue's is {NETWORK_ID:#x}", "Header[0].NID")
        yield registers


class FirstDriver(LinkedDevice):
    """eiln/ane: few checks, no wedge state, no free function, so what is not freed by name leaks until a reload."""

    hardened = False
    identity = Identity("eiln", (0, 0, 0), "Apple Neural Engine driver", "20230103")

    def dropped(self, buffer: VirtualBuffer) -> None:
        """Nothing frees a buffer but BO_FREE."""
        if not buffer.handles and not buffer.mappings and buffer in self.objects:
            self.objects.remove(buffer)
            self.leaked.append(f"buffer of {buffer.size:#x} bytes at {buffer.iova:#x}, until the module is reloaded")
            buffer.drop()


class HardenedDriver(LinkedDevice):
    """The hardened fork: more checks, a wedge state, recovery, statistics."""

    identity = Identity("omarchy", (1, 0, 0), "Apple Neural Engine driver")

    def attribute(self, path: str, name: str) -> str | None:
        """``wedged``, and the counters of the engine (modelled time, jobs)."""
        texts = {"wedged": str(int(self.stopped)), "ane_stats": f"busy_ns {self.busy_ns}\njobs {self.submissions}"}
        return texts.get(name)


class InTreeDriver(HardenedDriver):
    """The port into the kernel tree: the same with GET_CAPS."""

    identity = Identity("intree", (1, 0, 0), "Apple Neural Engine driver")

    def requests(self) -> dict[int, Callable[..., None]]:
        return {**super().requests(), uapi.request_number(uapi.GET_CAPS): self._caps}

    def _caps(self, file: OpenFile, request: uapi.GetCaps, fault: str) -> None:
        require(request.flags == 0 and request.pad == 0)
        request.size, request.abi_version, request.chip_family = 32, 1, uapi.FAMILY_H13
        request.section_size = request.bind_size = request.exec_io_size = 0
