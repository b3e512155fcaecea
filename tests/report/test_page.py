"""The report folder and its page: whole, self-contained, and alive in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.report import train_page
from hexane.report.lanes import rows_of
from hexane.report.page import embedded, write_report
from hexane.session.run import run_network
from report.networks import command, mixed, saved, small


def test_the_folder_holds_what_the_page_names(report: Path) -> None:
    data = json.loads((report / "report.json").read_text())
    assert data["schema"] == "hexane-report/1"
    for name in data["files"]:
        assert (report / name).stat().st_size
    assert {"inputs.npz", "outputs.npz", "errors.png"} <= set(data["files"])
    programs = [name for name in data["files"] if name.endswith(".hwx")]
    assert len(programs) == data["run"]["program"]["engine_segments"]
    assert all(hexane.open_image(report / name).tasks for name in programs)
    assert [row["place"] for row in data["placement"]["rows"]] == ["engine", "host", "engine"]


def test_the_page_asks_for_nothing_from_outside(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page)
    assert "@import" not in page and "<link" not in page


@pytest.mark.parametrize(("size", "word"), [(1.0, "same"), (6e4, "broken")])
def test_a_verdict_has_its_colour(size: float, word: str, tmp_path: Path) -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    b.output(b.add(x=x, y=x, name="y"))
    done = run_network(b.graph, {"x": np.full((1, 4, 8, 8), size, np.float16)}, name="sum.mil", insight=True)
    write_report(done, tmp_path / "r")
    page = (tmp_path / "r" / "index.html").read_text()
    assert f'<b class="{word}">{word}</b>' in page and ".figures b.broken { color:var(--host); }" in page


def test_names_of_a_network_cannot_leave_the_data() -> None:
    assert "</script" not in embedded({"name": "</script><img onerror=x>&"})
    assert json.loads(embedded({"name": "</script>&"})) == {"name": "</script>&"}


def test_lanes_follow_the_data() -> None:
    nodes = rows_of(small())
    assert [node.op for node in nodes] == ["input", "conv", "relu", "sigmoid", "add"]
    assert set(nodes[4].sources) == {3, 0}
    held = nodes[0].lane
    assert all(node.lane != held for node in nodes[1:4])


def test_a_report_replaces_a_report_and_nothing_else(report: Path, tmp_path: Path) -> None:
    inputs = {"x": np.zeros((1, 4, 8, 8), np.float16)}
    done = run_network(mixed(), inputs, name="mixed.mil", insight=True)
    target = tmp_path / "again"
    shutil.copytree(report, target)
    write_report(done, target)
    assert np.all(np.load(target / "inputs.npz")["x"] == 0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="other things"):
        write_report(done, tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "mine"]


def test_run_writes_outputs_and_report(tmp_path: Path) -> None:
    model = saved(small(), tmp_path)
    found = command("run", model, "--random", 1, "-o", tmp_path / "out.npz", "--report", tmp_path / "r", "--json")
    assert found["schema"] == "hexane-run/1" and found["compared_with"] == "reference"
    assert found["agreement"][0]["cosine"] > 0.999
    assert np.load(tmp_path / "out.npz")["out"].shape == (1, 16, 8, 8)
    assert (tmp_path / "r" / "index.html").is_file()
    again = command("run", model, "--random", 1, "--level", "graph", "-o", tmp_path / "graph.npz", "--json")
    assert again["level"] == "graph"
    assert np.array_equal(np.load(tmp_path / "out.npz")["out"], np.load(tmp_path / "graph.npz")["out"])


def test_curves_of_a_training_run_lie_between_their_marks() -> None:
    marks, (falling, level) = train_page._plot([[3.0, 2.0, np.inf, 1.0], [2.0, 2.0]])
    assert [value for _, value in marks] == [1, 1.5, 2, 2.5, 3]
    places = {value: f"{place:.1f}" for place, value in marks}
    assert [point.split(",")[1] for point in falling.split()] == [places[3], places[2], places[1]]
    assert {point.split(",")[1] for point in level.split()} == {places[2]}
    marks, (level,) = train_page._plot([[2.0, 2.0]])  # of one number only: a line on the lowest mark
    assert [value for _, value in marks] == [2, 2.25, 2.5, 2.75, 3]
    assert {point.split(",")[1] for point in level.split()} == {f"{marks[0][0]:.1f}"}
