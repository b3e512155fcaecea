"""What all tests share: where the measured and decoded data lie, and a visible skip where they do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("HEXANE_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"


def shared_files(pattern: str) -> list[Path]:
    """Files of the shared data that match a glob, sorted; empty where the data are not present."""
    return sorted(SHARED.glob(pattern))


def shared_params(pattern: str) -> list:
    """The same as parameters of a test; one visibly skipped parameter where the data are not present."""
    files = shared_files(pattern)
    if files:
        return [pytest.param(path, id=path.stem) for path in files]
    return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=f"shared data not present: {pattern}"))]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data, or a visible skip."""
    if not SHARED.is_dir():
        pytest.skip(f"shared data not present (looked in {SHARED.parent.name}/{SHARED.name})")
    return SHARED
