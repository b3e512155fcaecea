"""The page on devices: its programs run as printed, its tables are the truth."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import hexane
from hexane.runtime.devices import DEVICES
from hexane.runtime.flavours import FLAVOURS
from hexane.runtime.linux.border import DeviceError
from report.networks import small

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "devices.md").read_text()


def test_the_programs_of_the_page_run() -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    program = hexane.compile(small())
    pictures = [np.ones((1, 16, 8, 8), np.float16)]
    names = {"program": program, "pictures": pictures, "inputs": {"x": pictures[0]}}
    exec(first.replace('on("linux")', 'on("virtual:eiln")'), names)
    assert np.array_equal(names["outputs"]["out"], program.run(names["inputs"])["out"])
    lines = second.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("program.run"))
    exec("\n".join(lines[:at]), names)
    try:
        exec(lines[at], names)
    except DeviceError as error:
        assert "No space left" in str(error)
    else:
        raise AssertionError("the fault did not happen")
    assert names["driver"].left_behind() == []


def test_every_device_and_flavour_is_on_the_page() -> None:
    for name in DEVICES:
        assert f"| `{name}" in PAGE, name
    for name in FLAVOURS:
        assert f"| `{name}` |" in PAGE, name
