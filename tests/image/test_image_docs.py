"""The console output in docs/images.md is what the commands print; HEXANE_UPDATE_DOCS=1 writes it anew."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from facts import fact_files
from image.test_image_cli import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "images.md"
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def output_of(block: str) -> str:
    """The block's commands, each with what it prints."""
    lines = []
    for command in (line for line in block.splitlines() if line.startswith("$ ")):
        result = run(*shlex.split(command)[2:])
        assert result.returncode in (0, 1), result.stderr
        lines.append(f"{command}\n{result.stdout}")
    return "".join(lines)


def test_console_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in fact_files("hwx/*.hwx"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    fresh = BLOCK.sub(lambda match: f"```console\n{output_of(match.group(1))}```\n", page)
    if os.environ.get("HEXANE_UPDATE_DOCS"):
        PAGE.write_text(fresh)
    assert len(BLOCK.findall(page)) == 9
    assert fresh == page, "docs/images.md is stale: run this test with HEXANE_UPDATE_DOCS=1"
