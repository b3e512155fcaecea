"""What all tests share: the folder of measured and decoded facts."""

from __future__ import annotations

import atexit
from pathlib import Path

import pytest

from facts import fact_folder


@pytest.fixture(scope="session")
def facts() -> Path:
    """The folder that ``tests/data`` unpacks to."""
    return fact_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker of pytest-xdist ends without its exit functions, where coremltools and others remove their files."""
    if hasattr(config, "workerinput"):
        atexit._run_exitfuncs()
