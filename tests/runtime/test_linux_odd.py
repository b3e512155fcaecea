"""What a driver's odd answers do to its client: counters that are none, a close that fails."""

from __future__ import annotations

import errno

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError
from hexane.program.run import Session
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.linux.border import DeviceError
from hexane.runtime.linux.device import DriverDevice
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.faults import TIMEOUT, Faults, PlannedFault
from hexane.runtime.virtual.linked import HardenedDriver


class Odd(HardenedDriver):
    """A driver whose counters are three words."""

    text = ""

    def attribute(self, path: str, name: str) -> str:
        return self.text


@pytest.mark.parametrize(("text", "counted"), [
    ("jobs 12\nbusy_ns 7", {"jobs": 12, "busy_ns": 7}),
    ("jobs \u00b2", {}), ("jobs " + "9" * 4301, {}), ("jobs -1", {}),
])  # fmt: skip
def test_what_is_no_number_is_no_counter(text: str, counted: dict[str, int]) -> None:
    driver = Odd()
    driver.text = text
    with DriverDevice(PATH, driver) as device:
        assert device.counters() == counted


def test_the_refusal_is_the_news_where_close_fails_too() -> None:
    faults = Faults((PlannedFault("VERSION", 1, 5), PlannedFault("close", 1, 5)))
    with pytest.raises(HexaneError):
        DriverDevice(PATH, HardenedDriver(faults))


def on_relu(*faults: PlannedFault) -> Session:
    b = hexane.graph.GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 8, 4, 4), "fp16"), name="y"))
    return Session(hexane.compile(b.graph), LinuxEngine(PATH, HardenedDriver(Faults(faults))))


@pytest.mark.parametrize("keep", [True, False])
def test_the_engine_that_hangs_is_the_news_where_close_fails_too(keep: bool) -> None:
    opened = on_relu(PlannedFault("SUBMIT", 1, TIMEOUT), PlannedFault("munmap", 1, errno.EIO))
    with pytest.raises(DeviceError, match="did not run the program"), opened as session:
        session.record({"x": np.ones((1, 8, 4, 4), np.float16)}, keep=keep)
    assert [fault.call for fault in opened.device.border.faults.happened] == ["SUBMIT", "munmap"]


def test_a_close_that_fails_alone_is_said() -> None:
    with (
        pytest.raises(DeviceError, match="does not unmap"),
        on_relu(PlannedFault("munmap", 1, errno.EIO)) as session,
    ):
        session.run({"x": np.ones((1, 8, 4, 4), np.float16)})
