"""A second opinion on the drivers' interface: a client in C, written from the documented layout and not from ours.

Its compiler asserts every size and offset. Skipped, visibly, where there is no C compiler.
"""

from __future__ import annotations

import ctypes
import errno
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.runtime.linux import uapi
from hexane.runtime.linux.sections import SECTION_IDS, ports_of, sections_of
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.faults import TIMEOUT, WEDGE, PlannedFault
from report.networks import small
from runtime.drivers import CHIPS, driver

SOURCE = Path(__file__).parent / "c" / "client.c"
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
IOCTL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
MMAP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)
MUNMAP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)
CLOSE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


class Calls(ctypes.Structure):
    _fields_ = [("open", OPEN), ("ioctl", IOCTL), ("mmap", MMAP), ("munmap", MUNMAP), ("close", CLOSE)]


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc, clang) on this machine")
    library = tmp_path_factory.mktemp("c") / "client.so"
    subprocess.run([compiler, *FLAGS, "-o", str(library), str(SOURCE)], check=True)
    return ctypes.CDLL(str(library))


class Table:
    """The five calls of a virtual device as C functions; errors come back as negative numbers."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.views: dict[int, tuple[Any, Any]] = {}
        self.calls = Calls(
            OPEN(lambda path: self._answer(lambda: device.open(path.decode()))),
            IOCTL(lambda fd, request, at: self._answer(lambda: self._ioctl(fd, request, at))),
            MMAP(self._mmap),
            MUNMAP(lambda at, size: self._answer(lambda: self._munmap(at))),
            CLOSE(lambda fd: self._answer(lambda: device.close(fd))),
        )

    def _answer(self, call: Any) -> int:
        try:
            return call() or 0
        except OSError as error:
            return -(error.errno or errno.EIO)

    def _ioctl(self, fd: int, request: int, at: int) -> None:
        self.device.ioctl(fd, request, (ctypes.c_char * uapi.request_size(request)).from_address(at))

    def _mmap(self, fd: int, size: int, offset: int) -> int | None:
        try:
            view = self.device.mmap(fd, size, offset)
        except OSError:
            return None
        first = ctypes.c_char.from_buffer(view)
        self.views[ctypes.addressof(first)] = (view, first)
        return ctypes.addressof(first)

    def _munmap(self, at: int) -> None:
        view, first = self.views.pop(at)
        del first
        self.device.munmap(view)


def _with_scratch() -> Graph:
    """A network whose program has constants and, on both generations, several tasks."""
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, 16), "fp16")
    weight = (rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float16)
    y = b.conv(x=x, weight=weight, strides=(1, 1), pad_type="same", dilations=(1, 1), groups=1)
    b.output(b.softmax(x=b.tanh(x=y), axis=1, name="out"))
    return b.graph


def _two_inputs() -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", (1, 8, 4, 4), "fp16"), b.input("y", (1, 8, 4, 4), "fp16")
    b.output(b.sub(x=x, y=y, name="out"))
    return b.graph


NETWORKS = {"small": small, "softmax": _with_scratch, "two inputs": _two_inputs}


def _laid_out(image: Any, arrays: dict[str, np.ndarray]) -> bytes:
    """Inputs as they lie in the tiles of their surfaces, in the order of a package's channels."""
    data = b""
    for surface in sorted(image.inputs, key=lambda s: s.channel):
        room = bytearray(-(-surface.nbytes // uapi.PAGE) * uapi.PAGE)
        view = np.ndarray(surface.shape, np.float16, room, 0, surface.strides)
        view[...] = arrays[surface.label].reshape(surface.shape)
        data += bytes(room)
    return data


def _package(name: str, flavour: str) -> tuple[Any, Any, dict[str, np.ndarray], np.ndarray]:
    program = hexane.compile(NETWORKS[name](), chip=CHIPS[flavour])
    assert len(program.segments) == 1
    rng = np.random.default_rng(5)
    inputs = {p.name: rng.standard_normal(p.shape).astype(np.float16) for p in program.inputs}
    return program, program.images[0], inputs, program.run(inputs)["out"]


def _run(client: Any, device: Any, image: Any, inputs: dict[str, np.ndarray], times: int = 1) -> tuple[int, bytes]:
    from hexane.image import to_anec

    package = to_anec(image)
    table = Table(device)
    given = _laid_out(image, inputs)
    (surface,) = package.outputs
    out = ctypes.create_string_buffer(-(-surface.nbytes // uapi.PAGE) * uapi.PAGE)
    result = client.client_run(ctypes.byref(table.calls), PATH.encode(), package.parts.write(), given, out, times)
    assert not table.views or device.faults.happened
    return result, out.raw


@pytest.mark.parametrize("flavour", CHIPS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_c_client_gets_the_emulator_s_bits(client, name: str, flavour: str) -> None:
    _, image, inputs, wanted = _package(name, flavour)
    device = driver(flavour)
    result, out = _run(client, device, image, inputs, times=2)
    assert result == 0, device.problems
    (surface,) = image.outputs
    found = np.ndarray(surface.shape, np.float16, bytearray(out), 0, surface.strides)
    assert np.array_equal(found.reshape(wanted.shape), wanted)
    assert device.left_behind() == [] and device.problems == []


@pytest.mark.parametrize("flavour", ["abi2", "intree2"])
@pytest.mark.parametrize("name", NETWORKS)
def test_sections_of_the_c_client_are_ours(client, name: str, flavour: str) -> None:
    from hexane.image import to_anec

    _, image, _, _ = _package(name, flavour)
    package = to_anec(image)
    made = ctypes.create_string_buffer(0x2000 + package.parts.header.content_size)
    size, ids, sizes = (ctypes.c_uint64 * 6)(), (ctypes.c_uint32 * 32)(), (ctypes.c_uint64 * 32)()
    count = client.client_sections(package.parts.write(), made, size, ids, sizes)
    reread = hexane.open_image(package.parts.write())
    ports = ports_of(reread)
    assert [(p.buffer_id, p.size) for p in ports] == list(zip(ids, sizes))[:count]
    at = 0
    for number, content in zip(SECTION_IDS, size):
        assert sections_of(reread, ports)[number] == made.raw[at : at + content], f"section {number}"
        at += content


@pytest.mark.parametrize("flavour", CHIPS)
def test_errors_reach_the_c_client_and_it_leaves_nothing(client, flavour: str) -> None:
    _, image, inputs, _ = _package("small", flavour)
    run = "EXEC" if flavour in ("abi2", "intree2") else "SUBMIT"
    faults = [
        PlannedFault("BO_INIT", 2, errno.ENOSPC),
        PlannedFault(run, 1, errno.EIO),
        PlannedFault(run, 1, TIMEOUT),
        PlannedFault("mmap", 3, errno.ENOMEM),
    ]
    for fault in faults:
        device = driver(flavour, fault)
        result, _ = _run(client, device, image, inputs)
        assert result == (-errno.ETIMEDOUT if fault.what == TIMEOUT else -int(fault.what))
        assert not device.files and not device.mappings
        assert device.stopped or device.left_behind() == []


PATTERNS = (
    uapi.Version, uapi.GemClose, uapi.GetCaps, uapi.BoInit, uapi.BoFree, uapi.Submit, uapi.SectionRecord,
    uapi.GenericBind, uapi.ProgLoad, uapi.ProcCreate, uapi.ExecIo, uapi.Exec, uapi.ProgLookup,
)  # fmt: skip


@pytest.mark.parametrize("which", range(len(PATTERNS)), ids=lambda i: PATTERNS[i].__name__)
def test_structures_byte_for_byte(client, which: int) -> None:
    theirs = ctypes.create_string_buffer(256)
    size = client.client_pattern(which, theirs)
    ours = PATTERNS[which]()
    for number, (name, kind) in enumerate(ours._fields_, 1):
        if hasattr(kind, "_length_"):
            for index in range(kind._length_):
                getattr(ours, name)[index] = 100 + index
        else:
            setattr(ours, name, number)
    assert size == ctypes.sizeof(ours) and bytes(ours) == theirs.raw[:size]


def test_every_structure_is_compared() -> None:
    assert {*uapi.STRUCTURES.values(), uapi.SectionRecord, uapi.GenericBind, uapi.ExecIo} == set(PATTERNS)


def _random_runs(client: Any, seeds: range) -> None:
    """The C client with one random fault each time: an error number, never a crash, nothing left behind."""
    packages = {flavour: _package("small", flavour)[1:] for flavour in CHIPS}
    for seed in seeds:
        rng = random.Random(seed)
        flavour = rng.choice(list(CHIPS))
        image, inputs, wanted = packages[flavour]
        what = rng.choice((errno.ENOSPC, errno.ENOMEM, errno.EIO, errno.ENODEV, errno.EINVAL, TIMEOUT, WEDGE))
        device = driver(flavour, PlannedFault("*", rng.randrange(1, 60), what))
        result, out = _run(client, device, image, inputs, times=rng.randrange(1, 3))
        assert result <= 0 and not device.files
        if result == 0 and not device.faults.happened:
            (surface,) = image.outputs
            found = np.ndarray(surface.shape, np.float16, bytearray(out), 0, surface.strides)
            assert np.array_equal(found.reshape(wanted.shape), wanted)
            assert device.left_behind() == []
        calls_lost = {"munmap", "BO_FREE"}  # the fault was in giving back
        if not device.stopped and flavour != "eiln" and not any(f.call in calls_lost for f in device.faults.happened):
            assert not list(device.alive()) or device.mappings


def test_random_faults(client) -> None:
    _random_runs(client, range(40))


@pytest.mark.slow
def test_many_random_faults(client) -> None:
    _random_runs(client, range(1000, 4000))
