"""The commands info, disasm, asm, diff, edit and kernels, as a shell sees them."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

import hexane
from facts import fact_params
from hexane.cli.main import main
from image.hostile import small_program


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Result:
    """The command line in this process: what it would print, and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    words = ["hexane", *map(str, arguments)]
    with patch("sys.argv", words), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
    return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.hwx"
    path.write_bytes(small_program())
    return path


def test_info(program: Path) -> None:
    shown = run("info", program)
    assert shown.returncode == 0, shown.stderr
    for word in ("h13", "zin4", "surfaces", "another", "1 x 3 x 4 x 5", "uint8", "weights, 64 bytes", "__TEXT,__const"):
        assert word in shown.stdout
    assert "\x1b" not in shown.stdout
    parsed = json.loads(run("info", program, "--json").stdout)
    assert parsed["generation"] == "h13"
    assert [s["name"] for s in parsed["surfaces"]] == ["x", "another", "y@output"]
    assert [t["kernel_bytes"] for t in parsed["tasks"]] == [64, 64, 64]
    assert parsed["unexplained_bytes"] == 0


@pytest.mark.parametrize("path", fact_params("hwx/sum_c64.hwx"))
def test_disasm_and_asm(path: Path, tmp_path: Path) -> None:
    text, again = tmp_path / "a.hxs", tmp_path / "a.hwx"
    shown = run("disasm", path)
    assert shown.returncode == 0 and "PE binary add" in shown.stdout
    text.write_text(shown.stdout)
    assert run("asm", text, "-o", again).returncode == 0
    assert again.read_bytes() == path.read_bytes()
    fields = json.loads(run("disasm", path, "--json").stdout)[0]["fields"]
    assert fields["Common.Cin.Cin"] == 64


def test_asm_errors(tmp_path: Path) -> None:
    text = tmp_path / "bad.hxs"
    text.write_text("task t0:\n    Common.InDim Wim=3\n")
    result = run("asm", text, "-o", tmp_path / "out.hwx")
    assert result.returncode == 2
    assert f"{text}:2:" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out.hwx").exists()
    text.write_bytes(b"\xff\xfe")
    assert run("asm", text, "-o", tmp_path / "out.hwx").returncode == 2


def test_diff_exit_status(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.hwx"
    edited = run("edit", program, "--set", "task[1].Common.InDim.Win=33", "-o", other)
    assert edited.returncode == 0, edited.stderr
    assert hexane.open_image(other).tasks[1].Common.InDim.Win == 33
    same = run("diff", program, program)
    assert (same.returncode, same.stdout) == (0, "")
    different = run("diff", program, other)
    assert different.returncode == 1
    assert different.stdout == "task[1].Common.InDim.Win  9 -> 33 (0x21)\n"
    assert json.loads(run("diff", program, other, "--json").stdout) == [
        {"where": "task[1].Common.InDim.Win", "left": 9, "right": 33, "names": None}
    ]
    trouble = run("diff", program, tmp_path / "missing.hwx")
    assert trouble.returncode == 2
    assert trouble.stderr.count("\n") == 1 and "cannot read" in trouble.stderr


def test_edit_writes_whole_files_or_nothing(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.hwx"
    bad = run("edit", program, "--set", "task[0].Common.InDim.Win=99999", "-o", out)
    assert bad.returncode == 2 and "does not fit" in bad.stderr
    assert not out.exists()
    nowhere = run("edit", program, "--set", "task[0].Common.InDim.Win=9", "-o", tmp_path / "no" / "out.hwx")
    assert nowhere.returncode == 2 and "Traceback" not in nowhere.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.hwx"]


@pytest.mark.parametrize("path", fact_params("hwx/conv_3to3.hwx"))
def test_kernels(path: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "kernels", tmp_path / "out.hwx"
    shown = run("kernels", path, "--extract", folder)
    assert shown.stdout == "task 0  fp16  weights float16 3x3x1x1\n"
    result = run("kernels", path, "--replace", folder, "-o", out)
    assert result.returncode == 0 and "0 of 1 kernels changed" in result.stdout
    assert out.read_bytes() == path.read_bytes()
    assert run("kernels", path, "--replace", folder).returncode == 2
    assert json.loads(run("kernels", path, "--json").stdout)[0]["parts"]["weights"]["shape"] == [3, 3, 1, 1]


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.hwx"
    path.write_bytes(small_program()[:0x300])
    for command in (["info"], ["disasm"], ["kernels"]):
        result = run(*command, path)
        assert result.returncode == 2
        assert result.stderr.startswith("hexane: ") and result.stderr.count("\n") == 1
        assert "at byte 0x" in result.stderr
