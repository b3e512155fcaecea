"""Virtual drivers for the tests: by flavour, with an open file, and requests made by hand."""

from __future__ import annotations

import ctypes
from typing import Any

from hexane.runtime.linux import uapi
from hexane.runtime.virtual.core import PATH, VirtualDevice
from hexane.runtime.virtual.faults import Faults, PlannedFault
from hexane.runtime.virtual.linked import FirstDriver, HardenedDriver, InTreeDriver
from hexane.runtime.virtual.sectioned import InTreeSectionedDevice, SectionedDevice

DRIVERS: dict[str, type[VirtualDevice]] = {
    "eiln": FirstDriver,
    "omarchy": HardenedDriver,
    "intree": InTreeDriver,
    "abi2": SectionedDevice,
    "intree2": InTreeSectionedDevice,
}
CHIPS = {"eiln": "M1", "omarchy": "M1", "intree": "M1", "abi2": "M2 Max", "intree2": "M2 Max"}
"""A chip whose programs each flavour takes."""
LINKED = ("eiln", "omarchy", "intree")


def driver(flavour: str, *faults: PlannedFault) -> Any:
    """A virtual driver of a flavour."""
    return DRIVERS[flavour](Faults(faults))


class ByHand:
    """An open file whose user fills structures as it likes. ``errno`` of a request is 0 where it was granted."""

    def __init__(self, device: VirtualDevice) -> None:
        self.device = device
        self.fd = device.open(PATH)
        self.kept: list[Any] = []

    def ask(self, request: int, **fields: Any) -> tuple[int, Any]:
        """Error number and structure of one request."""
        data = uapi.STRUCTURES[request]()
        for name, value in fields.items():
            if isinstance(value, dict):
                for index, number in value.items():
                    getattr(data, name)[index] = number
            else:
                setattr(data, name, value)
        return self.number(request, data), data

    def number(self, request: int, data: Any) -> int:
        """The error number of a request."""
        try:
            self.device.ioctl(self.fd, request, data)
        except OSError as error:
            assert error.errno
            return error.errno
        return 0

    def buffer(self, size: int = uapi.PAGE) -> Any:
        """A new buffer."""
        number, made = self.ask(uapi.BO_INIT, size=size)
        assert number == 0
        return made

    def rows(self, row: type[ctypes.Structure], *values: dict[str, int]) -> int:
        """The address of an array of structures."""
        array = (row * max(1, len(values)))()
        for one, fields in zip(array, values):
            for name, value in fields.items():
                setattr(one, name, value)
        self.kept.append(array)
        return ctypes.addressof(array)
