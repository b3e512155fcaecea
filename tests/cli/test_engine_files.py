"""Commands for engine programs open segments of packages as they open files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import hexane
from hexane.cli.main import app
from hexane.graph import GraphBuilder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``one.hexane`` with one engine segment, ``three.hexane`` with a part of the host between two."""
    place = tmp_path_factory.mktemp("packages")
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 4, 8, 8), "fp16"), name="y"))
    one = hexane.compile(b.graph)
    one.save(place / "one.hexane")
    one.images[0].save(place / "one.hwx")
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 4, 8, 8), "fp16"))
    b.output(b.relu(x=b.cumsum(x=x, axis=3), name="y"))
    three = hexane.compile(b.graph)
    assert [segment.image is None for segment in three.segments] == [False, True, False]
    three.save(place / "three.hexane")
    return place


def test_a_package_of_one_segment_is_that_program(folder: Path) -> None:
    for command in (["disasm"], ["disasm", "--json"], ["kernels"]):
        assert run(*command, folder / "one.hexane").stdout == run(*command, folder / "one.hwx").stdout
    facts = [json.loads(run("info", "--json", folder / name).stdout) for name in ("one.hexane", "one.hwx")]
    own = ("file", "origin")
    assert {k: v for k, v in facts[0].items() if k not in own} == {k: v for k, v in facts[1].items() if k not in own}
    assert run("diff", folder / "one.hexane", folder / "one.hwx").exit_code == 0


def test_a_segment_is_chosen_by_number(folder: Path, tmp_path: Path) -> None:
    package = hexane.load_program(folder / "three.hexane")
    rows = json.loads(run("info", "--json", folder / "three.hexane").stdout)["segments"]
    assert [row["tasks"] for row in rows] == [1, None, 1] and rows[0]["inputs"] == ["x"]
    assert "--segment N" in run("info", folder / "three.hexane").stdout
    listed = json.loads(run("disasm", "--json", "--segment", 2, folder / "three.hexane").stdout)
    assert listed == [{"offset": t.offset, "fields": t.fields()} for t in package.segments[2].image.tasks]
    done = run("edit", folder / "three.hexane", "--segment", 2, "--set", "surface[y].name=z", "-o", tmp_path / "z.hwx")
    assert done.exit_code == 0, done.stderr
    assert hexane.open_image(tmp_path / "z.hwx").surfaces[-1].name.startswith("z")
    assert run("diff", folder / "three.hexane", folder / "three.hexane", "--segments", 0, 0).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["disasm", "three.hexane"], "2 segments on the engine"),
        (["emulate", "three.hexane", "--segment", "1"], "no engine segment 1"),
        (["kernels", "three.hexane", "--segment", "9"], "no engine segment 9"),
        (["info", "three.hexane", "--segment", "-1"], "no engine segment -1"),
        (["info", "one.hwx", "--segment", "0"], "no .hexane package"),
        (["emulate", "one.hwx", "--random", "-1"], "-1 is no seed"),
        (["emulate", "one.hwx", "--random", "1", "--raw"], "--random draws values"),
    ],
)
def test_wrong_choices(arguments: list[str], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = run(*arguments)
    assert done.exit_code and said in (done.stderr or str(done.exception))


def test_drawn_inputs(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run("emulate", folder / "one.hexane", "--random", 3, "-o", tmp_path / f"{name}.npz").exit_code == 0
    a, b = (np.load(tmp_path / f"{name}.npz")["y"] for name in ("a", "b"))
    np.testing.assert_array_equal(a, b)
    assert a.shape == (1, 4, 8, 8) and (a > 0).any() and (a == 0).any()
