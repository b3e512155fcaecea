"""Small networks that the tests of the commands use, and how to call a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.graph import Graph, GraphBuilder


def small(dtype: str = "fp16") -> Graph:
    """A product, its ReLU, a table, a sum: what the engine has."""
    rng = np.random.default_rng(1)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), dtype)
    carrier = np.float16 if dtype == "fp16" else np.float32
    weight = (rng.standard_normal((16, 16, 1, 1)) / 4).astype(carrier)
    y = b.conv(x=x, weight=weight, strides=(1, 1), pad_type="valid", dilations=(1, 1), groups=1, name="y")
    r = b.relu(x=y, name="r")
    s = b.sigmoid(x=r, name="s")
    b.output(b.add(x=s, y=x, name="out"))
    return b.graph


def mixed() -> Graph:
    """An op that no engine has (cumsum), between two that it has."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    y = b.relu(x=x, name="y")
    c = b.cumsum(x=y, axis=3, name="c")
    b.output(b.relu(x=c, name="out"))
    return b.graph


def saved(graph: Graph, folder: Path, name: str = "net.mil") -> Path:
    """The network as a file."""
    path = folder / name
    graph.save(path)
    return path


def command(*arguments: object, status: int | None = 0) -> Any:
    """A command's standard output (parsed, where it was asked for JSON)."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    if status is not None:
        assert result.exit_code == status, result.output
    return json.loads(result.stdout) if "--json" in map(str, arguments) else result.output
