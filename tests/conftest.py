"""What all tests share: the folder of measured and decoded facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from facts import fact_folder


@pytest.fixture(scope="session")
def facts() -> Path:
    """The folder that ``tests/data`` unpacks to."""
    return fact_folder()
