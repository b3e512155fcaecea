"""Devices by name: what they say of themselves, programs on them, sessions, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError, UsageError
from hexane.runtime.devices import DEVICES
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.devices.virtual import FLAVOURS, open_device
from hexane.runtime.linux.border import DeviceError
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.linked import HardenedDriver
from hexane.runtime.virtual.sectioned import SectionedDevice
from report.networks import command, mixed, small

CHIPS = {"eiln": "M1", "omarchy": "M1", "intree": "M1", "abi2": "M2 Max", "intree2": "M2 Max"}
"""The virtual Linux drivers, each with a chip whose programs it takes."""


def _inputs(shape=(1, 16, 8, 8), seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float16)}


@pytest.mark.parametrize("flavour", CHIPS)
def test_a_virtual_engine_gives_the_emulator_s_bits(flavour: str) -> None:
    program = hexane.compile(small(), chip=CHIPS[flavour])
    outputs = program.run(_inputs(), device=f"virtual:{flavour}")
    assert np.array_equal(outputs["out"], program.run(_inputs())["out"])


@pytest.mark.parametrize("flavour", CHIPS)
def test_a_session_keeps_program_and_buffers(flavour: str) -> None:
    program = hexane.compile(mixed(), chip=CHIPS[flavour])
    device = open_device(flavour)
    calls = device.border.faults.calls
    with program.on(device) as session:
        for seed in range(4):
            x = _inputs((1, 4, 8, 8), seed)
            assert np.array_equal(session.run(x)["out"], program.run(x)["out"])
        loaded = calls["BO_INIT"]
        session.run(_inputs((1, 4, 8, 8)))
        assert calls["BO_INIT"] == loaded and calls["open"] == 2 == len(program.images)
        assert calls["SUBMIT"] + calls["EXEC"] == 10
    assert device.border.left_behind() == [] and device.border.problems == []


@pytest.mark.parametrize("flavour", CHIPS)
def test_several_programs_at_once(flavour: str) -> None:
    first, second = (hexane.compile(make(), chip=CHIPS[flavour]) for make in (small, mixed))
    device = open_device(flavour)
    x, y = _inputs(), _inputs((1, 4, 8, 8))
    with first.on(device) as one, second.on(device) as other, first.on(device) as again:
        for _ in range(2):
            assert np.array_equal(one.run(x)["out"], first.run(x)["out"])
            assert np.array_equal(other.run(y)["out"], second.run(y)["out"])
            assert np.array_equal(again.run(x)["out"], first.run(x)["out"])
    assert device.border.left_behind() == []


@pytest.mark.parametrize("flavour", CHIPS)
def test_a_session_that_nobody_closed_leaves_nothing(flavour: str) -> None:
    import gc

    program = hexane.compile(mixed(), chip=CHIPS[flavour])
    device = open_device(flavour)
    session = program.on(device)
    session.run(_inputs((1, 4, 8, 8)))
    assert device.border.files
    del session
    gc.collect()
    assert device.border.left_behind() == []


def test_a_result_is_the_caller_s() -> None:
    program = hexane.compile(small())
    with program.on("virtual:eiln") as session:
        kept = session.run(_inputs())["out"]
        copy = kept.copy()
        session.run(_inputs(seed=1))
        assert np.array_equal(kept, copy)
    assert np.array_equal(kept, copy)


def test_every_device_says_what_it_is_and_why_it_is_not_here() -> None:
    rows = {row.name: row for row in hexane.devices()}
    assert set(rows) == set(DEVICES) and rows["emulator"].available and rows["virtual"].available
    assert all(row.runs for row in rows.values())
    assert not rows["linux"].available and rows["linux"].reason
    assert set(CHIPS) <= set(rows["virtual"].flavours) == set(FLAVOURS)
    assert all(row.as_dict()["available"] is row.available for row in rows.values())


def test_devices_that_cannot_be() -> None:
    program = hexane.compile(small())
    with pytest.raises(UsageError, match="emulator, linux"):
        program.run(_inputs(), device="tpu")
    with pytest.raises(UsageError, match="omarchy"):
        program.run(_inputs(), device="virtual:none")
    with pytest.raises(UsageError, match="no flavour"):
        program.run(_inputs(), device="linux:eiln")
    with pytest.raises(UnsupportedError, match="hexane doctor"):
        program.run(_inputs(), device="linux")
    with pytest.raises(DeviceError, match="hexane doctor"):
        program.run(_inputs(), device=LinuxEngine("/dev/accel/accel7", HardenedDriver()))


def test_a_program_of_another_generation_is_told_for_which_chip_to_compile() -> None:
    m1, m2 = (hexane.compile(small(), chip=chip) for chip in ("M1", "M2"))
    for program, border, chip in ((m1, SectionedDevice(), "M2 Max"), (m2, HardenedDriver(), "M1")):
        with pytest.raises(UnsupportedError, match=f"--chip '{chip}'"):
            program.run(_inputs(), device=LinuxEngine(PATH, border))
        assert border.left_behind() == []


@pytest.mark.parametrize("flavour", ["omarchy", "abi2"])
def test_the_command_runs_on_a_device(tmp_path, flavour: str) -> None:
    small().save(tmp_path / "small.mil")
    arguments = ("run", tmp_path / "small.mil", "--random", 1, "--json", "-o")
    here = command(*arguments, tmp_path / "here.npz", "--chip", CHIPS[flavour])
    there = command(*arguments, tmp_path / "there.npz", "--device", f"virtual:{flavour}")
    assert (here["device"], there["device"]) == ("emulator", f"virtual:{flavour}")
    assert there["chip"] == CHIPS[flavour]
    assert there["verdict"] == here["verdict"] and there["hypotheses"] is None
    with np.load(tmp_path / "here.npz") as a, np.load(tmp_path / "there.npz") as b:
        assert np.array_equal(a["out"], b["out"])
    report = command(*arguments[:-1], "--device", f"virtual:{flavour}", "--report", tmp_path / "report")
    assert report["emulator_bits"] is True and (tmp_path / "report" / "index.html").exists()
    with pytest.raises(UsageError, match="leave out --device"):
        command(*arguments, tmp_path / "no.npz", "--device", "virtual", "--level", "graph")


def test_a_compiled_file_runs_on_a_device(tmp_path) -> None:
    for chip, flavour, suffix in (("M1", "eiln", "anec"), ("M2", "abi2", "anec"), ("M1", "intree", "hwx")):
        program = hexane.compile(small(), chip=chip)
        path = tmp_path / f"small.{suffix}"
        program.save(path)
        found = command("run", path, "--random", 1, "--json", "--device", f"virtual:{flavour}")
        assert found["device"] == f"virtual:{flavour}"
        loaded = hexane.load_program(path)
        x = {loaded.inputs[0].name: _inputs()["x"].reshape(loaded.inputs[0].shape)}
        mine, theirs = loaded.run(x), loaded.run(x, device=f"virtual:{flavour}")
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
