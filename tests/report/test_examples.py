"""Every example of the documentation's pages runs as printed, in order, in a folder that `hexane example` made."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hexane.cli.main import app

pytest.importorskip("onnx")
pytest.importorskip("PIL")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "commands").glob("*.md"))]
NO_IS_AN_ANSWER = {"check", "diff", "compare"}
"""Commands whose exit status 1 says that something does not fit, or that two programs differ."""
ELSEWHERE = {"demo", "evaluate", "sweep"}
"""Fetches networks, or takes data of one's own; tests of their own run them (test_demo, studies/test_evaluate ...)."""


def printed(page: Path) -> list[str]:
    """The commands of a page: indented lines that begin with ``hexane``; synopses have words in brackets."""
    lines = re.findall(r"^    (hexane .*)$", page.read_text(), re.MULTILINE)
    commands = [line.partition("  #")[0].strip() for line in lines]
    return [line for line in commands if not re.search(r"\[[A-Z]+\]| [A-Z]{2,}( |$)", line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("example")
    result = CliRunner().invoke(app, ["example", str(made)], catch_exceptions=False)
    assert result.exit_code == 0 and (made / "model.onnx").is_file()
    return made


LONG = {"compress"}


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem in LONG else []) for p in PAGES]
)
def test_the_examples_of_a_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for line in printed(page):
        words = shlex.split(line)[1:]
        if words[0] in ELSEWHERE:
            continue
        if words[0] in ("convert", "compress"):
            pytest.importorskip("coremltools")
        words, into = (words[: words.index(">")], words[-1]) if ">" in words else (words, None)
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        if into is not None:
            Path(into).write_text(result.stdout)
        allowed = (0, 1) if words[0] in NO_IS_AN_ANSWER else (0,)
        assert result.exit_code in allowed, f"{line}\n{result.output}"


def test_most_pages_have_an_example() -> None:
    with_one = [page.stem for page in PAGES if printed(page)]
    assert {"index", "run", "check", "compile", "estimate", "show", "convert", "report", "info", "disasm", "asm",
            "edit", "emulate", "diff", "kernels"} <= set(with_one)  # fmt: skip


def test_the_first_script(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = [sys.executable, str(ROOT / "examples" / "first.py")]
    done = subprocess.run(script, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "class:" in done.stdout and "launch" in done.stdout


def test_help_has_a_short_form() -> None:
    for words in (["-h"], ["run", "-h"], ["check", "-h"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0 and "Usage" in result.output


def test_the_shell_completes_commands() -> None:
    environment = {**os.environ, "_HEXANE_COMPLETE": "complete_bash", "COMP_WORDS": "hexane es", "COMP_CWORD": "1",
                   "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    code = "import sys; sys.argv = ['hexane']; from hexane.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["estimate"], done.stderr


def test_a_program_runs_like_a_network(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    program = str(folder / "model.hwx")
    text = runner.invoke(
        app, ["run", program, "--input", str(folder / "image.npy"), "-o", str(tmp_path / "o.npz")]
    ).output
    assert (
        "model.hwx for M1, on emulator" in text
        and "not compared" in text
        and "infinities" in text
        and "1 task in 1 engine segment" in text
    )
    assert np.load(tmp_path / "o.npz")["out"].shape == (1, 32, 32, 64)
    for option in (["--report", str(tmp_path / "r")], ["--autoscale"], ["--shape", "x=1"], ["--level", "graph"]):
        result = runner.invoke(app, ["run", program, "--random", "1", *option])
        assert result.exit_code != 0 and "compiled program" in str(result.exception), option
