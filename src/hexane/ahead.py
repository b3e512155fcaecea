"""Large kernels compiled by processes of their own while this one loads, on a machine that has not compiled them yet.

The compilers of Numba and LLVM take one thread of a process at a time, so threads would not help. A helper leaves the
kernel in the cache on disk; who needs it waits for the helper (`wait`) and reads it from there. Bits cannot differ: it
is the same code, compiled by the same compiler. If a helper fails, the kernel is compiled where it is needed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

from hexane import code_cache

KERNELS = {"hexane.arithmetic.fast.product": "_multiply", "hexane.arithmetic.fast.depthwise": "body"}
"""The callbacks that take longest, about five seconds each; all others together take about as long."""

AT_IMPORT = "hexane.arithmetic.fast.copy", "hexane.arithmetic.fast.elementwise"
"""Modules that compile their kernels when they are imported; nearly every program needs them."""

COMPILE = "import gc, sys, importlib; gc.disable(); module = importlib.import_module(sys.argv[1]); "
COMPILE += "from hexane.arithmetic.fast.compiled import callback; callback(getattr(module, sys.argv[2]))"


_helpers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}


def begin() -> int:
    """Start a helper for every kernel that is not remembered, on more than one processor; gives how many started.

    Only where there is a folder that compiled code can be left in.
    """
    if (os.cpu_count() or 1) < 2 or not sys.executable or getattr(sys, "frozen", False):
        return 0
    for module, function in KERNELS.items():
        if (module, function) in _helpers or _is_remembered(module, function):
            continue
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-c", COMPILE, module, function]
        try:
            _helpers[module, function] = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
            )
        except OSError:  # no further process to be had
            break
    return len(_helpers)


def wait(module: str, function: str) -> bool:
    """Until the helper for a kernel has ended, if there is one; says whether there was.

    Meanwhile this process compiles what it will need, too.
    """
    helper = _helpers.pop((module, function), None)
    if helper is not None:
        for name in AT_IMPORT:
            if helper.poll() is None:
                importlib.import_module(name)
        helper.wait()
    return helper is not None


def _is_remembered(module: str, function: str) -> bool:
    """True where there is code of the kernel's sources as they are, or no folder to leave any in."""
    source = Path(__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    if code_cache.entries(code_cache.name_of(source, function), source.parent):
        return True
    return code_cache.writable(source.parent) is None
