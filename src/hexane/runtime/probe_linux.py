"""Is there an engine under Linux? Asked step by step; the first that fails names its remedy.

Source: docs/reference/devices.md 1, 2.
"""

from __future__ import annotations

import re

from hexane.isa.granules import PAGE
from hexane.runtime.machine import Machine

Row = tuple[str, str, str, str]  # question, state, answer, remedy
DRIVERS = ("ane", "ane_t6021")
RAN = {"t8103": "M1", "t6000": "M1 Pro", "t6001": "M1 Max", "t6020": "M2 Pro", "t6021": "M2 Max"}
"""Chips on which a Linux driver has been seen to run programs (docs/reference/devices.md 1)."""
EXPECTED = {"t6002": "M1 Ultra", "t8112": "M2", "t6022": "M2 Ultra"}
FIRMWARE = "/usr/lib/firmware/apple/ane"
TREE = "/sys/firmware/devicetree/base"


def probe(machine: Machine) -> tuple[bool, tuple[str, ...], list[Row]]:
    """(engine usable, routes, rows)."""
    rows: list[Row] = []
    soc = soc_of(machine)
    if machine.processor not in ("aarch64", "arm64") or soc is None:
        rows.append(
            ("Apple chip", "no", f"{machine.processor}, no Apple device tree", "use the emulator; it needs no engine")
        )
        return False, (), rows
    evidence = RAN.get(soc) or EXPECTED.get(soc)
    if evidence is None:
        why = (
            "no Linux driver: on M3 and later the engine sits behind a coprocessor that nobody drives; use the emulator"
        )
        rows.append(("Apple chip", "no", soc.upper(), why))
        return False, (), rows
    ran = "ran" if soc in RAN else "is expected to run, and nobody has tried"
    rows.append(("Apple chip", "yes", f"{soc.upper()} ({evidence}); a Linux driver {ran}", ""))
    for step in (_pages, _node, _module, _firmware, _bound, _device):
        row = step(machine)
        rows.append(row)
        if row[1] == "no":
            return False, (), rows
    path = accel_path(machine)
    assert path is not None
    if not machine.may_open(path):
        group = machine.group(path) or "render"
        remedy = f"join its group and log in again: sudo usermod -aG {group} $USER (docs/devices.md has a udev rule)"
        rows.append(("permission", "no", f"{path} may not be opened by this user", remedy))
        return False, (), rows
    rows.append(("permission", "yes", f"{path} may be read and written", ""))
    wedged = machine.text(f"/sys/class/accel/{path.rpartition('/')[2]}/device/wedged")
    if wedged not in (None, "0", "N"):
        rows.append(("health", "no", "the driver says that the engine is wedged", "reboot"))
        return False, (), rows
    stats = machine.text(f"/sys/class/accel/{path.rpartition('/')[2]}/device/ane_stats")
    counted = f"not wedged; {', '.join(stats.split(chr(10)))}" if stats else "not wedged, as far as the driver says"
    rows.append(("health", "yes", counted, ""))
    return True, ("linux",), rows


def soc_of(machine: Machine) -> str | None:
    """``t8103`` and the like, from the device tree's compatible strings."""
    text = machine.text(f"{TREE}/compatible") or ""
    names = [name for name in text.split("\0") if re.fullmatch(r"apple,t\d{4}", name)]
    return names[0].removeprefix("apple,") if names else None


def _pages(machine: Machine) -> Row:
    """The hardened drivers refuse kernels with other pages; the first one maps too little there."""
    size = machine.run("getconf", "PAGESIZE")
    if size is None or size == str(PAGE):
        return ("kernel pages", "yes", f"{int(size or PAGE) // 1024} KiB" if size else "not known", "")
    return ("kernel pages", "no", f"{size} bytes", "boot a kernel with pages of 16 KiB")


def _firmware(machine: Machine) -> Row:
    """The M2 family's driver loads one pinned image; the M1 family needs none."""
    soc = soc_of(machine) or ""
    if soc not in ("t8112", "t6020", "t6021", "t6022"):
        return ("firmware", "yes", "none is needed on this chip", "")
    names = machine.names(FIRMWARE)
    if names:
        return ("firmware", "yes", f"{FIRMWARE}/{names[0]}", "")
    return ("firmware", "note", f"nothing in {FIRMWARE}", "where the driver is not bound: fetch it (docs/devices.md)")


def _node(machine: Machine) -> Row:
    for folder in (TREE, f"{TREE}/soc"):
        for name in machine.names(folder):
            compatible = machine.text(f"{folder}/{name}/compatible") or ""
            if name.startswith("ane@") and re.search(r"apple,t\d{4}-ane(\0|$)", compatible):
                status = machine.text(f"{folder}/{name}/status")
                if status in (None, "okay"):
                    return ("device tree", "yes", f"{name} ({compatible.split(chr(0))[0]})", "")
                return ("device tree", "no", f"{name} is {status}", "boot with an overlay that enables it")
    return ("device tree", "no", "no engine node", "boot a device tree with one (an overlay; stock kernels have none)")


def _module(machine: Machine) -> Row:
    for name in DRIVERS:
        if machine.path(f"/sys/module/{name}").is_dir():
            version = machine.text(f"/sys/module/{name}/version")
            return ("kernel module", "yes", f"{name} {version or ''}".strip(), "")
    return (
        "kernel module",
        "no",
        "neither ane nor ane_t6021 is loaded",
        "build the driver for this kernel and load it",
    )


def _bound(machine: Machine) -> Row:
    for name in DRIVERS:
        bound = [n for n in machine.names(f"/sys/bus/platform/drivers/{name}") if n.endswith(".ane")]
        if bound:
            return ("bound", "yes", f"{name} drives {bound[0].rpartition('.')[2]}", "")
    return ("bound", "no", "the driver drives no device", "see the kernel log; firmware or page size may be wrong")


def _device(machine: Machine) -> Row:
    path = accel_path(machine)
    if path is None:
        return ("device file", "no", "no accel device of the engine's driver", "the kernel needs CONFIG_DRM_ACCEL")
    return ("device file", "yes", path, "")


def accel_path(machine: Machine) -> str | None:
    """``/dev/accel/accelN`` whose driver is the engine's; other neural processors use the same class."""
    for name in machine.names("/sys/class/accel"):
        if machine.link(f"/sys/class/accel/{name}/device/driver") in DRIVERS:
            return f"/dev/accel/{name}"
    return None
