"""Notebooks: the example runs cell by cell, objects show the tables of the commands, a run needs no shell."""

from __future__ import annotations

import ast
import json
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import Graph, GraphBuilder
from hexane.graph.html import MOST_ROWS, table
from report.networks import command, saved, small

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


class Cells(HTMLParser):
    """The texts of a table's cells, row by row; every tag that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def shown(thing: Any) -> Cells:
    return Cells(thing._repr_html_())


def cells_run(path: Path) -> list[Any]:
    """What each code cell shows, as a kernel runs it: the value of a last expression, else None."""
    names: dict[str, Any] = {}
    results = []
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(path), "exec"), names)
        results.append(None if last is None else eval(compile(ast.Expression(last.value), str(path), "eval"), names))
    return results


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as Jupyter sets it
    graph, check, estimate, done, answer, again, difference = cells_run(NOTEBOOK)
    for thing in (graph, check, estimate, done, again, difference):
        assert shown(thing).rows, thing
    assert answer == ((1, 16, 16, 16), done.verdict.word)
    assert (tmp_path / "report" / "index.html").is_file()
    assert any(row[0] == "WORSE" for row in shown(difference).rows)
    assert all(np.array_equal(done.outputs[name], array) for name, array in again.outputs.items())


def test_a_notebook_kernel_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the kernel is a process of its own
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tables = [
        output.data["text/html"]
        for cell in cells
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert len(tables) >= 6 and all("<table" in table for table in tables)
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.fixture(scope="module")
def graph() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    b.output(b.cumsum(x=b.relu(x=x, name="<b>"), axis=3, name="y"))
    return b.graph


def test_html_has_what_the_command_prints(tmp_path: Path) -> None:
    model = saved(small(), tmp_path)
    text = command("check", model, "--chip", "M4")
    for row in shown(hexane.check(model, "M4")).rows:
        assert all(cell in text for cell in row)
    text = command("run", model, "--random", 1)
    rows = shown(hexane.run(model, seed=1)).rows
    assert all(cell in text for row in rows if row[0] != "time" for cell in row)
    text = command("estimate", model, "--ops")
    for row in shown(hexane.estimate(model)).rows:
        assert all(cell in text for cell in row)


def test_names_are_escaped_and_long_tables_end(graph: Graph) -> None:
    assert "<b></td>" not in graph._repr_html_() and any("<b>" in row for row in shown(graph).rows)
    assert shown(hexane.compile(graph)).rows[1][1] == "engine"
    assert len(Cells(table([[i] for i in range(MOST_ROWS + 5)])).rows) == MOST_ROWS
    assert "and 5 more" in table([[i] for i in range(MOST_ROWS + 5)])
    assert len(repr(hexane.check(graph))) < 100 > len(repr(hexane.run(graph, compare="none")))


def test_a_run_takes_arrays_and_files(graph: Graph, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 4, 8, 8)
    np.save(tmp_path / "x.npy", x)
    by_array, by_file = hexane.run(graph, {"x": x}), hexane.run(graph, {"x": tmp_path / "x.npy"})
    assert np.array_equal(by_array.outputs["y"], by_file.outputs["y"])
    assert by_array.verdict is not None and by_array.verdict.good
    wanted = np.cumsum(np.maximum(x, 0), axis=3)
    assert np.abs(by_array.outputs["y"] - wanted).max() < 0.01
    with pytest.raises(UsageError, match="no input 'z'"):
        hexane.run(graph, {"z": x})


def test_answers_are_compared_as_objects_and_as_files(graph: Graph, tmp_path: Path) -> None:
    done = hexane.run(graph, seed=1)
    assert not hexane.compare(done, hexane.run(graph, seed=1)).changes
    check = hexane.check(graph, "M4")
    (tmp_path / "check.json").write_text(json.dumps(check.as_dict(), default=str))
    assert not hexane.compare(tmp_path / "check.json", check).changes
    with pytest.raises(UsageError, match="a Graph is no answer"):
        hexane.compare(graph, check)
