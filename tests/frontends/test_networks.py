"""Which reader a file belongs to, and the show and convert commands."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.cli.main import app
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.graph import GraphBuilder


def small():
    b = GraphBuilder()
    x = b.input("in/put:0", (1, 3, 8, 8), "fp16")
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float16)
    y = b.conv(x=x, weight=w, pad_type="same", name="a b")
    b.output(b.relu(x=y, name="out"))
    return b.graph


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_save_and_load(tmp_path):
    graph = small()
    graph.save(tmp_path / "net.mil")
    assert (tmp_path / "weights" / "net.bin").is_file()
    again = hexane.load(tmp_path / "net.mil")
    assert list(again.inputs) == ["in/put:0"] and again.verify().equals(graph)
    x = {"in/put:0": np.ones((1, 3, 8, 8))}
    np.testing.assert_array_equal(again.evaluate(x)["out"], graph.evaluate(x)["out"])
    (tmp_path / "text").write_text((tmp_path / "net.mil").read_text())
    assert hexane.load(tmp_path / "text").equals(graph)


def test_what_is_no_network(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        hexane.load(tmp_path / "nothing.mil")
    for name, content, error, message in (
        ("a.bin", b"\x7fELF", FormatError, "no network"),
        ("a.hwx", b"", UnsupportedError, "engine program"),
        ("a.pt", b"", UnsupportedError, "from_torch"),
        ("a.mil", b"\xff\xfe", FormatError, "UTF-8"),
        ("b.mil", b"", hexane.HexaneError, "ends too early"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(error, match=message):
            hexane.load(tmp_path / name)
    with pytest.raises(FormatError, match="holds no network"):
        hexane.load(tmp_path)
    with pytest.raises(UnsupportedError, match="writes no"):
        small().save(tmp_path / "x.onnx2")


def test_fixed_shapes_and_functions(tmp_path):
    small().save(tmp_path / "n.mil")
    assert hexane.load(tmp_path / "n.mil", shapes={"in/put:0": (1, 3, 8, 8)}, function="main")
    with pytest.raises(UsageError, match="fixed shape"):
        hexane.load(tmp_path / "n.mil", shapes={"in/put:0": (1, 3, 9, 9)})
    with pytest.raises(hexane.HexaneError, match="no function 'other'"):
        hexane.load(tmp_path / "n.mil", function="other")


def test_show(tmp_path):
    small().save(tmp_path / "n.mil")
    result = run("show", tmp_path / "n.mil", "--ops", "--weights")
    assert result.exit_code == 0
    assert "4x3x3x3 fp16" in result.output and "6.91 k" in result.output
    result = run("show", tmp_path / "n.mil", "--json", "--ops", "--weights", "--outputs", "a b")
    found = json.loads(result.output)
    assert found["macs"] == 4 * 8 * 8 * 27 and found["parameters"] == 108 and found["kinds"] == {"conv": 1}
    assert [o["name"] for o in found["outputs"]] == ["a b"] and found["weights"][0]["shape"] == [4, 3, 3, 3]
    result = run("show", tmp_path / "n.mil", "--mil")
    assert hexane.parse_mil(result.output).inputs == small().inputs


def test_convert(tmp_path):
    small().save(tmp_path / "n.mil")
    result = run("convert", tmp_path / "n.mil", tmp_path / "m.mil", "--outputs", "a b")
    assert result.exit_code == 0 and "1 operation\n" in result.output
    assert list(hexane.load(tmp_path / "m.mil").outputs) == ["a b"]
    result = run("convert", tmp_path / "n.mil", tmp_path / "m.mil", "--outputs", "nothing")
    assert isinstance(result.exception, hexane.HexaneError)
    result = run("show", tmp_path / "n.mil", "--shape", "bad")
    assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": 3}, "text or a path"),
        ({"path": None}, "text or a path"),
        ({"path": "a" * 5000}, "cannot be read"),
        ({"path": "a\0b.mil"}, "no such file"),
        ({"shapes": 5}, "shapes is a int"),
        ({"shapes": {"in/put:0": "abc"}}, "whole numbers"),
        ({"shapes": {"in/put:0": (1, 3, 8, -8)}}, "from 0 on"),
        ({"shapes": {"in/put:0": 5}}, "fixed shape"),
        ({"shapes": {3: (1,)}}, "names are strings"),
        ({"weights": b"bytes"}, "weights is a bytes"),
        ({"weights": {"weights/net.bin": None}}, "bytes or a path"),
        ({"weights": {1: b""}}, "names are strings"),
    ],
)
def test_arguments_of_other_types_are_refused(tmp_path, arguments, message):
    small().save(tmp_path / "net.mil")
    with pytest.raises(hexane.HexaneError, match=message):
        hexane.load(**{"path": tmp_path / "net.mil", **arguments})


def test_extents_may_be_numpy_integers_and_weights_strided(tmp_path):
    small().save(tmp_path / "net.mil")
    data = np.frombuffer((tmp_path / "weights" / "net.bin").read_bytes(), np.uint8)
    spread = np.repeat(data, 2)[::2]
    shapes = {"in/put:0": np.array([1, 3, 8, 8])}
    graph = hexane.load(str(tmp_path / "net.mil"), shapes=shapes, weights={"net.bin": memoryview(spread)})
    assert graph.equals(small())


def test_pipes_are_refused_at_once(tmp_path):
    for name in ("p.onnx", "p.mil", "p.plist", "p.mlmodel", "p"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(FormatError, match="neither a file nor a folder"):
            hexane.load(tmp_path / name)


@pytest.mark.parametrize("inputs", [None, [1], {1: 2, "x": 3}, {"in/put:0": [[1], [1, 2]]}, {"in/put:0": "text"}])
def test_inputs_of_other_types_are_refused(inputs):
    with pytest.raises(UsageError):
        small().evaluate(inputs)


def test_shapes_of_a_compiled_model_are_checked(tmp_path):
    small().save(tmp_path / "net.mlmodelc" / "model.mil")
    assert hexane.load(tmp_path / "net.mlmodelc", shapes={"in/put:0": (1, 3, 8, 8)}).equals(small())
    for shapes in ({"nothing": (1,)}, {"in/put:0": (1, 3, 9, 9)}):
        with pytest.raises(UsageError):
            hexane.load(tmp_path / "net.mlmodelc", shapes=shapes)
