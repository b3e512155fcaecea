"""``hexane edit --kernel``: other weights in a file, without a compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.mil.test_model import FILES, GOOD, INPUT
from typer.testing import CliRunner

import hexane
from blobs import blob_bytes
from hexane.cli.main import app
from hexane.errors import HexaneError


def test_weights_of_a_file(tmp_path: Path) -> None:
    new = np.random.default_rng(4).normal(0, 0.1, (64, 64, 1, 1)).astype(np.float16)
    hexane.compile(hexane.parse_mil(GOOD, FILES), chip="M1").save(tmp_path / "old.hwx")
    np.save(tmp_path / "w.npy", new)
    words = ["edit", str(tmp_path / "old.hwx"), "--kernel", f"task[0].weights={tmp_path / 'w.npy'}"]
    result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "new.hwx")])
    assert result.exit_code == 0, result.output
    files = {"@model_path/weights/w.bin": blob_bytes([(new, "fp16")])}
    wanted = hexane.compile(hexane.parse_mil(GOOD, files), chip="M1").run({"x": INPUT})["y"]
    got = hexane.load_program(tmp_path / "new.hwx").run({"x": INPUT.reshape(1, 64, 1, 512)})["y"]
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(
    "change", ["task[0].weight=w.npy", "weights=w.npy", "task[0].weights=absent.npy", "task[9].weights=w.npy"]
)
def test_wrong_changes(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hexane.compile(hexane.parse_mil(GOOD, FILES), chip="M1").save("old.hwx")
    np.save("w.npy", np.zeros((64, 64, 1, 1), np.float16))
    result = CliRunner().invoke(app, ["edit", "old.hwx", "--kernel", change, "-o", "new.hwx"])
    assert isinstance(result.exception, HexaneError)
    assert not Path("new.hwx").exists()


def test_nothing_to_change(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["edit", str(tmp_path / "a.hwx"), "-o", str(tmp_path / "b.hwx")])
    assert isinstance(result.exception, HexaneError)
