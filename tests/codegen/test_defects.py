"""A program that fails hexane's own check is not handed out: another form is, with a warning, or nothing is."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import hexane
from codegen.test_l2_edges import residual
from hexane.codegen import driver, encode
from hexane.codegen.defects import DefectWarning
from hexane.emulator.static import check_program
from hexane.errors import EmulationError, UnsupportedError
from hexane.isa import table_of
from report.networks import small


@pytest.fixture(autouse=True)
def _files_of_defects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_wrong_search_over_l2_leads_to_a_program_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = residual(16, 256, 128)
    x = {"x": np.random.default_rng(0).standard_normal((1, 16, 256, 128)).astype(np.float16)}
    expected = hexane.compile(graph, chip="M1").run(x)["out"]
    calls = []

    def check(image) -> None:
        calls.append(image)
        if len(calls) == 1:
            raise EmulationError("a planted failure", task=1, register="L2.SourceBase.Addr")
        check_program(image)

    monkeypatch.setattr(driver, "check_program", check)
    with pytest.warns(DefectWarning, match="planted failure.*compiled without bands"):
        program = hexane.compile(graph, chip="M1")
    assert np.array_equal(program.run(x)["out"].view(np.uint16), expected.view(np.uint16))
    (saved,) = tmp_path.glob("hexane-defect-*.mil")
    assert "conv(" in saved.read_text() and len(saved.read_text()) < 20_000  # no weights


def test_an_op_whose_tasks_always_fail_goes_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(image) -> None:
        for index, task in enumerate(image.tasks):
            if task.get("NE.MACCfg.NonlinearMode") == 2:
                raise EmulationError("a planted failure of tables", task=index)

    monkeypatch.setattr(driver, "check_program", check)
    with pytest.warns(DefectWarning, match="run on the host"):
        program = hexane.compile(small(), chip="M1")
    reasons = program.stats()["host_reasons"]
    assert len(reasons) == 1 and "fail its own check" in next(iter(reasons.values()))
    with pytest.raises(UnsupportedError, match="a planted failure"):
        hexane.compile(small(), chip="M1", strict=True)


def test_a_value_that_fits_no_field_goes_to_the_host_with_the_reason() -> None:
    """A batch of 8192 has no place in the 13 bits that count groups."""
    b = hexane.graph.GraphBuilder()
    x = b.input("x", (8192, 4, 2, 2), "fp16")
    b.output(b.add(x=x, y=x, name="out"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DefectWarning)
        program = hexane.compile(b.graph, chip="M1")
    values = {"x": np.ones((8192, 4, 2, 2), np.float16)}
    assert np.array_equal(program.run(values)["out"], 2 * values["x"])


def test_a_limit_met_while_tasks_are_written_is_the_reason_and_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    written = encode.strides

    def narrow(values, block, prefix, dma) -> None:
        written(values, block, prefix, dma)
        if block == "TileDMADst" and dma.plane == 128:
            values["TileDMADst.DepthStride.DepthStride"] = 1 << 40

    monkeypatch.setattr(encode, "strides", narrow)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DefectWarning)
        b = hexane.graph.GraphBuilder()
        x = b.input("x", (1, 4, 1, 64), "fp16")
        b.output(b.relu(x=x, name="out"))
        program = hexane.compile(b.graph, chip="M1")
        (reason,) = program.stats()["host_reasons"].values()
    assert "does not fit the 26 bits of DepthStride" in str(reason) and "check" not in str(reason)
    with pytest.raises(UnsupportedError, match="26 bits of DepthStride") as error:
        hexane.compile(b.graph, chip="M1", strict=True)
    assert "defect" not in str(error.value)


def test_a_task_longer_than_its_counter_says_the_longest() -> None:
    """The estimate has no effect on execution (docs/reference/engine-h13.md 4.2)."""
    counter = table_of("h13").find("Header[1].ExeCycles").field
    assert encode.bits(counter, 67087) == 0xFFFF and encode.bits(counter, 5) == 5


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_the_check_finds_what_a_run_would(chip: str) -> None:
    image = hexane.compile(small(), chip=chip).images[0]
    check_program(image)
    role = "Common.InDim.Win" if chip == "M1" else "Common.Win.Win"
    image.tasks[0].set(role, image.tasks[0].get(role) * 64)
    with pytest.raises(EmulationError):
        check_program(image)
