"""The page on devices: its programs run as printed, its tables are the truth."""

from __future__ import annotations

from pathlib import Path

from hexane.runtime.devices import DEVICES
from hexane.runtime.devices.virtual import FLAVOURS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "devices.md").read_text()


def test_every_device_and_flavour_is_on_the_page() -> None:
    for name in DEVICES:
        assert f"| `{name}" in PAGE, name
    for name in FLAVOURS:
        assert f"| `{name}` |" in PAGE, name
