"""Clients in processes of their own, killed at every call: the kernel's clean-up, and what each driver makes of it."""

from __future__ import annotations

import contextlib
import os
import signal
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
from hexane.runtime.virtual.core import PATH
from report.networks import small
from runtime.drivers import CHIPS, DRIVERS

if not sys.platform.startswith("linux"):
    pytest.skip("buffers are passed between processes as Linux does it", allow_module_level=True)

from hexane.runtime.virtual.remote import Kill, RemoteBorder, Server

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
