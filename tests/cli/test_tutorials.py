"""Pages that teach: their lines of Python and their commands run as printed, where `hexane example` was run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from facts import fact_files
from hexane.cli.main import app

pytest.importorskip("onnx")
pytest.importorskip("PIL")

DOCS = Path(__file__).resolve().parents[2] / "docs"
STEP = re.compile(r"^    (hexane [^\n]+)$|^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_IS_AN_ANSWER = {"check", "diff"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    assert CliRunner().invoke(app, ["example", str(folder)], catch_exceptions=False).exit_code == 0
    for path in fact_files("hwx/*.hwx"):  # those that docs/images.md looks into
        shutil.copy(path, folder)
    return folder


def followed(page: str) -> dict[str, Any]:
    """Every step of a page in order; the names that its Python leaves."""
    names: dict[str, Any] = {}
    for match in STEP.finditer((DOCS / page).read_text("utf-8")):
        if match[1] is None:
            exec(compile(match[2], page, "exec"), names)
            continue
        for command in match[1].partition("  #")[0].split("&&"):
            words = shlex.split(command)[1:]
            result = CliRunner().invoke(app, words, catch_exceptions=False)
            allowed = (0, 1) if words[0] in NO_IS_AN_ANSWER or "--diff" in words else (0,)
            assert result.exit_code in allowed, f"{command}\n{result.output}"
    return names


def test_the_emulators_page(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example)
    names = followed("emulator.md")
    assert np.array_equal(names["outputs"]["relu"], np.maximum(names["x"].astype(np.float16), 0))
    assert "task" in str(names["result"].report) and (example / "state.npz").is_file()


def test_the_page_of_mil_programs(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example)
    names = followed("mil.md")
    assert {one.rule for one in names["findings"]} == {"S3", "S4"}
    assert names["outputs"]["y"][0, 0, 4, 4] == 27  # 3 x 3 x 3 ones
    assert np.array_equal(names["twice"]["y"], 2 * names["outputs"]["y"])
    assert np.array_equal(names["future"].result()["y"], names["outputs"]["y"])


def test_the_timing_and_image_pages(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example)
    followed("timing.md")
    names = followed("images.md")
    assert len(names["joined"].tasks) == 2 and len(names["first"].tasks) == 1


def test_the_devices_page(example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python; the commands ask for a machine with an engine."""
    monkeypatch.chdir(example)
    names: dict[str, Any] = {}
    for text in re.findall(r"^```python\n(.*?)^```$", (DOCS / "devices.md").read_text("utf-8"), re.M | re.S):
        exec(text, names)
    wanted = names["program"].run({"x": names["pictures"][0]})
    assert np.array_equal(names["outputs"]["probabilities"], wanted["probabilities"])
    assert "No space left" in capsys.readouterr().out and names["driver"].left_behind() == []
