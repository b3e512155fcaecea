"""The machine as the probes see it: files and commands, read only; tests put another in its place."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.system import MacSystem

TIMEOUT_S = 10


class Machine:
    """Files below ``root`` and the output of read-only commands."""

    def __init__(self, root: str | Path = "/", system: str | None = None, processor: str | None = None) -> None:
        self.root = Path(root)
        self.system = system or platform.system()
        self.processor = processor or platform.machine()

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """A file's text, zero bytes at the ends removed; None where it cannot be read."""
        try:
            return self.path(path).read_bytes().decode("utf-8", "replace").strip("\0\n ")
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; none where there is no such folder."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        """The last part of what a link points to."""
        try:
            return os.path.basename(os.readlink(self.path(path)))
        except OSError:
            return None

    def group(self, path: str) -> str | None:
        """The name of the group that owns a file; None where that is not known."""
        try:
            import grp

            return grp.getgrgid(os.stat(self.path(path)).st_gid).gr_name
        except (ImportError, OSError, KeyError):
            return None

    def may_open(self, path: str) -> bool:
        """True where this user may read and write it."""
        return os.access(self.path(path), os.R_OK | os.W_OK)

    def run(self, *command: str) -> str | None:
        """Standard output of a command that reads; None where it is missing, fails or takes too long."""
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace")
        except (OSError, subprocess.SubprocessError):
            return None
        return process.stdout.strip() if process.returncode == 0 else None

    def loads(self, library: str) -> bool:
        """True where a library can be opened; private ones lie in the shared cache only, so no file is looked for."""
        if sys.platform != "darwin":
            return False
        import ctypes

        try:
            ctypes.CDLL(library)
        except OSError:
            return False
        return True

    def side(self) -> SystemBorder:
        """The border of the private classes; UnsupportedError where there are none."""
        return MacSystem()

    def has_module(self, name: str) -> bool:
        """True where a Python library is installed."""
        return importlib.util.find_spec(name) is not None
