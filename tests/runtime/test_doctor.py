"""The doctor on machines of every kind: a tree of files stands in for the real one."""

from __future__ import annotations

import plistlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hexane.errors import UsageError
from hexane.runtime.doctor import diagnose
from hexane.runtime.machine import Machine
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.trial import GOOD, in_child
from report.networks import command


class Fake(Machine):
    """Files below a folder, commands from a table."""

    def __init__(self, root: Path, system: str, processor: str, answers: dict[str, str] | None = None) -> None:
        super().__init__(root, system, processor)
        self.answers = answers or {}

    def run(self, *command: str) -> str | None:
        return self.answers.get(" ".join(command))

    def loads(self, library: str) -> bool:
        return self.system == "Darwin"

    def side(self) -> FakeMac:
        return FakeMac()


def _asahi(root: Path, steps: int) -> Machine:
    """An M1 Max under Linux on which the first ``steps`` steps of docs/reference/devices.md 2 hold."""
    tree = root / "sys/firmware/devicetree/base"
    tree.mkdir(parents=True)
    (tree / "compatible").write_bytes(b"apple,j316c\0apple,t6001\0apple,arm-platform\0")
    if steps > 1:
        (tree / "soc/ane@285c04000").mkdir(parents=True)
        (tree / "soc/ane@285c04000/compatible").write_bytes(b"apple,t6001-ane\0apple,t6000-ane\0")
    if steps > 2:
        (root / "sys/module/ane").mkdir(parents=True)
        (root / "sys/module/ane/version").write_text("1.0\n")
    if steps > 3:
        (root / "sys/bus/platform/drivers/ane/285c04000.ane").mkdir(parents=True)
    if steps > 4:
        device = root / "sys/class/accel/accel0/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to("../../drivers/ane")
        (root / "dev/accel").mkdir(parents=True)
        (root / "dev/accel/accel0").write_bytes(b"")
    return Fake(root, "Linux", "aarch64")


@pytest.mark.parametrize(
    ("steps", "stops_at", "remedy"),
    [(1, "device tree", "overlay"), (2, "kernel module", "build the driver"), (3, "bound", "kernel log"),
     (4, "device file", "DRM_ACCEL")],
)  # fmt: skip
def test_linux_names_the_first_step_that_fails(tmp_path: Path, steps: int, stops_at: str, remedy: str) -> None:
    found = diagnose(_asahi(tmp_path, steps))
    assert not found.engine and found.routes == ("emulator",)
    last = found.findings[-1]
    assert (last.question, last.state) == (stops_at, "no") and remedy in last.remedy


def test_linux_with_an_engine(tmp_path: Path) -> None:
    found = diagnose(_asahi(tmp_path, 5))
    assert found.engine and found.routes == ("linux", "emulator")
    assert any("M1 Max" in f.answer for f in found.findings)


def test_a_wedged_engine_is_not_used(tmp_path: Path) -> None:
    machine = _asahi(tmp_path, 5)
    (tmp_path / "sys/class/accel/accel0/device/wedged").write_text("1\n")
    found = diagnose(machine)
    assert not found.engine and found.findings[-1].remedy == "reboot"


def test_another_neural_processor_is_not_taken_for_the_engine(tmp_path: Path) -> None:
    machine = _asahi(tmp_path, 4)
    device = tmp_path / "sys/class/accel/accel0/device"
    device.mkdir(parents=True)
    (device / "driver").symlink_to("../../drivers/rocket")
    assert not diagnose(machine).engine


def test_a_pc_has_no_engine_and_needs_none(tmp_path: Path) -> None:
    found = diagnose(Fake(tmp_path, "Linux", "x86_64"))
    assert not found.engine and found.well
    assert "emulator" in found.findings[-1].remedy


def test_macos(tmp_path: Path) -> None:
    properties = {
        "ANEDevicePropertyTypeANEArchitectureTypeStr": "h13g",
        "ANEDevicePropertyNumANECores": 16,
        "ANEDevicePropertyTypeANEVersion": 96,
    }
    registry = plistlib.dumps([{"DeviceProperties": properties}]).decode()
    answers = {
        "ioreg -a -rc H11ANEIn -l": registry.strip(),
        "sysctl -n machdep.cpu.brand_string": "Apple M1 Max",
        "csrutil status": "System Integrity Protection status: enabled.",
        "system_profiler SPiBridgeDataType": "Boot UUID: 1234\n      Secure Boot: Full Security\n",
    }
    found = diagnose(Fake(tmp_path, "Darwin", "arm64", answers))
    by_question = {f.question: f for f in found.findings}
    there = ("macos", "coreml") if find_spec("coremltools") else ("macos",)
    assert found.engine and found.routes == (*there, "emulator")
    assert by_question["private classes"].state == "yes" and by_question["secure boot"].answer == "Full Security"
    assert "entitlement" in by_question["direct route"].answer and "1234" not in str(found.as_dict())
    assert "h13g" in by_question["engine"].answer and "16 cores" in by_question["engine"].answer
    assert by_question["system integrity protection"].answer == "enabled"
    assert by_question["own engine programs"].state == "no"
    empty = diagnose(Fake(tmp_path, "Darwin", "arm64", {}))
    assert not empty.engine


def test_macos_without_the_classes(tmp_path: Path) -> None:
    class Other(Fake):
        def side(self) -> FakeMac:
            side = FakeMac()
            side.find_class = lambda name: 0  # type: ignore[method-assign]
            return side

    registry = plistlib.dumps([{"DeviceProperties": {"ANEDevicePropertyTypeANEArchitectureTypeStr": "h16g"}}]).decode()
    answers = {
        "ioreg -a -rc H11ANEIn -l": registry.strip(),
        "csrutil status": "System Integrity Protection status: unknown (Custom Configuration).\n"
        "\tNVRAM Protections: disabled\n\tBoot-arg Restrictions: disabled",
        "sysctl -n kern.bootargs": "amfi_get_out_of_my_way=1",
        f"codesign -d --entitlements - {sys.executable}": "com.apple.ane.iokit-user-access",
    }
    found = diagnose(Other(tmp_path, "Darwin", "arm64", answers))
    rows = {f.question: f for f in found.findings}
    assert "macos" not in found.routes and rows["private classes"].state == "no"
    assert "off: NVRAM Protections" in rows["system integrity protection"].answer
    assert (
        "off for every program" in rows["boot arguments"].answer and "csrutil enable" in rows["boot arguments"].remedy
    )
    assert "every script" in rows["entitlement of this Python"].answer
    assert all(sys.executable not in f.answer for f in found.findings)


def test_the_trial_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    registry = plistlib.dumps([{"DeviceProperties": {"ANEDevicePropertyTypeANEArchitectureTypeStr": "h13g"}}]).decode()
    mac = Fake(tmp_path, "Darwin", "arm64", {"ioreg -a -rc H11ANEIn -l": registry.strip()})
    trial = diagnose(mac, attempt=True).findings[-1]
    assert (trial.area, trial.state, trial.answer) == ("trial", "yes", GOOD)
    assert in_child(["fake", '{"dies_at": "loadWithQoS:options:error:"}']) == (False, "the process ended with status 9")
    assert diagnose(Fake(tmp_path, "Linux", "x86_64"), attempt=True).findings[-1].state == "note"


def test_the_entitlement_file(tmp_path: Path) -> None:
    file = tmp_path / "engine.plist"
    said = command("doctor", "--entitlement", str(file))
    assert plistlib.loads(file.read_bytes()) == {"com.apple.ane.iokit-user-access": True}
    for words in ("codesign --force --entitlements", "amfi_get_out_of_my_way", "nothing is signed", "csrutil enable",
                  "Permissive Security", "0xe00002e2"):  # fmt: skip
        assert words in said
    with pytest.raises(UsageError):
        command("doctor", "--entitlement", str(file), "--json")


def test_the_command() -> None:
    found = command("doctor", "--json")
    assert found["schema"] == "hexane-doctor/1" and found["well"] and found["routes"][-1] == "emulator"
    assert "emulator self-test" in command("doctor")
