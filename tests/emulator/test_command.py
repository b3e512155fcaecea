"""The ``emulate`` command: arrays in and out, trace, stop and dump, comparison of two programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from emulator import apple_programs
from hexane.cli.main import app
from hexane.emulator import emulate
from hexane.errors import HexaneError, UsageError


@pytest.fixture
def softmax(facts: Path, tmp_path: Path) -> tuple[Path, str]:
    program = apple_programs.load(facts / "apple" / "h13" / "softmax_1x64x8x8.json")
    program.image().save(tmp_path / "softmax.hwx")
    np.save(tmp_path / "x.npy", program.inputs["x"])
    return tmp_path / "softmax.hwx", f"x={tmp_path / 'x.npy'}"


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["emulate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_outputs_and_trace(softmax, tmp_path: Path) -> None:
    file, given = softmax
    out = tmp_path / "out.npz"
    text = _run(file, "--input", given, "-o", out, "--trace")
    assert np.allclose(np.load(out)["y"].astype(float).sum(-1), 1, atol=5e-3)
    assert text.count("measured") >= 2
    assert "hypothesis" in text


def test_a_single_input_needs_no_name(softmax) -> None:
    file, given = softmax
    assert _run(file, "--input", given.partition("=")[2]) == _run(file, "--input", given)


def test_report_as_json(softmax) -> None:
    file, given = softmax
    report = json.loads(_run(file, "--input", given, "--json"))
    assert [task["unit"] for task in report["tasks"]] == ["NE", "PE", "PE", "NE", "PE", "PE"]
    assert report["tasks"][0]["evidence"] == "measured"
    assert "reduction-sum" in report["hypotheses"]
    assert report["tasks"][3]["counters"] == {"table ends hit": 0}


def test_stop_and_dump(softmax, tmp_path: Path) -> None:
    """After task 1 the largest values of the rows stand in L2 at 0x4200, and nothing behind was written."""
    file, given = softmax
    dump = tmp_path / "state.npz"
    _run(file, "--input", given, "--until", 1, "--dump", dump)
    state = np.load(dump)
    x = np.load(given.partition("=")[2])
    assert state["l2"][0x4200:0x4202].view(np.float16)[0] == x[0, 0, 0].max()
    assert set(np.unique(state["l2_written_by"])) == {-1, 0, 1, 2}


def test_until_a_task_that_is_not_there(softmax) -> None:
    file, given = softmax
    with pytest.raises(HexaneError, match="no task 6"):
        _run(file, "--input", given, "--until", 6)


def test_difference(softmax, facts: Path, tmp_path: Path) -> None:
    """Another scale in task 2: the programs part there, at the first element whose difference is not 0."""
    file, given = softmax
    assert "same results" in _run(file, "--input", given, "--diff", file)
    program = apple_programs.load(facts / "apple" / "h13" / "softmax_1x64x8x8.json")
    program.tasks[2].set("PE.BiasScale.Scale", 0x3C00)
    program.image().save(tmp_path / "other.hwx")
    arguments = ["emulate", str(file), "--input", given, "--diff", str(tmp_path / "other.hwx"), "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert (found["task"], found["element"][:4]) == (2, [0, 0, 0, 0])
    assert found["left"] == pytest.approx(1.4424 * found["right"], rel=2e-3)


@pytest.mark.parametrize("option", ["x", "x=", "=x.npy", "x=missing.npy"])
def test_bad_input_option(softmax, option: str) -> None:
    with pytest.raises(HexaneError):
        _run(softmax[0], "--input", option)


def test_report_of_infinities_is_json(facts: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 64, 1, 1), 60000, np.float16))
    given = [f"--input={name}={tmp_path / 'x.npy'}" for name in ("image", "image2")]
    report = json.loads(_run(facts / "hwx" / "sum_c64.hwx", *given, "--json"), parse_constant=pytest.fail)
    assert report["tasks"][0]["maximum"] == "inf"


def test_input_given_twice(softmax) -> None:
    file, given = softmax
    with pytest.raises(HexaneError, match="twice"):
        _run(file, "--input", given, "--input", given)


def test_input_from_an_archive(softmax, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(3, np.float16))
    with pytest.raises(HexaneError, match="shape"):
        _run(softmax[0], "--input", f"x={tmp_path / 'x.npz'}")


def test_files_of_inputs_are_those_of_run(softmax, facts: Path, tmp_path: Path) -> None:
    """Numbers of any type in an .npy, an archive, text: the same surface; pictures where they fit."""
    file, given = softmax
    x = np.load(given.partition("=")[2])
    np.save(tmp_path / "wide.npy", x.astype(np.float32))
    np.savez(tmp_path / "x.npz", x=x.astype(np.float64))
    np.savetxt(tmp_path / "x.txt", x.reshape(1, -1))
    for name in ("wide.npy", "x.npz", "x.txt"):
        assert _run(file, "--input", tmp_path / name) == _run(file, "--input", given)
    Image.new("L", (77, 1), 255).save(tmp_path / "white.png")
    assert "[1. 1." in _run(facts / "hwx" / "relu_w77.hwx", "--input", tmp_path / "white.png")


def test_nan_of_an_input_reaches_the_engine(facts: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(77, np.nan, np.float32))
    assert "[inf inf" in _run(facts / "hwx" / "relu_w77.hwx", "--input", tmp_path / "x.npy")


@pytest.mark.parametrize("inputs", [None, [np.zeros(77)], {"image": np.zeros(77, np.float16), 0: None}])
def test_inputs_that_are_no_mapping_of_names(facts: Path, inputs) -> None:
    with pytest.raises(UsageError):
        emulate(facts / "hwx" / "relu_w77.hwx", inputs)


def test_input_that_is_no_array(softmax, tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY nonsense")
    with pytest.raises(HexaneError, match=r"no \.npy file"):
        _run(softmax[0], "--input", f"x={tmp_path / 'bad.npy'}")
