"""Kernels compiled by helpers: once, by the same code, and never needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hexane import ahead
from hexane.code_cache import digest_of

SCRIPT = """
import numpy as np
from hexane import ahead
print(ahead.begin())
from hexane.arithmetic import conv2d
x, w = np.ones((1, 2, 3, 3), np.float16), np.ones((2, 1, 3, 3), np.float16)
print(conv2d(x, w, groups=2).ravel().tolist(), ahead.begin())
"""


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two processors that has compiled nothing yet."""
    monkeypatch.setenv("HEXANE_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(ahead, "_helpers", {})
    return tmp_path


def test_a_helper_that_fails_is_waited_for_once(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "COMPILE", "raise SystemExit(1)")
    assert ahead.begin() == len(ahead.KERNELS)
    for kernel in ahead.KERNELS.items():
        assert ahead.wait(*kernel)
        assert not ahead.wait(*kernel)


def test_what_is_remembered_needs_no_helper(empty: Path) -> None:
    for module, function in ahead.KERNELS.items():
        sources = Path(ahead.__file__).parent.joinpath(*module.split(".")[1:-1])
        name = f"fast.{module.rpartition('.')[2]}.{function}"
        (empty / f"{name}.{digest_of(sources)}.0.nbc").touch()
    assert ahead.begin() == 0


def test_one_processor_needs_no_helper(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert ahead.begin() == 0


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor")
def test_the_first_run_reads_what_helpers_compiled(empty: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines() == ["2", "[9.0, 9.0] 1"], done.stderr  # the product's is still at work
    assert list(empty.glob("fast.depthwise.body.*.nbc"))
