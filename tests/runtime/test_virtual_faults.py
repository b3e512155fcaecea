"""Something goes wrong at every call of a session: a clear error, no second try, nothing left behind."""

from __future__ import annotations

import errno
from functools import cache

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError
from hexane.program import Program
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.linux.border import DeviceError
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.faults import GARBAGE, SHORT, TIMEOUT, WEDGE, PlannedFault
from report.networks import mixed, small
from runtime.drivers import CHIPS, driver

INPUT = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float16)
NUMBERS = (errno.ENOSPC, errno.ENOMEM, errno.EIO, errno.ETIMEDOUT, errno.EINVAL, errno.ENODEV)


@cache
def _program(chip: str) -> Program:
    return hexane.compile(small(), chip=chip)


def _session(device, flavour: str, runs: int = 2) -> list[np.ndarray]:
    program = _program(CHIPS[flavour])
    with program.on(LinuxEngine(PATH, device)) as session:
        return [session.run({"x": INPUT})["out"] for _ in range(runs)]


@cache
def _wanted(flavour: str) -> np.ndarray:
    return _program(CHIPS[flavour]).run({"x": INPUT})["out"]


@cache
def _calls(flavour: str) -> dict[str, int]:
    device = driver(flavour)
    _session(device, flavour)
    return dict(device.faults.calls)


def _check(flavour: str, fault: PlannedFault) -> bool:
    """Run with one fault; whether an error came. What is left is the driver's own business, never a client's."""
    device = driver(flavour, fault)
    try:
        outputs = _session(device, flavour)
    except HexaneError as error:
        assert str(error) and PATH in str(error)
        failed = True
    else:
        assert all(np.array_equal(found, _wanted(flavour)) for found in outputs)
        failed = False
    assert device.faults.happened == [fault]
    assert not device.files, "the file is closed"
    excused = device.faults.happened[0].what == WEDGE or device.stopped or flavour == "eiln"
    if "munmap" not in (fault.call, _name_of(flavour, fault)):
        assert not device.mappings
        assert excused or device.left_behind() == []
    return failed


@cache
def _order(flavour: str) -> tuple[str, ...]:
    """The calls of a session, in order."""
    device, order = driver(flavour), []
    enter = device.faults.enter
    device.faults.enter = lambda call: order.append(call) or enter(call)  # type: ignore[func-returns-value]
    _session(device, flavour)
    return tuple(order)


def _name_of(flavour: str, fault: PlannedFault) -> str:
    order = _order(flavour)
    return order[fault.nth - 1] if fault.call == "*" and fault.nth <= len(order) else fault.call


def _numbers() -> list:
    """Every number with every driver; a few of them here, all in the slow suite."""
    quick = {("omarchy", errno.ENOSPC), ("omarchy", errno.ENODEV), ("abi2", errno.EIO), ("abi2", errno.EINVAL),
             ("eiln", errno.ETIMEDOUT), ("intree2", errno.ENOMEM)}  # fmt: skip
    return [
        pytest.param(flavour, number, id=f"{flavour}-{errno.errorcode[number]}",
                     marks=[] if (flavour, number) in quick else [pytest.mark.slow])
        for flavour in CHIPS for number in NUMBERS
    ]  # fmt: skip


@pytest.mark.parametrize(("flavour", "number"), _numbers())
def test_every_call_fails_once(flavour: str, number: int) -> None:
    order = _order(flavour)
    for nth, call in enumerate(order, 1):
        failed = _check(flavour, PlannedFault("*", nth, number))
        # a request that older drivers lack may be refused, and a driver that gave the engine up keeps its buffers
        harmless = call in ("GET_CAPS", "PROG_LOOKUP") and number == errno.EINVAL
        harmless |= call == "BO_FREE" and number in (errno.ENODEV, errno.ETIMEDOUT)
        assert failed != harmless, (call, nth)


@pytest.mark.parametrize("flavour", CHIPS)
def test_a_timeout_is_final(flavour: str) -> None:
    run = "EXEC" if flavour in ("abi2", "intree2") else "SUBMIT"
    device = driver(flavour, PlannedFault(run, 2, TIMEOUT))
    program = _program(CHIPS[flavour])
    with program.on(LinuxEngine(PATH, device)) as session:
        assert np.array_equal(session.run({"x": INPUT})["out"], _wanted(flavour))
        with pytest.raises(DeviceError, match="did not finish") as caught:
            session.run({"x": INPUT})
        assert caught.value.errno == errno.ETIMEDOUT
        with pytest.raises(DeviceError, match="nothing is tried again"):
            session.run({"x": INPUT})
    with pytest.raises(DeviceError, match="nothing is tried again"):
        program.run({"x": INPUT}, device=LinuxEngine(PATH, device))
    assert device.faults.calls[run] == 2, "no second try reaches the driver"
    assert not device.files and not device.mappings


@pytest.mark.parametrize("flavour", ["abi2", "intree2"])
@pytest.mark.parametrize("call", ["PROG_LOAD", "PROC_CREATE"])
def test_a_firmware_that_does_not_answer_is_final(flavour: str, call: str) -> None:
    device = driver(flavour, PlannedFault(call, 1, TIMEOUT))
    with pytest.raises(DeviceError) as caught:
        _session(device, flavour)
    assert caught.value.errno == errno.ETIMEDOUT and PATH in device.wedged
    assert device.faults.calls["EXEC"] == 0 and not device.files and not device.mappings


@pytest.mark.parametrize("flavour", CHIPS)
def test_wedged_before_a_call(flavour: str) -> None:
    for nth in range(1, len(_order(flavour)) + 1):
        _check(flavour, PlannedFault("*", nth, WEDGE))


@pytest.mark.parametrize("flavour", CHIPS)
def test_short_mappings_and_other_devices(flavour: str) -> None:
    for nth in range(1, _calls(flavour)["mmap"] + 1):
        assert _check(flavour, PlannedFault("mmap", nth, SHORT))
    assert _check(flavour, PlannedFault("VERSION", 1, GARBAGE)) or _check(flavour, PlannedFault("VERSION", 2, GARBAGE))


@pytest.mark.parametrize("flavour", CHIPS)
def test_two_things_at_once_say_the_first(flavour: str) -> None:
    run = "EXEC" if flavour in ("abi2", "intree2") else "SUBMIT"
    device = driver(flavour, PlannedFault(run, 1, errno.EIO), PlannedFault("BO_FREE", 1, errno.EINVAL))
    with pytest.raises(DeviceError) as caught:
        _session(device, flavour)
    assert caught.value.errno in (errno.EIO, errno.EINVAL)
    chain = []
    error: BaseException | None = caught.value
    while error is not None:
        chain.append(getattr(error, "errno", None))
        error = error.__context__
    assert errno.EIO in chain and not device.files and not device.mappings


def test_no_more_programs_between_two_boots(monkeypatch) -> None:
    from hexane.runtime.linux import uapi

    device = driver("abi2")
    monkeypatch.setattr(uapi, "MOST_PROGRAMS", 0)
    with pytest.raises(DeviceError, match="250 programs"):
        _session(device, "abi2")
    assert device.left_behind() == []


def test_a_program_that_the_model_takes_too_long_for_times_out() -> None:
    device = driver("omarchy")
    device.engine.limit_ns = 1
    with pytest.raises(DeviceError, match="did not finish"):
        _session(device, "omarchy")
    assert "modelled" in device.problems[0]


@pytest.mark.parametrize("flavour", ["omarchy", "abi2"])
def test_a_segment_that_does_not_unload_keeps_no_other_from_it(flavour: str) -> None:
    program = hexane.compile(mixed(), chip=CHIPS[flavour])
    device = driver(flavour, PlannedFault("BO_FREE", 1, errno.EINVAL))
    x = {"x": np.ones((1, 4, 8, 8), np.float16)}
    session = program.on(LinuxEngine(PATH, device))
    session.run(x)
    assert len(device.files) == 2
    with pytest.raises(DeviceError, match="does not take a buffer back"):
        session.close()
    assert not device.files and not device.mappings and device.left_behind() == []
    assert np.array_equal(session.run(x)["out"], program.run(x)["out"]), "the session loads them anew"
    session.close()
