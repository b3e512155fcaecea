"""Facts of the engine that an ordinary process may read under macOS, and which routes that leaves."""

from __future__ import annotations

import plistlib
import re
import sys
from typing import Any

from hexane.errors import HexaneError
from hexane.private_api.classes import ROOT
from hexane.private_api.entitlement import AMFI_OFF, USER_ACCESS, WAY_BACK
from hexane.runtime.machine import Machine
from hexane.runtime.macos.model import prepared
from hexane.runtime.probe_linux import Row

FRAMEWORKS = ("AppleNeuralEngine", "ANECompiler", "ANEServices", "Espresso")


def probe(machine: Machine) -> tuple[bool, tuple[str, ...], list[Row]]:
    """(engine present, routes, rows)."""
    rows: list[Row] = [
        ("macOS", "note", machine.run("sysctl", "-n", "kern.osproductversion") or "version not known", "")
    ]
    chip = machine.run("sysctl", "-n", "machdep.cpu.brand_string") or "not known"
    rows.append(("chip", "note", chip, ""))
    if machine.processor != "arm64":
        rows.append(("engine", "no", "an Intel Mac has none", "use the emulator; it needs no engine"))
        return False, (), rows
    if machine.run("sysctl", "-n", "kern.hv_vmm_present") == "1":
        rows.append(("virtual machine", "note", "a guest has no engine, or a virtual one", ""))
    properties = engine_properties(machine)
    if not properties:
        rows.append(("engine", "no", "no engine in the device registry", "use the emulator; it needs no engine"))
        return False, (), rows
    rows.append(
        ("engine", "yes", f"architecture {properties.get('architecture')}, {properties.get('cores')} cores, "
                          f"version {properties.get('version')}", "")
    )  # fmt: skip
    private, more = _private(machine)
    rows += more
    core_ml, more = _core_ml(machine)
    rows += more
    rows += _security(machine)
    rows.append(
        ("own engine programs", "no", "macOS loads programs of its own compiler only (0xe00002e2 for others)",
         "run them on the emulator, or under Linux; a Mac takes networks: --device macos, --device coreml")
    )  # fmt: skip
    routes = [name for name, there in (("macos", private), ("coreml", core_ml)) if there]
    return True, tuple(routes), rows


def _private(machine: Machine) -> tuple[bool, list[Row]]:
    """The private classes: frameworks by dlopen, classes and a selector of each; and the routes beside them."""
    loaded = [name for name in FRAMEWORKS if machine.loads(f"{ROOT}/{name}.framework/{name}")]
    rows: list[Row] = [
        ("private frameworks", "yes" if len(loaded) == len(FRAMEWORKS) else "note", ", ".join(loaded) or "none", "")
    ]
    there = False
    try:
        prepared(machine.side())
        there = True
        rows.append(("private classes", "yes", "all four, each with the selector that makes one", ""))
    except (HexaneError, OSError) as error:
        words = error.message if isinstance(error, HexaneError) else str(error)
        rows.append(("private classes", "no", words, "Core ML is the public way: --device coreml"))
    if "Espresso" in loaded:
        rows.append(("e5rt", "note", "Espresso is there; hexane does not use it", ""))
    if "ANEServices" in loaded:
        answer = f"opening asks for {USER_ACCESS}, and own programs are refused: see `hexane doctor --entitlement FILE`"
        rows.append(("direct route", "note", answer, ""))
    return there, rows


def _core_ml(machine: Machine) -> tuple[bool, list[Row]]:
    """Core ML on this machine: true where it can be asked, and its rows."""
    if not machine.has_module("coremltools"):
        return False, [
            ("Core ML", "note", "coremltools is not installed", "for --device coreml: pip install coremltools")
        ]
    return True, [("Core ML", "yes", "through coremltools; a preference for the engine, not a promise", "")]


def engine_properties(machine: Machine) -> dict[str, Any]:
    """Architecture, cores and version from the device registry; empty where there is no engine."""
    text = machine.run("ioreg", "-a", "-rc", "H11ANEIn", "-l")
    if not text:
        return {}
    try:
        tree = plistlib.loads(text.encode())
    except (plistlib.InvalidFileException, ValueError):
        return {}
    entry = tree[0] if isinstance(tree, list) and tree else tree
    properties = entry.get("DeviceProperties", {}) if isinstance(entry, dict) else {}
    prefix = "ANEDevicePropertyType"
    names = {"architecture": "ANEArchitectureTypeStr", "version": "ANEVersion", "board": "ANEHWBoardType"}
    values = {key: properties.get(prefix + name) for key, name in names.items()}
    values["cores"] = properties.get("ANEDevicePropertyNumANECores")
    return {key: value for key, value in values.items() if value is not None}


def _security(machine: Machine) -> list[Row]:
    """System-integrity state, boot policy, boot arguments and the entitlement of this Python, with their meaning."""
    rows: list[Row] = []
    status = machine.run("csrutil", "status") or ""
    state = re.search(r"status: (\w+)", status)
    off = [name for name in ("NVRAM Protections", "Boot-arg Restrictions") if f"{name}: disabled" in status]
    word = state.group(1) if state else "not known"
    rows.append(("system integrity protection", "note", f"{word}{f'; off: {chr(44).join(off)}' if off else ''}", ""))
    secure = re.search(r"Secure Boot: (.+)", machine.run("system_profiler", "SPiBridgeDataType") or "")
    if secure:  # one line of a text that also holds an UUID
        rows.append(("secure boot", "note", secure.group(1).strip(), ""))
    running = machine.run("sysctl", "-n", "kern.bootargs") or ""
    arguments = machine.run("nvram", "boot-args") or ""
    amfi = AMFI_OFF in running
    if amfi:
        meaning = "code-signing and entitlement checks are off for every program"
    elif AMFI_OFF in arguments:
        meaning = "a stored argument against AMFI is filtered: checks are on"
    else:
        meaning = "none that concern the engine"
    rows.append(("boot arguments", "note", meaning, f"way back: {WAY_BACK}" if amfi or AMFI_OFF in arguments else ""))
    own = machine.run("codesign", "-d", "--entitlements", "-", sys.executable) or ""
    has = USER_ACCESS in own
    answer = "may open the engine directly, and so may every script that it runs" if has else "none for the engine"
    rows.append(("entitlement of this Python", "note", f"{answer}; macos and coreml need none", ""))
    return rows
