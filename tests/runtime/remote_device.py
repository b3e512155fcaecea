"""A virtual engine for other processes: the same five calls over a socket, buffers as shared memory.

What a process leaves behind when it ends, or is killed, is then taken back as the kernel does it. A link sees its own
open files and mappings, and a message that is no request is EINVAL. Linux only: buffers are passed as open files, and
pointers are read out of the calling process.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap as memory_map
import os
import signal
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hexane.runtime.virtual.core import VirtualDevice

_HEAD = struct.Struct("<II")
_CREDENTIALS = struct.Struct("3i")
LARGEST_MESSAGE = 1 << 16


def _send(link: socket.socket, words: dict[str, Any], data: bytes = b"", fd: int = -1) -> None:
    text = json.dumps(words).encode()
    message = _HEAD.pack(len(text), len(data)) + text + data
    if fd >= 0:
        socket.send_fds(link, [message], [fd])
    else:
        link.sendall(message)


def _receive(link: socket.socket, fds: int = 0) -> tuple[dict[str, Any], bytes, list[int]]:
    """One message; EOFError when the other side is gone."""
    message, descriptors, _, _ = socket.recv_fds(link, _HEAD.size, fds) if fds else (link.recv(_HEAD.size), [], 0, None)
    while message and len(message) < _HEAD.size:
        message += _some(link, _HEAD.size - len(message))
    if not message:
        raise EOFError
    first, second = _HEAD.unpack(message)
    if max(first, second) > LARGEST_MESSAGE:
        raise EOFError
    rest = b""
    while len(rest) < first + second:
        rest += _some(link, first + second - len(rest))
    try:
        words = json.loads(rest[:first])
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, dict):
        words = {"call": None}
    return words, rest[first:], descriptors


def _some(link: socket.socket, size: int) -> bytes:
    data = link.recv(size)
    if not data:
        raise EOFError
    return data


@dataclass(frozen=True)
class Kill:
    """End the calling process with SIGKILL at its ``nth`` call (from 1): before the call is made, or after it."""

    nth: int
    after: bool = True


@dataclass
class Peer:
    """The other end of a link: its process, its open files, and its mappings by the number that it knows them by."""

    process: int
    files: list[int] = field(default_factory=list)
    views: dict[int, Any] = field(default_factory=dict)


class Server:
    """Answers the calls of other processes with one virtual device. A context manager.

    Parameters
    ----------
    device : made with ``shared=True``.
    path : where the socket is to be.
    kill : which call ends its caller, for tests.
    """

    def __init__(self, device: VirtualDevice, path: str, kill: Kill | None = None) -> None:
        self.device = device
        self.kill = kill
        self.calls = 0
        self.threads: list[threading.Thread] = []
        self.starting = threading.Lock()
        self.path = path
        self.links: Counter[int] = Counter()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        os.chmod(path, 0o600)
        self.listener.listen()
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)
        self.accepting.join()
        self.wait()

    def wait(self) -> None:
        """Until every process that called is gone and what it left is taken back."""
        with self.starting:
            threads = list(self.threads)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
            with self.starting:
                self.threads.append(thread)
                thread.start()

    def _serve(self, link: socket.socket) -> None:
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process = _CREDENTIALS.unpack(raw)[0]
        peer = Peer(process)
        self.links[process] += 1
        try:
            with link:
                while True:
                    words, data, _ = _receive(link)
                    self._answer(link, peer, words, bytearray(data))
        except (EOFError, OSError):
            pass
        finally:
            self.links[process] -= 1
            self._end(peer)

    def _end(self, peer: Peer) -> None:
        """Take back what a link had; all that its process had, where this was the last one of the process."""
        if not self.links[peer.process]:
            self.device.end_process(peer.process)
        for view in peer.views.values():
            with contextlib.suppress(OSError):
                self.device.munmap(view)
        for fd in peer.files:
            with contextlib.suppress(OSError):
                self.device.close(fd)

    def _answer(self, link: socket.socket, peer: Peer, words: dict[str, Any], data: bytearray) -> None:
        self.calls += 1
        dies = self.kill is not None and self.calls == self.kill.nth
        if dies and self.kill is not None and not self.kill.after:
            os.kill(peer.process, signal.SIGKILL)
            return
        reply: dict[str, Any] = {"errno": 0}
        fd = -1
        try:
            fd = self._perform(peer, words, data, reply)
        except OSError as error:
            reply["errno"] = error.errno or errno.EIO
        except (KeyError, TypeError, ValueError, OverflowError):
            reply["errno"] = errno.EINVAL
        if dies:
            os.kill(peer.process, signal.SIGKILL)
            return
        _send(link, reply, bytes(data), fd)

    def _perform(self, peer: Peer, words: dict[str, Any], data: bytearray, reply: dict[str, Any]) -> int:
        device, call = self.device, words["call"]
        if call in ("ioctl", "mmap", "close") and words["fd"] not in peer.files:
            raise OSError(errno.EBADF, "not an open file of this link")
        if call == "open":
            reply["fd"] = device.open(words["path"], peer.process)
            peer.files.append(reply["fd"])
        elif call == "ioctl":
            device.ioctl(words["fd"], words["request"], data)
        elif call == "mmap":
            view = device.mmap(words["fd"], words["size"], words["offset"])
            mapping = next(m for m in device.mappings if m.view is view)
            reply["mapping"], reply["size"] = id(mapping), len(view)
            peer.views[id(mapping)] = view
            return mapping.buffer.fd
        elif call == "munmap":
            device.munmap(peer.views.pop(words["mapping"]))
        elif call == "close":
            device.close(words["fd"])
            peer.files.remove(words["fd"])
        elif call == "attribute":
            reply["text"] = device.attribute(words["path"], words["name"])
        else:
            raise OSError(errno.EINVAL, "no such call")
        return -1


class RemoteMapping(memory_map.mmap):
    """A mapping of this process, with the number that the server knows it by."""

    number = 0


class RemoteBorder:
    """The border of a client in another process than the virtual device."""

    def __init__(self, path: str) -> None:
        self.wedged: set[str] = set()
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.link.connect(path)

    def _ask(self, fds: int = 0, data: bytes = b"", **words: Any) -> tuple[dict[str, Any], bytes, list[int]]:
        _send(self.link, words, data)
        try:
            reply, back, descriptors = _receive(self.link, fds)
        except EOFError:
            raise OSError(errno.ENODEV, "the virtual device is gone") from None
        if reply["errno"]:
            error = OSError(reply["errno"], os.strerror(reply["errno"]))
            error.data = back  # type: ignore[attr-defined]
            raise error
        return reply, back, descriptors

    def open(self, path: str) -> int:
        return int(self._ask(call="open", path=path)[0]["fd"])

    def ioctl(self, fd: int, request: int, argument: Any) -> None:
        room = memoryview(argument).cast("B")
        try:
            _, back, _ = self._ask(call="ioctl", fd=fd, request=request, data=bytes(room))
        except OSError as error:
            back = getattr(error, "data", b"")
            room[: len(back)] = back
            raise
        room[:] = back

    def mmap(self, fd: int, size: int, offset: int) -> Any:
        reply, _, (memory, *_) = self._ask(fds=1, call="mmap", fd=fd, size=size, offset=offset)
        try:
            mapping = RemoteMapping(memory, reply["size"])
        finally:
            os.close(memory)
        mapping.number = reply["mapping"]
        return mapping

    def munmap(self, mapping: Any) -> None:
        self._ask(call="munmap", mapping=mapping.number)
        mapping.close()

    def close(self, fd: int) -> None:
        self._ask(call="close", fd=fd)

    def attribute(self, path: str, name: str) -> str | None:
        text = self._ask(call="attribute", path=path, name=name)[0]["text"]
        return None if text is None else str(text)
