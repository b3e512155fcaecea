"""Plots where the environment names a backend of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")

from hexane.report.figures import figure as new_figure

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


def test_what_stays_in_l2_is_a_box_over_its_tasks(tmp_path, monkeypatch) -> None:
    """Tasks from the first to the end of the last one, addresses in KiB; what is kept lies over what streams."""
    from hexane.report import plots

    shown = []
    monkeypatch.setattr(plots, "new_figure", lambda *size: shown.append(new_figure(*size)) or shown[-1])
    stays = [
        {"first": 0, "last": 1, "start": 0, "stop": 1024, "kept": True},
        {"first": 2, "last": 2, "start": 512, "stop": 3072, "kept": False},
    ]
    data = {"l2": [{"task": 3, "peak": 3072, "room": 4096, "stays": stays}], "tasks": [None] * 8}
    plots.save_memory(data, tmp_path / "memory.png")
    axes = shown[0].axes[0]
    boxes = [path.get_extents().extents.tolist() for part in axes.collections for path in part.get_paths()]
    assert boxes == [[5, 0.5, 6, 3], [3, 0, 5, 1]]
    assert axes.get_xlim() == (0, 8) and axes.get_ylim() == (0, 4) and "at most 3 KiB" in axes.get_title("left")


def test_errors_of_layers_are_drawn_where_they_are(tmp_path, monkeypatch) -> None:
    from hexane.report import plots

    shown = []
    monkeypatch.setattr(plots, "new_figure", lambda *size: shown.append(new_figure(*size)) or shown[-1])
    layers = [{"made": 1e-3, "error": 2e-3}, {"made": None, "error": 4e-3}, {"made": 1e-8, "error": 0}]
    plots.save_errors({"layers": layers}, tmp_path / "errors.png")
    axes = shown[0].axes[0]
    (line,) = axes.lines
    assert line.get_ydata().tolist() == [2e-3, 4e-3, 1e-6] and list(line.get_xdata()) == [0, 1, 2]
    boxes = [path.get_extents().extents.tolist() for part in axes.collections for path in part.get_paths()]
    assert boxes == [[-0.4, 1e-6, 0.4, 1e-3], [0.6, 1e-6, 1.4, 1e-6], [1.6, 1e-6, 2.4, 1e-6]]
    assert axes.get_yscale() == "log" and axes.get_ylim()[0] == 1e-6
