"""``hexane compare`` and ``--baseline``: what became worse between two answers, and what machines read of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.errors import FormatError, UsageError
from hexane.session.baseline import Limits, compared

onnx = pytest.importorskip("onnx")


def model(
    path: Path,
    kernel: int = 3,
    last: str = "GlobalAveragePool",
    name: str = "c0",
    scale: float = 1.0,
    back: float = 1.0,
) -> Path:
    """Conv (kernel x kernel), relu, conv, pool; weights drawn from one seed, the first times ``scale``, the second
    ``back``."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    first = numpy_helper.from_array(rng.normal(size=(8, 4, kernel, kernel)).astype("f4") * np.float32(scale), "w")
    second = numpy_helper.from_array(rng.normal(size=(8, 8, 3, 3)).astype("f4") * np.float32(back), "w2")
    nodes = [
        helper.make_node("Conv", ["x", "w"], [name], name="conv0", pads=[kernel // 2] * 4),
        helper.make_node("Relu", [name], ["r0"], name="relu0"),
        helper.make_node("Conv", ["r0", "w2"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node(last, ["c1"], ["y"], name="pool"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 1, 1])
    graph = helper.make_graph(nodes, "g", [x], [y], [first, second])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def command(*words: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``old`` and ``new`` (its first kernel is 17x17), and their answers to check, estimate and run."""
    place = tmp_path_factory.mktemp("answers")
    for name, kernel in (("old", 3), ("new", 17)):
        path = model(place / f"{name}.onnx", kernel)
        for asked, more in (
            ("check", ("--chip", "M1,M4")),
            ("estimate", ("--chip", "M1,M4")),
            ("run", ("--random", 1)),
        ):
            status = int((asked, name) == ("check", "new"))
            (place / f"{asked}.{name}").write_text(command(asked, path, *more, "--json", status=status))
    return place


def differences(folder: Path, asked: str, *more: object, status: int) -> list[dict[str, Any]]:
    text = command("compare", folder / f"{asked}.old", folder / f"{asked}.new", "--json", *more, status=status)
    return json.loads(text)["changes"]


def test_an_op_that_left_the_engine_is_worse(folder: Path) -> None:
    """Apple's compiler takes kernels of at most 13 (M1) and 15 (M4): docs/limits.md; Netron names the node so."""
    worse = [change for change in differences(folder, "check", status=1) if change["worse"]]
    assert [(c["chip"], c["kind"], c["old"], c["new"]) for c in worse] == [
        ("M1", "placement", "engine", "host"),
        ("M4", "placement", "engine", "host"),
    ]
    assert all(change["op"] == "conv, Conv conv0" and "17 wide" in change["note"] for change in worse)
    assert not any(change["worse"] for change in differences(folder, "check", "--by", "hexane", status=0))


def test_a_slower_call_is_worse_and_a_limit_allows_it(folder: Path) -> None:
    worse = [change for change in differences(folder, "estimate", status=1) if change["worse"]]
    assert {change["kind"] for change in worse} == {"time, us", "energy, mJ"}
    assert any(change["name"] == "the host's part of the network" and change["old"] == 0 for change in worse)
    answers = [json.loads((folder / f"estimate.{name}").read_text()) for name in ("old", "new")]
    assert {c.name for c in compared(*answers, Limits(slower=100)).worse} == {"the host's part of the network"}
    assert not compared(answers[0], answers[0]).changes
    assert any(c.kind == "time of a layer, us" for c in compared(*answers, Limits(layers=True)).worse)


def test_a_verdict_and_an_error_that_grow(folder: Path) -> None:
    old = json.loads((folder / "run.old").read_text())
    new = json.loads(json.dumps(old))
    new["verdict"], new["agreement"][0]["relative"] = "changed", 0.2
    assert {change.kind for change in compared(old, new).worse} == {"verdict", "error"}
    new["verdict"], new["agreement"][0]["relative"] = "same", 9e-4  # below the rounding of fp16, whatever it was
    assert not compared(old, new).worse
    new["agreement"][0]["relative"] = None
    assert compared(old, new).worse


def test_names_may_change(folder: Path, tmp_path: Path) -> None:
    """An op of another name in the same place is no loss; one more outside the engine is."""
    answers = []
    for name in ("c0", "other"):
        command("check", model(tmp_path / f"{name}.onnx", 17, name=name), "--chip", "M4", "--json", status=1)
        answers.append(json.loads(command("check", tmp_path / f"{name}.onnx", "--chip", "M4", "--json", status=1)))
    assert compared(*answers).changes and not compared(*answers).worse
    good = json.loads((folder / "check.old").read_text())
    good["reports"] = [report for report in good["reports"] if report["chip"] == "M4"]
    assert len(compared(good, answers[1]).worse) == 1


def test_a_chip_that_is_missing_is_worse(folder: Path) -> None:
    old = json.loads((folder / "estimate.old").read_text())
    new = {**old, "estimates": old["estimates"][:1], "how_long": old["how_long"][:1]}
    assert all(change.chip == "M4" for change in compared(old, new).worse) and compared(old, new).worse


def test_a_baseline_answers_in_one_call(folder: Path) -> None:
    for asked in ("check", "estimate"):
        options = (folder / "new.onnx", "--chip", "M1,M4", "--baseline", folder / f"{asked}.old")
        assert "WORSE" in command(asked, *options, status=1)
        answer = json.loads(command(asked, *options, "--json", status=1))
        assert answer["baseline"]["changes"] == differences(folder, asked, status=1)
        assert "none is worse" in command(asked, folder / "old.onnx", *options[1:])


def test_what_builds_read(folder: Path) -> None:
    files = folder / "check.old", folder / "check.new"
    lines = command("compare", *files, "--format", "github", status=1).splitlines()
    assert sum(line.startswith("::error title=hexane%3A worse placement::M") for line in lines) == 2
    suite = ElementTree.fromstring(command("compare", *files, "--format", "junit", status=1).encode())
    assert suite.tag == "testsuite" and suite.get("failures") == "2" == str(len(suite.findall("testcase/failure")))
    assert suite.get("tests") == str(len(suite.findall("testcase")))


def test_answers_say_what_made_them(folder: Path) -> None:
    """Equal calls give equal bytes but for ``seconds``; the digest is the one that sha256sum prints."""
    again = json.loads(command("run", folder / "old.onnx", "--random", 1, "--json"))
    answer = json.loads((folder / "run.old").read_text())
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in answer.items() if k != "seconds"}
    assert answer["origin"]["sha256"] == hashlib.sha256((folder / "old.onnx").read_bytes()).hexdigest()
    text = command("check", folder / "old.onnx", "--chip", "M1,M4", "--json")
    assert text == (folder / "check.old").read_text()


def test_the_verdict_decides_the_status(tmp_path: Path) -> None:
    """Weights below fp16's smallest number are lost, and what follows makes much of them: the status says so."""
    weak = model(tmp_path / "weak.onnx", scale=1e-9, back=1e4)
    answer = json.loads(command("run", weak, "--random", 1, "--json", status=1))
    assert answer["verdict"] in ("changed", "broken") and answer["advice"].startswith("WRONG")
    good = model(tmp_path / "good.onnx")
    assert json.loads(command("run", good, "--random", 1, "--json", "--fail-on", "broken"))["verdict"] == "same"
    with pytest.raises(UsageError, match="one of close, changed, broken, wrong"):
        command("run", good, "--random", 1, "--fail-on", "never")


def test_what_is_not_compared(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="different questions"):
        command("compare", folder / "check.old", folder / "run.old")
    (tmp_path / "no.json").write_text('{"schema": "hexane-chips/1"}')
    with pytest.raises(FormatError, match="hexane-chips/1"):
        command("compare", tmp_path / "no.json", folder / "run.old")
    (tmp_path / "no.json").write_text('{"schema": "hexane-run/1"}')
    with pytest.raises(FormatError, match="KeyError"):
        command("compare", tmp_path / "no.json", folder / "run.old")
    with pytest.raises(UsageError, match="nobody's placement"):
        command("compare", folder / "check.old", folder / "check.new", "--by", "me")
