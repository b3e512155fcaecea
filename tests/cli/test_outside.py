"""The command line as a shell meets it: in a pipe, in a fresh folder, without a terminal."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hexane.graph import GraphBuilder
from image.hostile import small_program

HEXANE = [sys.executable, "-m", "hexane"]


def _run(*arguments: str, folder: Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HEXANE, *arguments], cwd=folder, input=given, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(os.name == "nt", reason="pipes are others there")
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """`hexane info p.hwx | head -1`: nothing on standard error, status 0."""
    (tmp_path / "p.hwx").write_bytes(small_program())
    for command in (["info", "p.hwx"], ["disasm", "p.hwx", "--json"]):
        read, write = os.pipe()
        process = subprocess.Popen([*HEXANE, *command], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        os.close(read)
        _, said = process.communicate(timeout=300)
        assert (process.returncode, said) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_disk_is_one(tmp_path: Path) -> None:
    (tmp_path / "p.hwx").write_bytes(small_program())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*HEXANE, "info", "p.hwx"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300
        )
    assert done.returncode == 2 and done.stderr.startswith("hexane: cannot write the output")
    assert "Exception" not in done.stderr


def test_names_that_the_encoding_lacks_are_written_as_escapes(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("\u00fc", (1, 8), "fp16")), name="y")
    b.graph.save(tmp_path / "n.mil")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for arguments in (["run", "n.mil", "--random", "1"], ["run", "n.mil", "--input", "\u20ac=x.npy"]):
        done = subprocess.run([*HEXANE, *arguments], cwd=tmp_path, capture_output=True, env=environment, timeout=300)
        said = (done.stdout + done.stderr).decode("ascii")
        assert done.returncode == (0 if "--random" in arguments else 2) and "Traceback" not in said
        assert "\\xfc" in said


@pytest.mark.skipif(os.name == "nt", reason="a shell is another there")
def test_closed_ends_are_no_crash(tmp_path: Path) -> None:
    (tmp_path / "p.hwx").write_bytes(small_program())
    for ends in (">&-", ">&- 2>&- <&-"):
        line = ["sh", "-c", f'"$@" {ends}; echo $?', "sh", *HEXANE, "info", "p.hwx"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["info", "none.hwx", "--json"], "usage", "cannot read the file"),
        (["info", "--json", "--nothing", "p.hwx"], "usage", "--nothing"),
        (["check", "text.onnx", "--json"], "format", "not an ONNX protobuf"),
    ],
)
def test_errors_for_programs(command: list[str], code: str, said: str, tmp_path: Path) -> None:
    """With --json standard output is JSON also when it goes wrong."""
    (tmp_path / "text.onnx").write_text("hello")
    done = _run(*command, folder=tmp_path)
    found = json.loads(done.stdout)["error"]
    assert done.returncode == 2 and done.stderr
    assert found["code"] == code and said in found["message"]
    assert set(found) == {"code", "message", "where", "hint"}


@pytest.mark.parametrize("command", ["info", "disasm", "kernels"])
def test_a_network_where_a_program_is_asked_for_is_told_where_it_belongs(command: str, tmp_path: Path) -> None:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 8), "fp16")), name="y")
    b.graph.save(tmp_path / "n.mil")
    (tmp_path / "n.mlpackage").mkdir()
    for name in ("n.mil", "n.mlpackage"):
        done = _run(command, name, folder=tmp_path)
        assert done.returncode == 2 and name in done.stderr and "networks are for hexane run" in done.stderr


def test_asm_writes_nothing_that_no_engine_could_read(tmp_path: Path) -> None:
    done = _run("asm", "/dev/stdin" if os.name != "nt" else "-", "-o", "p.hwx", folder=tmp_path, given="task t0")
    assert done.returncode == 2 and not (tmp_path / "p.hwx").exists()
    assert "--unchecked" in done.stderr or os.name == "nt"
    (tmp_path / "p.hxs").write_text("task t0\n")
    assert _run("asm", "p.hxs", "-o", "p.hwx", "--unchecked", folder=tmp_path).returncode == 0
    assert (tmp_path / "p.hwx").exists()


@pytest.mark.parametrize(
    "options",
    [["--normalize", "foo"], ["--compare", "foo"], ["--level", "foo"], ["--tolerance", "-1"]],
)
def test_wrong_options_are_met_before_the_work(options: list[str], tmp_path: Path) -> None:
    """Before the network is even looked for."""
    done = _run("run", "none.onnx", *options, folder=tmp_path)
    assert done.returncode == 2 and options[0] in done.stderr and "none.onnx" not in done.stderr


def test_a_report_keeps_what_others_put_beside_it(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("jinja2")
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, (1, 4, 2, 8))],
            [onnx.helper.make_tensor_value_info("y", 1, (1, 4, 2, 8))],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    samples = (np.linspace(-0.5, 0.5, 64) * 32768).astype("<i2").tobytes()
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + 128, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 128
    )
    (tmp_path / "x.wav").write_bytes(head + samples)
    (tmp_path / "x.txt").write_text(" ".join(map(str, range(64))))
    first = _run("run", "m.onnx", "--input", "x=x.txt", "--report", "out", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    again = _run("run", "m.onnx", "--input", "x=x.txt", "--report", "out", "--json", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["report"] == "out"
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"
    sound = _run("run", "m.onnx", "--input", "x=x.wav", folder=tmp_path)
    assert sound.returncode == 2 and "takes no sound" in sound.stderr and "pickle" not in sound.stderr


def test_a_warning_is_one_line(tmp_path: Path) -> None:
    """Without the file and line of this package's source that Python's own format shows."""
    b = GraphBuilder()
    b.output(b.add(x=b.input("x", (1, 4), "fp32"), y=np.float32(1e9), name="y"))
    b.graph.save(tmp_path / "a.mil")
    done = _run("compile", "a.mil", "-o", "a.hwx", folder=tmp_path)
    assert (
        done.returncode == 0
        and done.stderr == "hexane: warning: add 'y' has the constant 1e+09, which is 65504 in fp16\n"
    )
    assert "ops on the host" not in done.stdout


def test_compile_says_how_many_ops_are_the_hosts(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.output(b.non_zero(x=b.relu(x=b.input("x", (1, 4), "fp16"))))
    b.graph.save(tmp_path / "a.mil")
    done = _run("compile", "a.mil", "-o", "a.hexane", folder=tmp_path)
    assert "nothing to multiply, 1 of 2 ops on the host" in done.stdout
