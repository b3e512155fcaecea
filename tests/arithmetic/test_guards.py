"""No kernel reads or writes outside its operands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="guards are made by Linux's calls")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("count", [40, pytest.param(5000, marks=pytest.mark.slow)])
def test_kernels_between_guards(threads: int, count: int) -> None:
    """Products of bytes, Winograd and direct convolutions; a child, since a fault ends the process."""
    done = subprocess.run(
        [sys.executable, "-m", "arithmetic.guards", str(threads), str(count)],
        cwd=Path(__file__).parents[1], env={**os.environ, "HEXANE_THREADS": str(threads)},
        capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(kind in done.stdout for kind in ("int8", "winograd", "direct"))
