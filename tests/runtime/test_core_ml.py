"""Core ML through coremltools: predictions, its plan beside ours, and what is said where there is none."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.program.load import load_program
from hexane.runtime.core_ml import package as packages
from hexane.runtime.core_ml.package import Package
from hexane.runtime.core_ml.plan import compared, plan_of
from hexane.runtime.devices.coreml import CoreMLDevice, describe
from hexane.runtime.machine import Machine
from hexane.timing import place
from report.networks import command, mixed, small
from runtime import fake_coremltools as library

pytest.importorskip("coremltools")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library.MLModel.made.clear()
    monkeypatch.setattr(library.MLModel, "fails", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_predictions_by_name_and_nothing_left(tmp_path: Path) -> None:
    graph = mixed()
    program = hexane.compile(graph)
    x = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float16)
    with program.on(CoreMLDevice(library=library)) as session:
        assert len(session.program.segments) == 1  # the whole network, its host part included
        for _ in range(2):
            found = session.run({"x": x})["out"]
        assert len(library.MLModel.made) == 1 and library.MLModel.made[0].units is library.ComputeUnit.CPU_AND_NE
    wanted = graph.evaluate({"x": x})["out"].astype(np.float16)
    assert found.dtype == np.float16 and np.array_equal(found, wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["load", "predict"])
def test_what_core_ml_raises_is_an_error_with_words(step: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library.MLModel, "fails", step)
    program = hexane.compile(small())
    x = {"x": np.zeros((1, 16, 8, 8), np.float16)}
    with pytest.raises(HexaneError, match=f"Core ML could not {step}"):
        program.run(x, device=CoreMLDevice(library=library))
    assert list(tmp_path.iterdir()) == []


def test_the_plan_beside_the_prediction() -> None:
    graph = mixed()
    with Package(graph, "all", library) as package:
        plan = plan_of(package)
    assert [(op.name, op.op, op.preferred) for op in plan] == [
        ("y", "relu", "engine"), ("c", "cumsum", "cpu"), ("out", "relu", "engine")
    ]  # fmt: skip
    assert plan[0].supported == ("cpu", "engine") and plan[0].cost == 0.25
    rows = compared(place(graph, "M1"), plan)
    assert [row.planned for row in rows] == ["engine", "cpu", "engine"] and not rows[0].agrees
    only = compared(place(graph, "M1"), plan[:1])
    assert [row.planned for row in only] == ["engine", "not said", "not said"]


def test_check_shows_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "net.mil"
    small().save(file)
    found = command("check", file, "--coreml", "--json", status=None)["reports"][0]
    assert found["coreml"] and found["coreml_plan"] == [] and "macOS only" in found["coreml_plan_missing"]
    assert "was not asked" in command("check", file, "--coreml", status=None)
    monkeypatch.setattr(packages, "coremltools", lambda: library)
    found = command("check", file, "--coreml", "--json", status=None)["reports"][0]
    assert {row["planned"] for row in found["coreml_plan"]} == {"engine"} and found["coreml_plan_missing"] is None
    assert "Core ML's own plan on this Mac" in command("check", file, "--coreml", status=None)


def test_where_there_is_none(tmp_path: Path) -> None:
    program = hexane.compile(small())
    x = {"x": np.zeros((1, 16, 8, 8), np.float16)}
    if sys.platform != "darwin":
        with pytest.raises(UnsupportedError, match="Core ML is on macOS only"):
            program.run(x, device="coreml")
    with pytest.raises(UsageError, match="compute units"):
        program.run(x, device="coreml:fast")
    program.save(tmp_path / "p.hexane")
    with pytest.raises(UnsupportedError, match="from a file"):
        load_program(tmp_path / "p.hexane").run(x, device=CoreMLDevice(library=library))
    assert "Linux" in describe(Machine(tmp_path, "Linux", "x86_64")).reason
    assert describe(Machine(tmp_path, "Darwin", "arm64")).available
