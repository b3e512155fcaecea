"""``hexane verify --report``: the archive is enough to see the mismatch again, without the machine that saw it."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.cli.main import app
from hexane.errors import HexaneError
from hexane.program.run import Device
from hexane.report.schema import check_answer
from hexane.runtime.devices import device_named
from hexane.studies.mismatch import write_report
from hexane.studies.verify import verify
from report.networks import saved, small


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def arrays(data: bytes) -> dict[str, np.ndarray]:
    return dict(np.load(io.BytesIO(data)))


def test_the_command_writes_what_somebody_else_needs(tmp_path: Path) -> None:
    model, target = saved(small("fp32"), tmp_path), tmp_path / "mismatch.zip"
    words = ["verify", str(model), "--device", "emulator", "--calls", "1", "--report", str(target)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    held = members(target)
    assert set(held) == {"README.txt", "program.hexane", "inputs.npz", "device.npz", "emulator.npz", "verify.json",
                         "doctor.json"}  # fmt: skip
    (tmp_path / "again.hexane").write_bytes(held["program.hexane"])
    again = hexane.load_program(tmp_path / "again.hexane").run(arrays(held["inputs.npz"]))
    assert all(np.array_equal(array, arrays(held["emulator.npz"])[name]) for name, array in again.items())
    assert not check_answer(json.loads(held["verify.json"])) and not check_answer(json.loads(held["doctor.json"]))
    assert CliRunner().invoke(app, [*words[:-1], str(model)]).exception is not None  # the network stays
    assert model.read_text().startswith("program")


class OneMore:
    """A loaded segment whose outputs are one too large."""

    def __init__(self, loaded) -> None:
        self.loaded = loaded

    def __getattr__(self, name: str):
        return getattr(self.loaded, name)

    def run(self, values):
        return {name: array + np.float16(1) for name, array in self.loaded.run(values).items()}


class Wrong(type(device_named("emulator"))):
    """A device of which every value is wrong."""

    def load(self, segment):
        return OneMore(super().load(segment))


def test_both_outputs_are_there_where_they_differ(tmp_path: Path) -> None:
    graph = small("fp32")
    program, x = hexane.compile(graph), {"x": np.ones((1, 16, 8, 8), np.float32)}
    device: Device = Wrong()
    result = verify(program, graph, x, device, calls=1)
    write_report(tmp_path / "m.zip", program, x, result)
    held = members(tmp_path / "m.zip")
    device_out, emulated = arrays(held["device.npz"])["out"], arrays(held["emulator.npz"])["out"]
    assert np.allclose(device_out - emulated, 1, atol=1e-2)


def test_an_error_of_the_device_is_in_it(tmp_path: Path) -> None:
    program, x = hexane.compile(small("fp32")), {"x": np.ones((1, 16, 8, 8), np.float32)}
    write_report(tmp_path / "m.zip", program, x, HexaneError("ETIMEDOUT", hint="reboot"))
    held = members(tmp_path / "m.zip")
    assert "device.npz" not in held and json.loads(held["verify.json"])["error"]["message"] == "ETIMEDOUT"
    write_report(tmp_path / "n.zip", program, x, HexaneError("ETIMEDOUT", hint="reboot"))
    assert (tmp_path / "m.zip").read_bytes() == (tmp_path / "n.zip").read_bytes()


@pytest.mark.parametrize("name", ["mismatch.md", "wrong-answer.md"])
def test_the_issue_templates_name_options_that_exist(name: str) -> None:
    text = (Path(__file__).resolve().parents[2] / ".github" / "ISSUE_TEMPLATE" / name).read_text()
    assert text.startswith("---\nname: ")
    if "--report" in text:
        assert "--report" in CliRunner().invoke(app, ["verify", "--help"]).output
