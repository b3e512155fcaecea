"""Clients in processes of their own, killed at every call: the kernel's clean-up, and what each driver makes of it."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.program import Program
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.linux import uapi
from hexane.runtime.virtual.core import PATH
from report.networks import small
from runtime.drivers import CHIPS, DRIVERS

if not sys.platform.startswith("linux"):
    pytest.skip("buffers are passed between processes as Linux does it", allow_module_level=True)

from runtime.remote_device import Kill, RemoteBorder, Server

INPUT = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float16)


@cache
def _program(chip: str) -> tuple[Program, np.ndarray]:
    program = hexane.compile(small(), chip=chip)
    return program, program.run({"x": INPUT})["out"]


@contextlib.contextmanager
def _served(flavour: str, kill: Kill | None = None) -> Iterator[tuple[Any, Server, str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "device")
        device = DRIVERS[flavour](shared=True)
        with Server(device, path, kill) as server:
            yield device, server, path


def _child(path: str, chip: str, runs: int) -> int:
    """A process that runs the program and compares; its exit status, or the negative number of its signal."""
    program, wanted = _program(chip)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with program.on(LinuxEngine(PATH, RemoteBorder(path))) as session:
                good = all(np.array_equal(session.run({"x": INPUT})["out"], wanted) for _ in range(runs))
            status = 0 if good else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, how = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(how)


@pytest.mark.parametrize("flavour", CHIPS)
def test_a_client_in_another_process(flavour: str) -> None:
    with _served(flavour) as (device, server, path):
        for _ in range(2):
            assert _child(path, CHIPS[flavour], runs=2) == 0
        server.wait()
        assert device.left_behind() == [] and device.problems == [], device.problems


def _calls(flavour: str) -> int:
    with _served(flavour) as (_, server, path):
        assert _child(path, CHIPS[flavour], runs=1) == 0
        server.wait()
        return server.calls


@pytest.mark.parametrize("flavour", ["eiln", "abi2"])
def test_killed_at_some_calls(flavour: str) -> None:
    _killed(flavour, range(1, _calls(flavour) + 1, 5))


@pytest.mark.slow
@pytest.mark.parametrize("flavour", CHIPS)
def test_killed_at_every_call(flavour: str) -> None:
    _killed(flavour, range(1, _calls(flavour) + 1))


def _killed(flavour: str, calls: range) -> None:
    for nth in calls:
        with _served(flavour, Kill(nth, after=nth % 2 == 0)) as (device, server, path):
            assert _child(path, CHIPS[flavour], runs=1) == -signal.SIGKILL
            server.wait()
            assert not device.files and not device.mappings and not list(device.alive())
            if flavour != "eiln":
                assert device.left_behind() == []
            server.kill = None  # the next process finds the engine in order
            assert _child(path, CHIPS[flavour], runs=1) == 0
            server.wait()
            if flavour == "eiln":  # the first driver loses what a killed process had, and says so here
                assert all("until the module is reloaded" in line for line in device.left_behind())
            else:
                assert device.left_behind() == []


def test_the_first_driver_leaks_what_a_killed_process_had() -> None:
    with _served("eiln", Kill(8)) as (device, server, path):
        assert _child(path, "M1", runs=1) == -signal.SIGKILL
        server.wait()
        assert device.leaked and device.space.used


def test_pointers_are_read_out_of_the_caller() -> None:
    with _served("abi2") as (device, server, path):
        assert _child(path, "M2 Max", runs=1) == 0
        server.wait()
        assert device.faults.calls["PROG_LOAD"] == 1 and len(device.programs) == 1
        assert _child(path, "M2 Max", runs=1) == 0
        server.wait()
        assert device.faults.calls["PROG_LOAD"] == 1, "the second process finds the program by its digest"
        assert device.faults.calls["PROG_LOOKUP"] == 2


def _in_child(work: Any) -> int:
    """A function in a process of its own; 0 where it ended."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _opened(path: str) -> tuple[RemoteBorder, int, uapi.BoInit, Any]:
    border = RemoteBorder(path)
    fd, request = border.open(PATH), uapi.BoInit(size=0x4000)
    border.ioctl(fd, uapi.BO_INIT, request)
    return border, fd, request, border.mmap(fd, 0x4000, request.offset)


MALFORMED = [b"{{{{", b"[1]", b"{}", b'{"call": "munmap", "mapping": 7}', b'{"call": "ioctl", "fd": "x"}', b"7" * 9,
             b'{"call": "open", "path": 3}', b"[" * 60_000]  # fmt: skip


@pytest.mark.parametrize("words", MALFORMED)
def test_a_message_that_is_no_request_leaves_nothing(words: bytes) -> None:
    with _served("omarchy") as (device, server, path):
        head = struct.pack("<II", len(words), 0)
        assert _in_child(lambda: _opened(path)[0].link.sendall(head + words)) == 0
        server.wait()
        assert device.left_behind() == []
        assert _child(path, CHIPS["omarchy"], runs=1) == 0


def test_files_and_memory_are_a_process_s_own() -> None:
    with _served("omarchy") as (device, server, path):
        border, fd, request, view = _opened(path)
        view[:4] = b"MINE"
        assert os.stat(path).st_mode & 0o777 == 0o600

        def other() -> None:
            stranger = RemoteBorder(path)
            for call in (
                lambda: stranger.mmap(fd, 0x4000, request.offset),
                lambda: stranger.ioctl(fd, uapi.BO_FREE, uapi.BoFree(handle=request.handle)),
                lambda: stranger.close(fd),
            ):
                with pytest.raises(OSError, match="Bad file descriptor"):
                    call()

        assert _in_child(other) == 0
        RemoteBorder(path).link.close()  # another link of this process ends, and what the first one has stays
        buffer = next(iter(device.alive()))
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(buffer.fd, 0)
        assert bytes(view[:4]) == b"MINE" and border.open(PATH) != fd
        border.link.close()
        view.close()
        server.wait()
        assert device.left_behind() == []
    assert not os.path.exists(path)
