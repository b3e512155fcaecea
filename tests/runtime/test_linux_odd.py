"""What a driver's odd answers do to its client: counters that are none, a close that fails."""

from __future__ import annotations

import pytest

from hexane.errors import HexaneError
from hexane.runtime.linux.device import DriverDevice
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.faults import Faults, PlannedFault
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
