"""The programs of docs/frameworks.md: each of at most ten lines, each run as printed where its libraries are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hexane.cli.main import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
PROGRAMS = re.findall(r"^## (.+?)$.*?^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("frameworks")
    CliRunner().invoke(app, ["example", str(made)], catch_exceptions=False)
    return made


@pytest.mark.parametrize(("title", "program"), PROGRAMS, ids=[title for title, _ in PROGRAMS])
def test_the_program_runs(title: str, program: str, folder: Path) -> None:
    wanted = {line.split()[1].partition(".")[0] for line in program.splitlines() if re.match(r"(import|from) ", line)}
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    assert len(program.strip().splitlines()) <= 10
    path = ":".join(entry for entry in sys.path if entry)
    environment = {"PYTHONPATH": path, "DEV": os.environ.get("DEV", "PYTHON")}  # tinygrad's device without a compiler
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_programs() -> None:
    assert {"ONNX: a session", "ONNX: a back end"} <= {title for title, _ in PROGRAMS}
