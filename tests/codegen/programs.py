"""Decoded programs of the shared data as graphs, and tasks compared register by register."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from hexane.formats.mil import parse_mil
from hexane.graph.ir import Graph
from hexane.isa import Task, task_from_words


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def converter(path: Path) -> Any:
    """The module ``to_mil.py`` that stands beside the programs."""
    spec = importlib.util.spec_from_file_location("to_mil", path.parents[1] / "to_mil.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def graph_of(program: dict[str, Any], to_mil: Any) -> Graph:
    """The program's network by way of MIL text and a weight file, as a compiler is given them."""
    text, weights = to_mil.convert(program)
    return parse_mil(text, weights={to_mil.PATH: weights})


def expected_tasks(program: dict[str, Any]) -> list[Task]:
    return [task_from_words([int(w, 16) for w in task["words"]], program["generation"]) for task in program["tasks"]]


def differences(made: list[Task], wanted: list[Task]) -> list[str]:
    """One line per register that differs."""
    if len(made) != len(wanted):
        return [f"{len(made)} tasks instead of {len(wanted)}"]
    lines = []
    for i, (ours, theirs) in enumerate(zip(made, wanted)):
        if ours.words() == theirs.words():
            continue
        a, b = ours.registers(), theirs.registers()
        for name in {**a, **b}:
            if a.get(name) != b.get(name):
                lines.append(f"task[{i}].{name} = {a.get(name, 0):#x}, Apple has {b.get(name, 0):#x}")
        if a == b:
            lines.append(f"task[{i}]: records in another order")
    return lines
