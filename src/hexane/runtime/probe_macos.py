"""What an ordinary process may read of the engine under macOS (spec/devices §7, §12), and which routes that leaves."""

from __future__ import annotations

import plistlib
import re
import sys
from typing import Any

from hexane.runtime.machine import Machine
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
    found = engine_properties(machine)
    if not found:
        rows.append(("engine", "no", "no engine in the device registry", "use the emulator; it needs no engine"))
        return False, (), rows
    rows.append(
        ("engine", "yes", f"architecture {found.get('architecture')}, {found.get('cores')} cores, "
                          f"version {found.get('version')}", "")
    )  # fmt: skip
    loaded = [name for name in FRAMEWORKS if _loads(name)]
    rows.append(
        ("private frameworks", "yes" if len(loaded) == len(FRAMEWORKS) else "note", ", ".join(loaded) or "none", "")
    )
    rows += _security(machine)
    rows.append(
        ("own engine programs", "no", "macOS loads programs of its own compiler only (spec/devices §11)",
         "run them on the emulator, or under Linux; give Core ML an .mlpackage (`hexane convert`)")
    )  # fmt: skip
    return True, ("coreml",), rows


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
    named = {key: properties.get(prefix + name) for key, name in names.items()}
    named["cores"] = properties.get("ANEDevicePropertyNumANECores")
    return {key: value for key, value in named.items() if value is not None}


def _loads(name: str) -> bool:
    """Whether a private framework can be opened; its file lies in the shared cache only, so it is never looked for."""
    if sys.platform != "darwin":
        return False
    import ctypes

    try:
        ctypes.CDLL(f"/System/Library/PrivateFrameworks/{name}.framework/{name}")
    except OSError:
        return False
    return True


def _security(machine: Machine) -> list[Row]:
    """System-integrity state, boot arguments and the entitlement of this Python, with their meaning."""
    status = machine.run("csrutil", "status") or ""
    state = re.search(r"status: (\w+)", status)
    rows: list[Row] = [("system integrity protection", "note", state.group(1) if state else "not known", "")]
    arguments = machine.run("sysctl", "-n", "kern.bootargs") or ""
    amfi = "amfi_get_out_of_my_way" in arguments
    meaning = "code-signing checks are off for every program" if amfi else "none that concern the engine"
    rows.append(("boot arguments", "note", meaning, ""))
    own = machine.run("codesign", "-d", "--entitlements", "-", sys.executable) or ""
    has = "com.apple.ane.iokit-user-access" in own
    rows.append(("entitlement of this Python", "note", "may open the engine" if has else "none for the engine", ""))
    return rows
