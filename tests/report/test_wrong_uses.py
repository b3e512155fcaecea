"""What people do wrong, and the one line that helps them: exit status 2, nothing half written, no traceback."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from report.networks import saved, small

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def _hexane(*arguments: object, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "hexane", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, **options)


def _refused(folder: Path, *arguments: object, says: str, **options) -> str:
    before = sorted(folder.rglob("*"))
    done = _hexane(*arguments, **options)
    assert done.returncode == 2, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.startswith("hexane: ")]
    assert len(lines) == 1 and says in lines[0], done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
    return lines[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(small(), tmp_path)


def test_missing_file(tmp_path: Path) -> None:
    _refused(tmp_path, "run", tmp_path / "none.onnx", says="there is no such file")


def test_wrong_shape(tmp_path: Path, model: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 16, 9, 9), np.float16))
    line = _refused(tmp_path, "run", model, "--input", f"x={tmp_path / 'x.npy'}", says="(1, 16, 9, 9)")
    assert "1x16x8x8" in line


def test_nan_input(tmp_path: Path, model: Path) -> None:
    x = np.zeros((1, 16, 8, 8), np.float32)
    x[0, 3, 2, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    _refused(tmp_path, "run", model, "--input", f"x={tmp_path / 'x.npy'}", says="NaN at (0, 3, 2, 1)")


def test_program_without_ending(tmp_path: Path, model: Path) -> None:
    line = _refused(tmp_path, "compile", model, "-o", tmp_path / "out", says="ends in .hwx or .anec")
    assert "out.hexane" in line


def test_no_network_in_python() -> None:
    for function in (hexane.check, hexane.compile, hexane.compress, hexane.estimate):
        with pytest.raises(UsageError, match="a int"):
            function(7)


def test_paths_in_python(tmp_path: Path, model: Path) -> None:
    graph = hexane.load(model)
    assert hexane.check(model).rows == hexane.check(graph).rows
    assert hexane.estimate(str(model)).engine_us == hexane.estimate(graph).engine_us
    program = hexane.compile(model)
    program.save(tmp_path / "net.hexane")
    program.save(tmp_path / "net.hwx")
    for name in ("net.hexane", "net.hwx"):
        assert hexane.estimate(tmp_path / name).engine_us == pytest.approx(hexane.estimate(program).engine_us)


def test_no_input(tmp_path: Path, model: Path) -> None:
    line = _refused(tmp_path, "run", model, says="input 'x' is missing")
    assert "--random" in line


def test_a_seed_that_is_none(tmp_path: Path, model: Path) -> None:
    for command in ("run", "check"):
        _refused(tmp_path, command, model, "--random", "-1", says="-1 is no seed")
    with pytest.raises(UsageError, match="is no seed"):
        hexane.run(model, seed=1.5)


def test_unknown_chip(tmp_path: Path, model: Path) -> None:
    assert "M5" in _refused(tmp_path, "check", model, "--chip", "M55", says="unknown chip 'M55'")


def test_chip_without_code_generation(tmp_path: Path, model: Path) -> None:
    line = _refused(tmp_path, "run", model, "--random", 1, "--chip", "A13", says="no code generation for A13")
    assert "graph" in line


def test_model_with_text(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    node = helper.make_node("StringNormalizer", ["x"], ["y"])
    text = onnx.TensorProto.STRING
    inputs, outputs = (helper.make_tensor_value_info(name, text, [1]) for name in "xy")
    graph = helper.make_graph([node], "text", [inputs], [outputs])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "text.onnx")
    _refused(tmp_path, "run", tmp_path / "text.onnx", "--random", 1, says="is text")


def test_unwritable_output(tmp_path: Path, model: Path) -> None:
    _refused(tmp_path, "run", model, "--random", 1, "-o", tmp_path / "none" / "out.npz", says="there is no folder")


def test_report_into_a_folder_of_mine(tmp_path: Path, model: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    _refused(tmp_path, "run", model, "--random", 1, "--report", tmp_path / "mine", says="other things")


def test_truncated_model(tmp_path: Path) -> None:
    text = saved(small(), tmp_path).read_text()
    (tmp_path / "cut.mil").write_text(text[: len(text) // 2])
    _refused(tmp_path, "run", tmp_path / "cut.mil", "--random", 1, says="cut.mil")


def test_open_shape(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    node = helper.make_node("Relu", ["x"], ["y"])
    kind = onnx.TensorProto.FLOAT
    inputs, outputs = (helper.make_tensor_value_info(name, kind, [1, 3, "h", "w"]) for name in "xy")
    graph = helper.make_graph([node], "open", [inputs], [outputs])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "open.onnx")
    line = _refused(tmp_path, "run", tmp_path / "open.onnx", "--random", 1, says="--shape")
    assert "x" in line


def test_no_space(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: writing stops in the middle, as it does there."""
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 16, 64, 64), "fp16"), name="y"))
    model = saved(b.graph, tmp_path)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    environment = {**ENVIRONMENT, "HEXANE_CACHE": str(tmp_path / "cache")}
    (tmp_path / "cache").mkdir()
    command = [sys.executable, "-m", "hexane", "run", str(model), "--random", "1", "-o", str(tmp_path / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, preexec_fn=limited)
    assert done.returncode == 2 and "out.npz" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.glob("*out*"))


def test_interrupted(tmp_path: Path) -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 64, 128, 128), "fp16")
    weight = np.ones((64, 64, 3, 3), np.float16) / np.float16(1024)
    for _ in range(60):
        x = b.conv(x=x, weight=weight, strides=(1, 1), pad_type="same", dilations=(1, 1), groups=1)
    b.output(x)
    model = saved(b.graph, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    command = [sys.executable, "-m", "hexane", "run", str(model), "--random", "1", "--report", str(tmp_path / "r"),
               "-o", str(tmp_path / "out.npz")]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    assert process.stderr is not None
    first = process.stderr.read(6)
    assert "load" in first
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in errors and "Traceback" not in errors, errors
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("module", ["typer", "hexane.cli.chips", "hexane.chips.table"])
def test_interrupted_by_an_import(module: str) -> None:
    """A module whose import meets the signal: the command line's own, a command's, and one that it needs."""
    finder = f"lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == {module!r} else None"
    code = (
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.meta_path.insert(0, type('Finder', (), dict(find_spec=staticmethod({finder}))))\n"
        "sys.argv = ['hexane', 'chips']\nfrom hexane.cli.main import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (done.returncode, done.stderr) == (130, "hexane: interrupted\n")


def test_a_transformation_that_does_not_exist(tmp_path: Path, model: Path) -> None:
    for command in (("run", model, "--random", 1), ("compile", model, "--stats")):
        _refused(tmp_path, *command, "--without", "bandz", says="did you mean bands")
        _refused(tmp_path, *command, "--dialect", "Apple", says="one of default, apple, zin4")
