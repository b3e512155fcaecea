"""Decoded programs by set and target, as graphs, and tasks compared register by register."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from codegen.mil_of import WEIGHTS, mil_of
from facts import fact_folder
from hexane import chips
from hexane.codegen.context import APPLE, Context
from hexane.codegen.driver import canonical, link_run
from hexane.codegen.partition import runs_of, units_of
from hexane.codegen.targets import target_named
from hexane.errors import UnsupportedError
from hexane.formats.mil import parse_mil
from hexane.graph.ir import Graph
from hexane.isa import Task, task_from_words
from hexane.isa.compose.rules import generation_of
from hexane.lowering.transformations import active


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def graph_of(program: dict[str, Any]) -> Graph:
    """The program's network by way of MIL text and a weight file, as a compiler is given them."""
    text, weights = mil_of(program)
    return parse_mil(text, weights={WEIGHTS: weights})


def expected_tasks(program: dict[str, Any]) -> list[Task]:
    generation = generation_of(program["generation"])
    return [task_from_words([int(w, 16) for w in task["words"]], generation) for task in program["tasks"]]


def made_tasks(graph: Graph, target: str) -> list[Task]:
    """The tasks of a network that the engine runs whole, in Apple's dialect; raises HexaneError where it does not."""
    goal = target_named(target)
    context = Context(chips.get("M1"), active("apple"), target=goal, policy=APPLE)
    function = canonical(graph, context).main
    units = units_of(function, context)
    runs = runs_of(function, units, context)
    reasons = [unit.reason for unit in units if not unit.on_engine]
    if reasons or len(runs) != 1:
        raise UnsupportedError("; ".join(reasons) or f"{len(runs)} runs")
    return link_run(runs[0], context).tasks


SETS = {"first": "", "more": "more/", "more2": "more2/"}
"""Sets of decoded programs, in the order in which they came to hand, and their folders."""


def every_program(target: str, sets: Iterable[str] = ()) -> list[Path]:
    """The decoded programs of a target (``h13``, ``h13-2023``, ``h14`` ... ``h18``) in some sets, by name.

    Without ``sets`` those of the first two, or of the third where these have none.
    """
    if not sets:
        return every_program(target, ("first", "more")) or every_program(target, ("more2",))
    paths = [path for name in sets for path in fact_folder().glob(f"apple/{SETS[name]}{target}/*.json")]
    return sorted(paths, key=lambda path: path.stem)


def targets_of(name: str) -> list[str]:
    """The targets that a set has programs for."""
    folder = fact_folder() / "apple" / SETS[name]
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("h"))


def several_layers(target: str) -> list[Path]:
    """The decoded programs of a target whose networks are chains of layers, of all sets."""
    return [path for path in every_program(target, SETS) if "chain" in load(path)["family"]]


def one_layer(target: str) -> list[Path]:
    """All other decoded programs of a target, of all sets."""
    return [path for path in every_program(target, SETS) if "chain" not in load(path)["family"]]


def equal_tasks(made: list[Task], wanted: list[Task]) -> int:
    """Tasks whose words are the same at the same place."""
    return sum(ours.words() == theirs.words() for ours, theirs in zip(made, wanted))


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
