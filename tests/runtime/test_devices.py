"""Programs through the driver's calls, answered by the virtual engine; and what the driver refuses."""

from __future__ import annotations

import errno
import struct

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError, UsageError
from hexane.runtime import drm
from hexane.runtime.devices import DEVICES
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.virtual import PATH, VirtualDevice
from report.networks import command, mixed, small


def _inputs(shape=(1, 16, 8, 8)) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float16)}


def test_the_virtual_engine_gives_the_emulator_s_bits() -> None:
    program = hexane.compile(small())
    assert np.array_equal(program.run(_inputs(), device="virtual")["out"], program.run(_inputs())["out"])


def test_a_program_with_a_host_part_and_nothing_left_behind() -> None:
    program, device = hexane.compile(mixed()), VirtualDevice()
    x = _inputs((1, 4, 8, 8))
    assert np.array_equal(program.run(x, device=LinuxEngine(PATH, device))["out"], program.run(x)["out"])
    assert device.submissions == 2 and device.files == {} and device.problems == []


def test_devices_that_cannot_be() -> None:
    program = hexane.compile(small())
    with pytest.raises(UnsupportedError, match="its own compiler"):
        program.run(_inputs(), device="macos")
    with pytest.raises(UsageError, match="emulator, linux"):
        program.run(_inputs(), device="tpu")
    with pytest.raises(drm.DeviceError, match="hexane doctor"):
        program.run(_inputs(), device=LinuxEngine("/dev/accel/accel7", VirtualDevice()))
    with pytest.raises(UnsupportedError, match="ABI 1"):
        program.run(_inputs(), device=LinuxEngine(PATH, VirtualDevice(version=(2, 0, 0))))


def test_a_program_that_hangs_ends_in_a_timeout_and_wedges_the_engine() -> None:
    image = hexane.compile(small()).images[0]
    device = VirtualDevice()
    with drm.Device(PATH, device) as opened:
        text = opened.allocate(0x8000)
        first = opened.allocate(0x4000)
        raw = image.text()
        text.bytes[: len(raw)] = raw
        size = image.tasks[0].size
        first.bytes[:size] = raw[:size]
        request = {"text_bytes": len(raw), "tasks": len(image.tasks), "first_bytes": size}
        with pytest.raises(drm.DeviceError, match="do not try again") as caught:
            opened.submit(**request, channels={0: text}, first=first)
        assert caught.value.errno == errno.ETIMEDOUT and "network id" in device.problems[0]
        with pytest.raises(drm.DeviceError, match="wedged"):
            opened.submit(**request, channels={0: text}, first=first)


@pytest.mark.parametrize(
    ("request_number", "form", "values"),
    [
        (drm.BO_INIT, drm.INIT_FORM, (0, 1, 0x4000, 0)),
        (drm.BO_INIT, drm.INIT_FORM, (0, 0, 0, 0)),
        (drm.BO_FREE, drm.FREE_FORM, (7, 0)),
        (drm.SUBMIT, drm.SUBMIT_FORM, (0x200, 1, 0x1F8, *[0] * 32, 1, 0)),
        (drm.SUBMIT, drm.SUBMIT_FORM, (0x200, 1, 0x1F8, 1, 1, *[0] * 30, 1, 0)),
        (drm.SUBMIT, drm.SUBMIT_FORM, (0x200, 1, 0x1FA, 1, 0, *[0] * 30, 1, 0)),
        (drm.SUBMIT, drm.SUBMIT_FORM, (0x4000, 1, 0x1F8, 1, 0, *[0] * 30, 1, 0)),
        (drm.SUBMIT, drm.SUBMIT_FORM, (0x200, 1, 0x1F8, 1, 0, 9, *[0] * 29, 1, 0)),
        (0xC0206440, "<32x", ()),
    ],
)
def test_what_the_kernel_refuses(request_number: int, form: str, values: tuple[int, ...]) -> None:
    device = VirtualDevice()
    fd = device.open(PATH)
    device.ioctl(fd, drm.BO_INIT, bytearray(struct.pack(drm.INIT_FORM, 0, 0, 0x4000, 0)))
    with pytest.raises(OSError) as caught:
        device.ioctl(fd, request_number, bytearray(struct.pack(form, *values)))
    assert caught.value.errno == errno.EINVAL


def test_sizes_and_numbers_of_the_requests() -> None:
    forms = {drm.VERSION: drm.VERSION_FORM, drm.BO_INIT: drm.INIT_FORM, drm.BO_FREE: drm.FREE_FORM,
             drm.SUBMIT: drm.SUBMIT_FORM}  # fmt: skip
    for number, form in forms.items():
        assert struct.calcsize(form) == number >> 16 & 0x3FFF


def test_the_address_space_ends() -> None:
    device = VirtualDevice()
    with drm.Device(PATH, device) as opened, pytest.raises(drm.DeviceError) as caught:
        opened.allocate(0xE000_0000)
    assert caught.value.errno == errno.ENOSPC


def test_every_device_says_what_it_is_and_why_it_is_not_here() -> None:
    rows = {row.name: row for row in hexane.devices()}
    assert set(rows) == set(DEVICES) and rows["emulator"].available and rows["virtual"].available
    assert all(row.runs for row in rows.values())
    assert not rows["linux"].available and rows["linux"].reason
    assert {"omarchy"} <= set(rows["virtual"].flavours)
    assert all(row.as_dict()["available"] is row.available for row in rows.values())


def test_flavours_are_found_by_name() -> None:
    program = hexane.compile(small())
    wanted = program.run(_inputs())["out"]
    assert np.array_equal(program.run(_inputs(), device="virtual:omarchy")["out"], wanted)
    with pytest.raises(UsageError, match="omarchy"):
        program.run(_inputs(), device="virtual:none")


def test_the_command_runs_on_a_device(tmp_path) -> None:
    small().save(tmp_path / "small.mil")
    arguments = ("run", tmp_path / "small.mil", "--random", 1, "--json", "-o")
    here = command(*arguments, tmp_path / "here.npz")
    there = command(*arguments, tmp_path / "there.npz", "--device", "virtual:omarchy")
    assert (here["device"], there["device"]) == ("emulator", "virtual:omarchy")
    assert there["verdict"] == here["verdict"] and there["hypotheses"] is None
    with np.load(tmp_path / "here.npz") as a, np.load(tmp_path / "there.npz") as b:
        assert np.array_equal(a["out"], b["out"])
    with pytest.raises(UsageError, match="leave out --device"):
        command(*arguments, tmp_path / "no.npz", "--device", "virtual", "--level", "graph")
