"""A text and its weights: one unit, whenever the process ends."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexane.errors import SyntaxProblem, UsageError
from hexane.formats.mil import parse_mil
from hexane.formats.mil.files import load as load_mil
from hexane.formats.mil.files import save as save_mil
from hexane.graph import Graph, GraphBuilder


def _pair(factor: float) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 16), "fp16")
    b.output(b.add(x=b.mul(x=x, y=np.full((1, 16), factor, np.float16)), y=np.float16(100 * factor), name="y"))
    return b.graph


def _value(path: Path) -> float:
    return float(load_mil(path).evaluate({"x": np.ones((1, 16), np.float16)})["y"][0, 0])


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_text_and_its_weights_are_one_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Ended before, between and behind the two files: the old network or the new one, never a mixture."""
    path = tmp_path / "net.mil"
    save_mil(_pair(1), path)
    assert _value(path) == 101 and (tmp_path / "weights" / "net.bin").exists()
    real, done = os.replace, []

    def ends(*names: Any) -> None:
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(real(*names))

    monkeypatch.setattr(os, "replace", ends)
    with contextlib.suppress(KeyboardInterrupt):
        save_mil(_pair(4), path)
    monkeypatch.undo()
    assert _value(path) == (404 if writes == 2 else 101)
    save_mil(_pair(2), path)
    assert _value(path) == 202
    named = re.findall(r"weights/([^\"]+)", path.read_text())
    assert len(set(named)) == 1
    if writes != 1:  # whose killed writer left a file that no text names
        assert [file.name for file in (tmp_path / "weights").iterdir()] == [named[0]]


def test_a_disk_that_is_full_at_the_text_keeps_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hexane import files
    from hexane.formats.netplist.writer import save as save_plist

    write = files.write_whole

    def full(path: Path, data: object) -> None:
        if path.suffix in (".mil", ".plist"):
            raise UsageError("cannot be written: No space left on device", where=str(path))
        write(path, data)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write_whole", full)
    with pytest.raises(UsageError, match="No space left"):
        save_mil(_pair(2.0), tmp_path / "a.mil")
    assert not list(tmp_path.iterdir())
    b = GraphBuilder()
    b.output(b.conv(x=b.input("x", (1, 4, 4, 4), "fp16"), weight=b.const(np.ones((4, 4, 1, 1)), "fp16")), name="y")
    with pytest.raises(UsageError, match="No space left"):
        save_plist(b.graph, tmp_path / "a.plist")
    assert not list(tmp_path.iterdir())


def test_a_text_commands_no_terminal() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_mil("program(1.3)\n{ \x1b]0;title\x07\x1b[31m }")
    assert all(c.isprintable() or c == "\n" for c in str(caught.value))
