"""Programs of every shape through the Linux drivers' calls: many surfaces, bytes, scratch, random networks, threads."""

from __future__ import annotations

import ctypes
import errno
import mmap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hexane
from codegen.test_random_networks import Grower
from hexane.errors import UnsupportedError
from hexane.graph import Graph, GraphBuilder
from hexane.program import Program
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.linux import uapi
from hexane.runtime.linux.border import DeviceError, RealKernel
from hexane.runtime.linux.device import DriverDevice
from hexane.runtime.linux.sections import SCRATCH_ID, digest, ports_of, sections_of
from hexane.runtime.virtual.core import PATH, Identity
from hexane.runtime.virtual.linked import HardenedDriver, InTreeDriver
from hexane.runtime.virtual.sectioned import SectionedDevice
from report.networks import small
from runtime.drivers import CHIPS, driver


def _many() -> Graph:
    """Three inputs, two outputs."""
    b = GraphBuilder()
    x, y, z = (b.input(name, (1, 8, 6, 10), "fp16") for name in "xyz")
    s = b.add(x=x, y=y)
    b.output(b.mul(x=s, y=z), name="product")
    b.output(b.maximum(x=s, y=z), name="larger")
    return b.graph


def _bytes() -> Graph:
    """An input of bytes."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 10), "uint8")
    b.output(b.relu(x=b.cast(x=x, dtype="fp16")), name="y")
    return b.graph


def _truth() -> Graph:
    """A truth value in, one of two tensors out."""
    b = GraphBuilder()
    x, y, c = (b.input(n, (1, 8, 4, 4), t) for n, t in (("x", "fp16"), ("y", "fp16"), ("c", "bool")))
    b.output(b.select(cond=c, a=x, b=y), name="z")
    return b.graph


def _product() -> Graph:
    """A product of two inputs: operands are staged in scratch."""
    b = GraphBuilder()
    x, y = b.input("x", (1, 4, 16, 32), "fp16"), b.input("y", (1, 4, 32, 24), "fp16")
    b.output(b.softmax(x=b.matmul(x=x, y=y), axis=-1), name="z")
    return b.graph


def _values(program: Program, rng: np.random.Generator) -> dict[str, np.ndarray]:
    drawn = {}
    for port in program.inputs:
        if port.dtype == "bool":
            drawn[port.name] = rng.random(port.shape) > 0.5
        elif port.dtype == "uint8":
            drawn[port.name] = rng.integers(0, 255, port.shape).astype(np.uint8)
        else:
            drawn[port.name] = rng.standard_normal(port.shape).astype(np.float16)
    return drawn


def _same(program: Program, flavour: str, inputs: dict[str, np.ndarray]) -> Any:
    wanted, device = program.run(inputs), driver(flavour)
    with program.on(LinuxEngine(PATH, device)) as session:
        for _ in range(2):
            found = session.run(inputs)
            assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)
            assert all(found[name].dtype == wanted[name].dtype for name in wanted)
    assert device.problems == [] and device.left_behind() == []
    return device


@pytest.mark.parametrize("flavour", CHIPS)
@pytest.mark.parametrize("make", [_many, _bytes, _truth, _product], ids=lambda f: f.__name__.strip("_"))
def test_surfaces_of_every_kind(make: Any, flavour: str) -> None:
    program = hexane.compile(make(), chip=CHIPS[flavour])
    device = _same(program, flavour, _values(program, np.random.default_rng(0)))
    assert device.submissions >= 2


@settings(deadline=None, max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_networks(data) -> None:
    _check(data, data.draw(st.integers(1, 5)))


@pytest.mark.slow
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_many_random_networks(data) -> None:
    _check(data, data.draw(st.integers(1, 12)))


def _check(data, count: int) -> None:
    grower = Grower(data)
    for _ in range(count):
        grower.grow()
    grower.b.output(grower.b.identity(x=grower.maps[-1], name="y"))
    flavour = data.draw(st.sampled_from(list(CHIPS)))
    program = hexane.compile(grower.b.graph, chip=CHIPS[flavour])
    x = (grower.rng.standard_normal(grower.maps[0].shape) * 0.7).astype(np.float16)
    _same(program, flavour, {"x": x})


@pytest.mark.parametrize("flavour", ["omarchy", "abi2"])
def test_threads_share_a_session(flavour: str) -> None:
    program, device = hexane.compile(small(), chip=CHIPS[flavour]), driver(flavour)
    inputs = [np.random.default_rng(i).standard_normal((1, 16, 8, 8)).astype(np.float16) for i in range(12)]
    wanted = [program.run({"x": x})["out"] for x in inputs]
    with program.on(LinuxEngine(PATH, device)) as session:
        session.run({"x": inputs[0]})
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda x: session.run({"x": x})["out"], inputs * 3))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted * 3))
    assert device.left_behind() == []


def test_few_programs_stay_prepared(monkeypatch) -> None:
    from hexane.runtime.virtual import engine

    programs = [hexane.compile(make(), chip="M1") for make in (_many, _product, small)]
    for limit, kept in ((1 << 28, 3), (1, 1)):
        monkeypatch.setattr(engine, "PREPARED_BYTES", limit)
        device = driver("omarchy")
        sessions = [program.on(LinuxEngine(PATH, device)) for program in programs]
        for session, program in zip(sessions, programs):
            session.run(_values(program, np.random.default_rng(0)))
        assert len(device.engine.prepared) == kept
        for session, program in zip(sessions, programs):
            inputs = _values(program, np.random.default_rng(1))
            found, wanted = session.run(inputs), program.run(inputs)
            assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
            session.close()
        assert device.engine.prepared == [] and device.left_behind() == []


# ---- ABI 2: sections ------------------------------------------------------------------------------------------------


def test_sections_are_the_same_every_time_and_change_with_the_program() -> None:
    first, again = (hexane.compile(small(), chip="M2").images[0] for _ in range(2))
    other = hexane.compile(_many(), chip="M2").images[0]
    digests = [digest(sections_of(image, ports_of(image))) for image in (first, again, other)]
    assert digests[0] == digests[1] != digests[2] and len(digests[0]) == 32


def test_ports_of_several_outputs_and_scratch() -> None:
    ports = ports_of(hexane.compile(_many(), chip="M2").images[0])
    assert sorted(p.buffer_id for p in ports if not p.scratch) == [4, 5, 6, 7, 8]
    assert {p.label: p.kind for p in ports if not p.scratch} == {"x": 0, "y": 0, "z": 0, "product": 1, "larger": 1}
    image = hexane.compile(_product(), chip="M2").images[0]
    assert bool(image.scratch_bytes) == any(p.buffer_id == SCRATCH_ID for p in ports_of(image))


def test_equal_programs_are_one_and_sections_are_sent_once() -> None:
    program, device = hexane.compile(small(), chip="M2"), SectionedDevice()
    x = {"x": np.ones((1, 16, 8, 8), np.float16)}
    for _ in range(3):
        program.run(x, device=LinuxEngine(PATH, device))
    assert device.faults.calls["PROG_LOAD"] == 1 and device.faults.calls["PROG_LOOKUP"] == 3
    assert len(device.programs) == 1 and len(device.kept) == 6, "the firmware keeps the sections"
    assert device.left_behind() == []


def test_without_a_spare_page_the_engine_faults(monkeypatch) -> None:
    program, device = hexane.compile(small(), chip="M2"), SectionedDevice()
    monkeypatch.setattr(uapi, "SPARE_BYTES", 0)
    with pytest.raises(DeviceError, match="did not finish"):
        program.run({"x": np.ones((1, 16, 8, 8), np.float16)}, device=LinuxEngine(PATH, device))
    assert "no page is behind it" in device.problems[0]


def test_programs_of_other_generations_have_no_sections() -> None:
    for chip in ("M1", "M4"):
        with pytest.raises(UnsupportedError, match="M2 Max"):
            ports_of(hexane.compile(small(), chip=chip).images[0])


# ---- who answers ----------------------------------------------------------------------------------------------------


def test_drivers_are_told_apart() -> None:
    wanted = {"eiln": ("eiln", 1), "omarchy": ("hardened", 1), "intree": ("in-tree", 1), "abi2": ("hardened", 2),
              "intree2": ("in-tree", 2)}  # fmt: skip
    for flavour, (name, abi) in wanted.items():
        with DriverDevice(PATH, driver(flavour)) as opened:
            assert (opened.driver.flavour, opened.driver.abi) == (name, abi)
            assert opened.driver.generation == ("h13" if abi == 1 else "h14") and str(opened.driver)


@pytest.mark.parametrize(
    "identity",
    [
        Identity("", (3, 0, 0), "later"),
        Identity("", (1, 0, 0), "another", name="rocket"),
        Identity("", (1, 0, 0), "", name="a"),
        Identity("", (1, 0, 0), "", name="ane" * 200),
        Identity("", (1, 0, 0), "", name=""),
    ],
)
def test_another_driver_is_refused(identity: Identity) -> None:
    device = HardenedDriver()
    device.identity = identity
    with pytest.raises(UnsupportedError, match="hexane doctor"):
        DriverDevice(PATH, device)
    assert device.left_behind() == []


def test_a_driver_with_other_structures_is_refused() -> None:
    class Newer(InTreeDriver):
        def _caps(self, file: Any, asked: uapi.GetCaps, fault: str) -> None:
            super()._caps(file, asked, fault)
            asked.exec_io_size = 40

    device = Newer()
    with pytest.raises(UnsupportedError, match="update hexane"):
        DriverDevice(PATH, device)
    assert device.left_behind() == []


@pytest.mark.parametrize("flavour", CHIPS)
def test_a_device_that_is_pulled(flavour: str) -> None:
    program, device = hexane.compile(small(), chip=CHIPS[flavour]), driver(flavour)
    x = {"x": np.ones((1, 16, 8, 8), np.float16)}
    with program.on(LinuxEngine(PATH, device)) as session:
        session.run(x)
        device.removed = True
        with pytest.raises(DeviceError) as caught:
            session.run(x)
        assert caught.value.errno == errno.ENODEV
    assert not device.files and not device.mappings
    with pytest.raises(DeviceError, match="nothing is tried again"):
        program.run(x, device=LinuxEngine(PATH, device))


# ---- the real border ------------------------------------------------------------------------------------------------


def test_the_real_border_on_files_that_are_no_engine(tmp_path: Path) -> None:
    for path, words in (("/dev/null", "does not say who it is"), (str(tmp_path / "none"), "cannot be opened")):
        with pytest.raises(DeviceError, match=words) as caught:
            DriverDevice(path)
        assert caught.value.errno in (errno.ENOTTY, errno.ENOENT, errno.EINVAL)


def test_the_real_border_maps_and_unmaps(tmp_path: Path) -> None:
    border, file = RealKernel(), tmp_path / "buffer"
    file.write_bytes(bytes(2 * mmap.ALLOCATIONGRANULARITY))
    fd = border.open(str(file))
    mapping = border.mmap(fd, mmap.ALLOCATIONGRANULARITY, mmap.ALLOCATIONGRANULARITY)
    mapping[0] = 7
    border.munmap(mapping)
    border.close(fd)
    assert file.read_bytes()[mmap.ALLOCATIONGRANULARITY] == 7
    assert border.attribute("/dev/accel/accel99", "wedged") is None
    with pytest.raises(OSError):
        border.ioctl(fd, uapi.VERSION, uapi.Version())
    assert ctypes.sizeof(uapi.Version) == 64
