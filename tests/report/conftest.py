"""A report folder that several files look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hexane.report.page import write_report
from hexane.session.run import run_network
from report.networks import mixed


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "mixed"
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float16)}
    write_report(run_network(mixed(), inputs, name="mixed.mil", insight=True), folder)
    return folder
