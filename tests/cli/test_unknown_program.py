"""docs/unknown-program.md: every command and every line of Python, and what it says of the numbers."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hexane.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/unknown-program.md").read_text()


def test_the_page_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples/unknown.py"))
    names: dict = {}
    for match in re.finditer(r"^    hexane ([^\n]+)$|^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if match[1] is None:
            exec(match[2], names)
        else:
            result = CliRunner().invoke(app, shlex.split(match[1]))
            assert result.exit_code == (1 if match[1].startswith("diff") else 0), f"{match[1]}: {result.output}"
    assert np.array_equal(names["filters"][0], [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    assert np.array_equal(names["filters"][1], names["filters"][0].T)
    off = np.abs(names["b"] - names["steepness"])
    assert round(float(off.max()), 4) == 0.0084 and round(float(names["steepness"].max()), 1) == 14.4
    x = np.linspace(0.1, 200, 500).astype(np.float16)
    assert np.allclose(names["table"](x), np.sqrt(x.astype(float)), rtol=2e-3)
