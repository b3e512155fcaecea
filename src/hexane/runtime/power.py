"""The engine's power rail on a Mac, while work goes on: ``powermetrics``, which asks for root."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable

from hexane.runtime.machine import Machine

COMMAND = ("powermetrics", "-n", "1", "-i", "1000", "--samplers", "ane_power")
_POWER = re.compile(r"ANE Power:\s*(\d+(?:\.\d+)?)\s*mW")


def engine_power_mw(machine: Machine, work: Callable[[], None]) -> tuple[float | None, str]:
    """Milliwatts of the engine over a second in which ``work`` is repeated; None and the reason where nobody may look.

    Nothing is asked for: the command is run only where this process has root already.
    """
    if machine.system != "Darwin":
        return None, "no power rail of the engine is known under this system"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None, "powermetrics needs root; as root, verify reads the rail"
    lines: list[str | None] = []
    reader = threading.Thread(target=lambda: lines.append(machine.run(*COMMAND)), daemon=True)
    reader.start()
    while reader.is_alive():
        work()
    match = _POWER.search((lines or [None])[0] or "")
    return (float(match[1]), "") if match else (None, "powermetrics names no power of the engine")
