"""What the doctor asks of a Linux machine with an Apple chip: pages, firmware, permission, health."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexane.runtime.devices.linux import chip_of, describe
from hexane.runtime.machine import Machine
from hexane.runtime.probe_linux import probe


class Apple(Machine):
    """Files below a folder; what this user may open, and the size of a page, are set."""

    allowed = True
    page = "16384"

    def run(self, *command: str) -> str | None:
        return self.page if command == ("getconf", "PAGESIZE") else None

    def may_open(self, path: str) -> bool:
        return self.allowed

    def group(self, path: str) -> str | None:
        return "render"


def _machine(root: Path, soc: str = "t6001", driver: str = "ane", **files: str) -> Apple:
    tree = root / "sys/firmware/devicetree/base"
    node = tree / "soc/ane@285c04000"
    node.mkdir(parents=True)
    (tree / "compatible").write_bytes(f"apple,j316c\0apple,{soc}\0".encode())
    (node / "compatible").write_bytes(f"apple,{soc}-ane\0".encode())
    (root / f"sys/module/{driver}").mkdir(parents=True)
    (root / f"sys/bus/platform/drivers/{driver}/285c04000.ane").mkdir(parents=True)
    device = root / "sys/class/accel/accel0/device"
    device.mkdir(parents=True)
    (device / "driver").symlink_to(f"../../drivers/{driver}")
    for name, text in files.items():
        (device / name).write_text(text)
    return Apple(root, "Linux", "aarch64")


def _rows(machine: Machine) -> dict[str, tuple[str, str, str]]:
    return {question: (state, answer, remedy) for question, state, answer, remedy in probe(machine)[2]}


@pytest.mark.parametrize(
    ("soc", "driver", "chip"),
    [("t8103", "ane", "M1"), ("t6000", "ane", "M1 Pro"), ("t6001", "ane", "M1 Max"), ("t6002", "ane", "M1 Ultra"),
     ("t8112", "ane_t6021", "M2"), ("t6020", "ane_t6021", "M2 Pro"), ("t6021", "ane_t6021", "M2 Max"),
     ("t6022", "ane_t6021", "M2 Ultra")],
)  # fmt: skip
def test_an_engine_in_order(tmp_path: Path, soc: str, driver: str, chip: str) -> None:
    machine = _machine(tmp_path, soc, driver, wedged="0\n", ane_stats="busy_ns 12\njobs 3\n")
    usable, routes, _ = probe(machine)
    assert usable and routes == ("linux",)
    rows = _rows(machine)
    assert rows["health"][1] == "not wedged; busy_ns 12, jobs 3"
    assert chip in rows["Apple chip"][1] and chip_of(machine) == chip
    assert rows["kernel pages"][:2] == ("yes", "16 KiB")
    assert describe(machine).available and describe(machine).reason == ""
    assert (rows["firmware"][0] == "note") == (driver == "ane_t6021")


def test_later_chips_have_no_way_in_one_line(tmp_path: Path) -> None:
    for number, soc in enumerate(("t8122", "t6031", "t8132", "t6041", "t8142")):
        machine = _machine(tmp_path / str(number), soc)
        assert not probe(machine)[0]
        reason = describe(machine).reason
        assert "coprocessor" in reason and "\n" not in reason


def test_pages_of_another_size(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    machine.page = "4096"
    assert _rows(machine)["kernel pages"] == ("no", "4096 bytes", "boot a kernel with pages of 16 KiB")
    assert not describe(machine).available


def test_a_file_of_another_group(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    machine.allowed = False
    state, _, remedy = _rows(machine)["permission"]
    assert state == "no" and "usermod -aG render" in remedy
    assert "usermod" in describe(machine).reason


def test_wedged(tmp_path: Path) -> None:
    machine = _machine(tmp_path, wedged="1\n")
    assert _rows(machine)["health"][::2] == ("no", "reboot") and "wedged" in describe(machine).reason


def test_firmware_of_the_m2_family(tmp_path: Path) -> None:
    machine = _machine(tmp_path, "t6021", "ane_t6021")
    assert "fetch" in _rows(machine)["firmware"][2]
    folder = tmp_path / "usr/lib/firmware/apple/ane"
    folder.mkdir(parents=True)
    (folder / "t6021.bin").write_bytes(b"")
    assert _rows(machine)["firmware"][0] == "yes"
