"""Compiled code is remembered where that can be done; where it cannot, nothing fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hexane.arithmetic.fast.compiled import drop_stale

SCRIPT = """
import resource, signal
import numpy as np
from hexane.arithmetic import conv2d
if {limit}:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
x, w = np.ones((1, 2, 3, 3), np.float16), np.ones((2, 1, 3, 3), np.float16)
print(conv2d(x, w, groups=2).ravel().tolist())
"""


@pytest.mark.parametrize("limit", [0, 1])
def test_a_full_disk_stops_no_computation(limit: int, tmp_path: Path) -> None:
    pytest.importorskip("resource")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT.format(limit=limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "[9.0, 9.0]\n", done.stderr
    assert bool(list(tmp_path.rglob("*.nbi"))) != limit


def test_code_older_than_a_source_is_dropped(tmp_path: Path) -> None:
    """Numba looks at the file of each function alone, not at its neighbours."""
    sources, cache = tmp_path / "sources", tmp_path / "cache"
    for folder in (sources, cache):
        folder.mkdir()
    now = time.time()
    for path, age in ((cache / "old.nbi", 20), (sources / "kernel.py", 10), (cache / "new.nbi", 0)):
        path.write_text("")
        os.utime(path, (now - age, now - age))
    drop_stale(cache, sources)
    assert [path.name for path in cache.iterdir()] == ["new.nbi"]
