"""Plots where the environment names a backend of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")

SCRIPT = """
import os
from hexane.report.figures import figure
figure(2, 2).savefig("plot.png")
print(os.environ["MPLBACKEND"])
"""


@pytest.mark.parametrize("backend", ["module://of_another_environment.backend", "nonsense", "agg"])
def test_plots_need_no_backend(tmp_path, backend: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env={**os.environ, "MPLBACKEND": backend},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == backend and (tmp_path / "plot.png").stat().st_size
