"""The pack for a Mac without hexane: its runner, alone, writes a file that ``probe --read`` takes."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane import numerics
from hexane.arithmetic.hypotheses import ALL, assume
from hexane.errors import UsageError
from hexane.studies.probe.answers import load
from hexane.studies.probe.pack import CHIPS, networks_of, write_pack
from hexane.studies.probe.questions import RULES
from hexane.studies.probe.read import read

NAMES = ("post-scale", "sum-of-rows", "recipe-softmax", "recipe-quantize")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of four networks for M1 and M4."""
    place = tmp_path_factory.mktemp("pack") / "pack"
    with pytest.MonkeyPatch.context() as patch:
        whole = networks_of(("M1", "M4"))
        few = {name: question for name, question in whole.items() if name in NAMES}
        patch.setattr("hexane.studies.probe.pack.networks_of", lambda names: few)
        write_pack(place, ("M1", "M4"))
    return place


def as_core_ml(chip: str, **assumed: str) -> Any:
    """What stands in for Core ML: the package as hexane reads it, with the chip's arithmetic."""

    def opened(path: Path) -> Any:
        graph = hexane.load(path)

        def predict(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            with assume("post-scale", assumed.get("post_scale", ALL["post-scale"].default)):
                return dict(numerics.evaluate(graph, inputs, chip=chip))

        return predict

    return opened


def run(folder: Path, output: Path, chip: str, **assumed: str) -> int:
    """The copied script, with another Core ML."""
    main = runpy.run_path(str(folder / "run.py"))["main"]
    return main(["-o", str(output), "--chip", chip], load=as_core_ml(chip.split(" ")[0], **assumed))


def test_sixty_networks_cover_what_is_open() -> None:
    """Every rule that a network can ask, every hypothesis of those, and every recipe that is inferred on some chip."""
    names = networks_of(CHIPS)
    assert len(names) >= 60
    assert {rule.name for rule in RULES if not rule.is_edited} <= set(names)
    only_edited = {name for rule in RULES if rule.is_edited for name in rule.asks}
    asked = {name for question in names.values() for name in question.asks}
    assert {name for rule in RULES for name in rule.asks} - asked <= only_edited


@pytest.mark.parametrize("chip", ["M1", "M4 Pro"])
def test_answers_are_read(folder: Path, tmp_path: Path, chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, tmp_path / "a.json", chip) == 0
    said = capsys.readouterr().out
    assert f"{len(NAMES)} of {len(NAMES)} as expected" in said
    answers = load(tmp_path / "a.json")
    assert answers.chip == chip and {a.question for a in answers.answers} == set(NAMES)
    readings = {r.question.name: r for r in read(answers).readings if r.answered}
    assert "post-scale" in readings and all(r.as_predicted for r in readings.values())


def test_another_choice_shows(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine with another rule: the runner names it, and so does the reader."""
    other = next(name for name in ALL["post-scale"].choices if name != ALL["post-scale"].default)
    run(folder, tmp_path / "a.json", "M1", post_scale=other)
    said = capsys.readouterr().out
    assert f"'post-scale': '{other}'" in said
    report = read(load(tmp_path / "a.json"))
    (reading,) = [r for r in report.readings if r.question.name == "post-scale"]
    assert reading.differs and {"post-scale": other} in [dict(fit) for fit in reading.fits]


def test_what_does_not_run_is_said(folder: Path, tmp_path: Path) -> None:
    def fails(path: Path) -> Any:
        raise RuntimeError("no such unit\nmore")

    main = runpy.run_path(str(folder / "run.py"))["main"]
    assert main(["-o", str(tmp_path / "a.json"), "--chip", "M1"], load=fails) == 0
    assert {a.error for a in load(tmp_path / "a.json").answers} == {"no such unit"}


def test_the_runner_stands_alone(folder: Path, tmp_path: Path) -> None:
    """Without hexane in sight it starts, and asks for a chip where there is no Mac."""
    script = folder / "run.py"
    text = script.read_text()
    assert "import hexane" not in text and "from hexane" not in text
    found = subprocess.run(
        [sys.executable, "-I", str(script), "-o", str(tmp_path / "a.json")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert found.returncode == (0 if sys.platform == "darwin" else 2), found.stderr


def test_a_folder_is_not_written_over(folder: Path) -> None:
    with pytest.raises(UsageError, match="not an empty folder"):
        write_pack(folder, ("M1",))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from hexane.cli.main import app

    few = {"post-scale": networks_of(("M1",))["post-scale"]}
    monkeypatch.setattr("hexane.studies.probe.pack.networks_of", lambda names: few)
    result = CliRunner().invoke(app, ["verify", "--pack", str(tmp_path / "p"), "--chip", "M1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["networks"] == 1 and (tmp_path / "p" / "networks" / "post-scale.mil").exists()
