"""Needs of the old direct route to the engine under macOS, with consequences; and the entitlement file for it.

Explained, never done: hexane writes the file where it is told to, and signs nothing, sets nothing, asks for no rights.
Sources: docs/private-api.md, "Entitlements and security" (tinygrad, ane-guide, freedomtan, ane-compiler).
"""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from pathlib import Path

from hexane.files import write_whole

USER_ACCESS = "com.apple.ane.iokit-user-access"
COUNTERS = "com.apple.ane.hardware-counters"
AMFI_OFF = "amfi_get_out_of_my_way"
SIGN = "codesign --force --entitlements FILE -s IDENTITY BINARY"
BOOT_ARGUMENTS = "amfi_get_out_of_my_way=1 ipc_control_port_options=0"
WAY_BACK = "csrutil enable and Full Security in recovery mode, then nvram -d boot-args"

STEPS = (
    f"the entitlement {USER_ACCESS} in a file ({COUNTERS} beside it for per-task counters)",
    f"a signature with it: {SIGN}; BINARY is the Python itself, which loses it at every update",
    "recovery mode: csrutil enable --without kext --without nvram (older: --without-kext --without-nvram)",
    f"boot arguments: {BOOT_ARGUMENTS}; without them AMFI ends a binary that carries the entitlement at its start",
)
"""What the programs that opened the engine on macOS 11 to 12.4 had; from macOS 13 on nobody reported that it works."""

CONSEQUENCES = (
    "without AMFI no program's signature or entitlement is checked: any process can claim any right, altered code runs",
    "reduced SIP puts a Mac with Apple's chip into Permissive Security, which is unsupported; some programs break",
    "a Python that carries the entitlement gives it to every script that it runs",
    "the engine still refuses own programs (0xe00002e2 on an M4 Max): nothing of hexane needs this route",
)


CHOICES = (
    ("disable amfid", "the steps above: boot arguments, in reduced security; the way back is known"),
    (
        "patch amfid",
        "changes a running security daemon so that it allows restricted entitlements: every program on the Mac "
        "gains what this one does, until the next start; hexane builds no such patch",
    ),
    (
        "provisioning profile",
        "a signature that Apple allows the entitlement for; costs nothing in security, and no profile with this "
        "entitlement is known outside Apple",
    ),
    (
        "kernel extension",
        "a patch of the engine's driver that asks for no entitlement: Permissive Security, a patch for every release, "
        "and a fault in it is a fault of the kernel; hexane builds none",
    ),
)
"""The four ways that the first notes on the engine name, and what each costs. The first alone is recommended, and only
for a machine that holds nothing else."""


def entitlements(keys: Sequence[str] = (USER_ACCESS,)) -> bytes:
    """The property list that codesign takes."""
    return plistlib.dumps(dict.fromkeys(keys, True))


def write_entitlements(path: Path) -> None:
    """Write the file, whole or not at all; HexaneError where it cannot be written."""
    write_whole(path, entitlements())
